"""Functions whose calls are recorded."""

from typing import Any

import theanoguard.guard.history as history
from theanoguard.guard.functions import WatchedFunction


class RecordedFunction(WatchedFunction):
    """A guarded function that keeps a ``Recording`` of its calls."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        guard = getattr(self.vm, "guard", None)  # (``captured_inputs`` puts in another machine)
        if guard is None:
            return super().__call__(*args, **kwargs)
        if guard.recording is None:
            guard.recording = history.Recording(self, guard.policy.snapshots)
        recording = guard.recording
        try:
            recording.begin(args, kwargs, guard.calls + 1)
            result = super().__call__(*args, **kwargs)
        except BaseException:
            if guard.calls < recording.calls:
                recording.withdraw(guard.calls)
            raise
        recording.end(result)
        return result
