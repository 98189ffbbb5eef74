"""theanoguard: where, why and when numbers go bad inside compiled PyTensor graphs."""

from theanoguard import pymc, stable, testvalue
from theanoguard._compare import Comparison, compare
from theanoguard._event import GuardEvent
from theanoguard._lint import Finding, lint
from theanoguard._provenance import provenance, track_provenance
from theanoguard.explain import (
    Explanation,
    explain_exception,
    find_masked,
    register_hint,
    render_failure,
    render_text,
)
from theanoguard.guard import GuardError, GuardMode, GuardSummary, NanGuardMode, events
from theanoguard.log import EventLog, read_log
from theanoguard.log.worker import task
from theanoguard.monitor import DetectNan, MonitorMode, Stepper, detect_nan, step, stepping
from theanoguard.ops.asserts import (
    Assert,
    PdbBreakpoint,
    assert_finite,
    assert_in_range,
    assert_op,
    assert_shape,
)
from theanoguard.ops.print import Print
from theanoguard.shim.install import install_theano, uninstall_theano
from theanoguard.stable import stabilize
from theanoguard.testvalue import (
    MissingTestValue,
    eval_intermediate_values,
    get_test_value,
    test_values,
)
from theanoguard.training import (
    GradientError,
    GradientEvent,
    GradientGuard,
    GuardedUpdates,
    UpdateError,
    Watch,
    clip_grad_norm,
    clip_grad_value,
    guarded_updates,
    watching,
)
from theanoguard.view.inspecting import Inspection, inspect
from theanoguard.view.notebook import load_ipython_extension, unload_ipython_extension
from theanoguard.view.printing import (
    debugprint,
    min_informative_str,
    pp,
    pprint,
    profile,
    pydotprint,
)

__all__ = [
    "Assert",
    "Comparison",
    "DetectNan",
    "EventLog",
    "Explanation",
    "Finding",
    "GradientError",
    "GradientEvent",
    "GradientGuard",
    "GuardError",
    "GuardEvent",
    "GuardMode",
    "GuardSummary",
    "GuardedUpdates",
    "Inspection",
    "MissingTestValue",
    "MonitorMode",
    "NanGuardMode",
    "PdbBreakpoint",
    "Print",
    "Stepper",
    "UpdateError",
    "Watch",
    "assert_finite",
    "assert_in_range",
    "assert_op",
    "assert_shape",
    "clip_grad_norm",
    "clip_grad_value",
    "compare",
    "debugprint",
    "detect_nan",
    "eval_intermediate_values",
    "events",
    "explain_exception",
    "find_masked",
    "get_test_value",
    "guarded_updates",
    "inspect",
    "install_theano",
    "lint",
    "load_ipython_extension",
    "min_informative_str",
    "pp",
    "pprint",
    "profile",
    "provenance",
    "pydotprint",
    "pymc",
    "read_log",
    "register_hint",
    "render_failure",
    "render_text",
    "stabilize",
    "stable",
    "step",
    "stepping",
    "task",
    "test_values",
    "testvalue",
    "track_provenance",
    "uninstall_theano",
    "unload_ipython_extension",
    "watching",
]
__version__ = "0.1.0.dev0"
