"""What a guard raises."""


class GuardError(AssertionError):
    """A bad value appeared inside a guarded function.

    An ``AssertionError``, as PyTensor's NanGuardMode raises.  After it, every shared
    variable and random state that the call would have changed is as it was before.

    Parameters
    ----------
    event : GuardEvent
        The record of the trip.
    """

    def __init__(self, event):
        super().__init__(event)
        self.event = event

    def __str__(self):
        event = self.event
        names = {"nan": "NaN", "inf": "Inf", "big": "Big value"}
        if event.role == "node":
            where = f"the output of {event.node}"
        else:
            where = f"{event.role} {event.variable or '(unnamed)'}"
        inside = "".join(f"\n  inside {step}" for step in reversed(event.path))
        return (
            f"{names[event.kind]} in {where}: {event.first_value!r} at index {event.first_index}"
            f"{inside}\n"
            f"  {event.n_bad} of {event.size} elements are bad (NaN {event.n_nan}, "
            f"+Inf {event.n_posinf}, -Inf {event.n_neginf}, big {event.n_big}); "
            f"{event.dtype} of shape {event.shape}, call {event.call}"
            + (f" of {event.function}" if event.function else "")
        )
