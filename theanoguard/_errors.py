"""The base class of the errors of this package."""


class TheanoguardError(Exception):
    """What theanoguard raises when numbers, weights or gradients are bad.

    Each kind is also one of Python's own classes, such as ``AssertionError`` for a
    :class:`~theanoguard.GuardError`.  Wrong arguments raise ``ValueError`` or ``TypeError``.

    Examples
    --------
    >>> from theanoguard import GuardError, TheanoguardError
    >>> issubclass(GuardError, TheanoguardError), issubclass(GuardError, AssertionError)
    (True, True)
    """

    __module__ = "theanoguard"  # what a traceback shows in front of the name
