"""The base class of the errors of this package."""


class TheanoguardError(Exception):
    """Base class of the errors that theanoguard raises for bad numbers, weights or gradients.

    Each error is also an error of Python, such as :class:`AssertionError` for a ``GuardError``.
    Wrong arguments raise ``ValueError`` or ``TypeError``.

    Examples
    --------
    >>> from theanoguard import GuardError
    >>> from theanoguard.records import TheanoguardError
    >>> issubclass(GuardError, TheanoguardError), issubclass(GuardError, AssertionError)
    (True, True)
    """

    __module__ = "theanoguard"  # what a traceback shows in front of the name
