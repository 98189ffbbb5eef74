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
        if recording.in_call:  # (an `action` calls the function: that is part of the call)
            return super().__call__(*args, **kwargs)
        try:
            recording.in_call = True
            recording.begin(args, kwargs, guard.calls + 1)
            result = super().__call__(*args, **kwargs)
            recording.end(result)
        except BaseException:
            if guard.calls < recording.calls:
                recording.withdraw(guard.calls)
            raise
        finally:
            recording.in_call = False
        return result
