from . import explain, log, ops, pymc, records, shim, stable, testvalue, training
from ._compare import Comparison, compare
from ._errors import TheanoguardError
from ._event import GuardEvent
from ._exact import Exact, exact
from ._lint import Finding, lint
from ._precision import MeasuredCalls, Precision, precision
from ._provenance import provenance, track_provenance
from .explain import Explanation, explain_exception, find_masked
from .guard import GuardError, GuardMode, GuardSummary, NanGuardMode, events_of
from .guard.every_function import guarding
from .guard.jax.runtime import sync
from .log import EventLog, read_log
from .monitor import (
    DetectNan,
    MonitorMode,
    Stepper,
    detect_nan,
    step_in_terminal,
    step_through,
)
from .notebook import load_ipython_extension, unload_ipython_extension
from .operations import register_operation
from .ops import Assert, Print
from .shim import install_theano, uninstall_theano
from .stable import stabilize
from .view.debugprint import debugprint, min_informative_str, pp
from .view.inspecting import Inspection, inspect_graph
from .view.pictures import pydotprint
from .view.profile import profile_nodes

__version__: str

__all__ = [
    "Assert",
    "Comparison",
    "DetectNan",
    "EventLog",
    "Exact",
    "Explanation",
    "Finding",
    "GuardError",
    "GuardEvent",
    "GuardMode",
    "GuardSummary",
    "Inspection",
    "MeasuredCalls",
    "MonitorMode",
    "NanGuardMode",
    "Precision",
    "Print",
    "Stepper",
    "TheanoguardError",
    "compare",
    "debugprint",
    "detect_nan",
    "events_of",
    "exact",
    "explain",
    "explain_exception",
    "find_masked",
    "guarding",
    "inspect_graph",
    "install_theano",
    "lint",
    "load_ipython_extension",
    "log",
    "min_informative_str",
    "ops",
    "pp",
    "precision",
    "profile_nodes",
    "provenance",
    "pydotprint",
    "pymc",
    "read_log",
    "register_operation",
    "records",
    "shim",
    "stabilize",
    "stable",
    "step_in_terminal",
    "step_through",
    "sync",
    "testvalue",
    "track_provenance",
    "training",
    "uninstall_theano",
    "unload_ipython_extension",
]
