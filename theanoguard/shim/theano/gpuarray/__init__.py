"""Theano's GPU backend as it is on a machine without a GPU: there to be asked.

Only what the shim answers is in files.  The other modules hold names to import, from a table.
"""

import sys
from types import ModuleType

from ._standin import NAMES, as_gpuarray_variable, infer_context_name, stand_ins

pygpu = None
pygpu_activated = False
theano_gpu_is_already_active = False


def init_dev(dev, name=None, preallocate=None):
    """Raise an AttributeError, as 1.0.5 does without pygpu."""
    raise AttributeError(
        f"There is no GPU backend, so device {dev!r} cannot be used.\n"
        "Remove the call: everything runs on the CPU."
    )


def use(
    device,
    force=False,
    default_to_move_computation_to_gpu=True,
    move_shared_to_gpu=True,
    preallocate=None,
):
    """Raise an AttributeError, as 1.0.5 does without pygpu; without a device, do nothing."""
    if device:
        init_dev(device, preallocate=preallocate)


for _name in NAMES:
    if f"{__name__}.{_name}" not in sys.modules:
        _module = ModuleType(f"{__name__}.{_name}", "Names of Theano's GPU backend.")
        vars(_module).update(stand_ins(_module.__name__))
        sys.modules[_module.__name__] = globals()[_name] = _module
vars(globals()["basic_ops"]).update(
    as_gpuarray_variable=as_gpuarray_variable, infer_context_name=infer_context_name
)
