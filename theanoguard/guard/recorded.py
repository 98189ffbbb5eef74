"""Functions whose calls are recorded."""

import copyreg
from functools import cache
from typing import Any

import theanoguard.guard.history as history
from theanoguard._pytensor import Function
from theanoguard.guard.errors import GuardError


class RecordedFunction(Function):
    """A guarded function that keeps a ``Recording`` of its calls."""

    def __reduce__(self) -> Any:
        return copyreg.dispatch_table[Function](self)  # type: ignore[attr-defined]  # of `copyreg`

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        guard = getattr(self.vm, "guard", None)  # (``captured_inputs`` puts in another machine)
        if guard is None:
            return super().__call__(*args, **kwargs)
        if guard.recording is None:
            guard.recording = history.Recording(self, guard.policy.snapshots)
        recording = guard.recording
        recording.begin(args, kwargs)
        try:
            result = super().__call__(*args, **kwargs)
        except GuardError as error:
            error.recording = recording
            raise
        recording.end(result)
        return result


@cache
def recorded_class(base: Any) -> Any:
    """Return the subclass of a subclass of ``Function`` that records its calls."""
    if base is Function:
        return RecordedFunction
    is_one = issubclass(base, RecordedFunction)
    return base if is_one else type(base.__name__, (RecordedFunction, base), {})
