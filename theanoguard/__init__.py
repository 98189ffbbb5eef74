"""theanoguard finds bad numbers inside compiled PyTensor graphs and explains them.

The public names are listed in ``__init__.pyi``.  A name loads its module when it is first used, so
that the command line and the pytest plugin start without PyTensor.
"""

import importlib
import itertools
import warnings

import lazy_loader

from theanoguard import _hooks, _releases
from theanoguard._arguments import did_you_mean

__version__ = "0.1.0.dev0"

_load, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

_MOVED = {
    "explain": ("explain_exception",),
    "log": ("EventLog", "read_log"),
    "monitor": ("DetectNan", "MonitorMode", "Stepper", "detect_nan", "step_in_terminal"),
    "ops": ("Assert", "Print", "register_operation"),
    "records": (
        *("Comparison", "Exact", "Explanation", "Finding", "GuardEvent", "GuardSummary"),
        *("Inspection", "Precision", "TheanoguardError"),
    ),
    "shim": ("install_theano", "uninstall_theano"),
    "view": ("min_informative_str", "pp", "profile_nodes", "pydotprint"),
}
"""Names that were here, by the module where they are."""


def __getattr__(name: str) -> object:
    for module, names in _MOVED.items():
        if name in names:
            home = f"theanoguard.{module}"
            note = f"{name} is in {home}: write `from {home} import {name}`"
            warnings.warn(note, DeprecationWarning, stacklevel=2)
            return getattr(importlib.import_module(home), name)
    try:
        return _load(name)
    except ImportError as error:
        raise _releases.explained(error) from error
    except AttributeError:
        known = [*__all__, *itertools.chain(*_MOVED.values())]
        raise AttributeError(
            f"theanoguard has no {name!r}{did_you_mean(name, known)}", name=name
        ) from None


_hooks.start()
