"""What a guard raises."""

from theanoguard.explain import render_text


class GuardError(AssertionError):
    """A bad value appeared inside a guarded function.

    An ``AssertionError``, as PyTensor's NanGuardMode raises.  After it, every shared
    variable and random state that the call would have changed is as it was before.

    Parameters
    ----------
    event : GuardEvent
        The record of the trip.
    explanation : Explanation or None
        Where the bad value was made, from which operands, and what to do.
    """

    def __init__(self, event, explanation=None):
        super().__init__(event, explanation)
        self.event = event
        self.explanation = explanation

    def __str__(self):
        return render_text(self.event, self.explanation)
