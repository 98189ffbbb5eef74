"""The compile mode that checks every node."""

from theanoguard._pytensor import predefined_modes
from theanoguard.guard.errors import GuardError
from theanoguard.guard.mode import GuardMode, NanGuardMode, events_of
from theanoguard.guard.summary import GuardSummary

__all__ = ["GuardError", "GuardMode", "GuardSummary", "NanGuardMode", "events_of"]

# The one thing that importing this package changes in PyTensor: mode="GuardMode" works.
predefined_modes.setdefault("GUARDMODE", GuardMode(True, True, True))
