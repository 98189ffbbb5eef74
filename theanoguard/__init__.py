"""theanoguard: where, why and when numbers go bad inside compiled PyTensor graphs."""

from theanoguard.explain.event import GuardEvent
from theanoguard.guard import GuardError, GuardMode, NanGuardMode, events
from theanoguard.log import EventLog, read_log
from theanoguard.printing import debugprint, min_informative_str, pp, pprint, profile, pydotprint
from theanoguard.provenance import provenance, track_provenance

__all__ = [
    "EventLog",
    "GuardError",
    "GuardEvent",
    "GuardMode",
    "NanGuardMode",
    "debugprint",
    "events",
    "min_informative_str",
    "pp",
    "pprint",
    "profile",
    "provenance",
    "pydotprint",
    "read_log",
    "track_provenance",
]
__version__ = "0.1.0.dev0"
