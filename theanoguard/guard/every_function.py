"""Guarding all that a run compiles, whatever mode it asks for."""

from functools import wraps

from theanoguard._pytensor import FunctionMaker, config, get_mode
from theanoguard.guard import GuardError, GuardMode
from theanoguard.guard.c.linker import GuardLinker
from theanoguard.guard.rewriting import WatchedMode

KINDS = ("nan", "inf", "big")


def kinds(text):
    """Return the kinds of bad values that a list with commas names.

    Parameters
    ----------
    text : str
        Of ``nan``, ``inf`` and ``big``.

    Returns
    -------
    dict of str to bool
        Arguments of :class:`~theanoguard.GuardMode`.

    Raises
    ------
    ValueError
        For anything else.

    Examples
    --------
    >>> kinds("nan,inf")
    {'nan_is_error': True, 'inf_is_error': True, 'big_is_error': False}
    """
    named = [kind.strip() for kind in text.split(",")]
    if unknown := [kind for kind in named if kind not in KINDS]:
        raise ValueError(f"{unknown[0]!r} is no kind of bad value; name some of {', '.join(KINDS)}")
    return {f"{kind}_is_error": kind in named for kind in KINDS}


class Trips:
    """What guards find, in the place of a log: kept until it is forgotten."""

    def __init__(self):
        self.events = []
        self.explanations = {}

    def describing(self, settings):
        """Return itself: the settings of the mode are known."""
        return self

    def start(self):
        """A function has been compiled: that is nothing to keep."""

    def add(self, event):
        """Keep an event."""
        self.events.append(event)

    def explain(self, explanation):
        """Keep the explanation of the last event."""
        self.explanations[len(self.events) - 1] = explanation

    def errors(self):
        """The trips, oldest first, as the errors that they raised."""
        return [
            GuardError(event, self.explanations.get(number))
            for number, event in enumerate(self.events)
        ]

    def clear(self):
        """Forget everything."""
        self.events.clear()
        self.explanations.clear()


class GuardedRun:
    """Guards every function that is compiled, from `start` on.

    What is compiled without a mode, or for the C virtual machine, is compiled in a
    :class:`~theanoguard.GuardMode`.  A function for another linker, or with a guard, a monitor or
    a debugger of its own, is left as it is.

    Parameters
    ----------
    settings : dict of str to bool
        What :func:`kinds` returns.
    """

    def __init__(self, settings):
        self.settings = settings
        self.trips = Trips()
        self.guarded = self.left = 0

    def guard(self, **arguments):
        """Return a mode that notes its trips."""
        mode = GuardMode(**self.settings, **arguments, action="raise")
        mode.recorder.log = self.trips
        return mode

    def guarding(self, mode):
        """Return the mode that takes the place of one that a function is compiled in."""
        mode = get_mode(mode)
        if isinstance(mode, WatchedMode) or isinstance(mode.linker, GuardLinker):
            self.guarded += isinstance(mode, GuardMode)
            return mode
        try:
            guard = self.guard(linker=mode.linker, optimizer=mode.provided_optimizer, db=mode.optdb)
        except ValueError:  # a linker that cannot be guarded
            self.left += 1
            return mode
        self.guarded += 1
        return guard

    def start(self):
        """Guard what is compiled from now on, and return a function that ends it."""
        make = FunctionMaker.__init__

        @wraps(make)
        def __init__(maker, inputs, outputs, mode=None, *args, **kwargs):
            make(maker, inputs, outputs, self.guarding(mode), *args, **kwargs)

        before = {"mode": config.mode, "linker": config.linker}
        if config.linker == "auto":
            config.linker = "cvm"
        config.mode = self.guard()
        FunctionMaker.__init__ = __init__

        def stop():
            FunctionMaker.__init__ = make
            for name, value in before.items():
                setattr(config, name, value)

        return stop
