"""The mode that checks operations and rewrites against each other."""

import numpy as np
from pytensor.compile.debug.debugmode import DebugMode
from pytensor.configdefaults import config
from pytensor.tensor.type import TensorType


class Flag:
    """A class attribute that is read from the configuration each time.

    Parameters
    ----------
    name : str
        Of the setting.
    separator : str, optional
        Between the elements of a setting that is a list.
    """

    def __init__(self, name, separator=None):
        self.name = name
        self.separator = separator

    def __get__(self, mode, cls=None):
        value = getattr(config, self.name)
        return value.split(self.separator) if self.separator else value


FLAGS = {
    "stability_patience": Flag("DebugMode__patience"),
    "check_c_code": Flag("DebugMode__check_c"),
    "check_py_code": Flag("DebugMode__check_py"),
    "check_isfinite": Flag("DebugMode__check_finite"),
    "require_matching_strides": Flag("DebugMode__check_strides"),
    "check_preallocated_output": Flag("DebugMode__check_preallocated_output", ":"),
}
_init = DebugMode.__init__


def init_debugmode(self, *args, check_c=None, check_py=None, **kwargs):
    """Make a DebugMode; `check_c` and `check_py` are ``check_c_code`` and ``check_py_code``."""
    for name, value in (("check_c_code", check_c), ("check_py_code", check_py)):
        if value is not None:
            kwargs.setdefault(name, value)
    _init(self, *args, **kwargs)


_is_valid_value = TensorType.is_valid_value


def is_valid_value(self, data, strict=True):
    """Whether an array is of a type, and finite where `filter_checks_isfinite` is set."""
    if not _is_valid_value(self, data, strict):
        return False
    return not self.filter_checks_isfinite or bool(np.isfinite(data).all())
