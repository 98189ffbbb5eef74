from . import explain, log, monitor, ops, pymc, records, shim, stable, testvalue, training, view
from ._compare import compare
from ._exact import exact
from ._lint import lint
from ._precision import MeasuredCalls, precision
from ._provenance import provenance, track_provenance
from .explain import find_masked
from .guard import GuardError, GuardMode, NanGuardMode, events_of
from .guard.every_function import guarding
from .guard.history import bisect
from .guard.jax.runtime import sync
from .monitor import step_through
from .notebook import load_ipython_extension, unload_ipython_extension
from .stable import stabilize
from .view.debugprint import debugprint
from .view.inspecting import inspect_graph

__version__: str

__all__ = [
    "GuardError",
    "GuardMode",
    "MeasuredCalls",
    "NanGuardMode",
    "bisect",
    "compare",
    "debugprint",
    "events_of",
    "exact",
    "explain",
    "find_masked",
    "guarding",
    "inspect_graph",
    "lint",
    "load_ipython_extension",
    "log",
    "monitor",
    "ops",
    "precision",
    "provenance",
    "pymc",
    "records",
    "shim",
    "stabilize",
    "stable",
    "step_through",
    "sync",
    "testvalue",
    "track_provenance",
    "training",
    "unload_ipython_extension",
    "view",
]
