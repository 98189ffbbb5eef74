"""theanoguard: where, why and when numbers go bad inside compiled PyTensor graphs."""

from theanoguard.explain.event import GuardEvent
from theanoguard.guard import GuardError, GuardMode, NanGuardMode, events

__all__ = ["GuardError", "GuardEvent", "GuardMode", "NanGuardMode", "events"]
__version__ = "0.1.0.dev0"
