"""A plugin of pytest that gives Theano what projects import and Theano had until 0.9."""

import importlib
import sys
from types import ModuleType

import pytest
import six

MODULES = {
    "theano.compat.six": six,
    "theano.compat.six.moves": six.moves,
    # The old GPU back-end, on a machine without a GPU.
    "theano.sandbox.cuda": {"cuda_available": False, "cuda_enabled": False},
    "theano.sandbox.cuda.dnn": {"dnn_available": lambda: False, "dnn_pool": None},
    "theano.sandbox.cuda.type": {"CudaNdarrayType": type("CudaNdarrayType", (), {})},
}
# Names that have moved: their module, and where each is now.
MOVED = {
    "theano.tensor.signal.downsample": (
        "theano.tensor.signal.pool",
        {"max_pool_2d": "pool_2d", "DownsampleFactorMax": "Pool"},
    )
}


@pytest.hookimpl(trylast=True)
def pytest_configure():
    """Add the modules to Theano, which a shim may be."""
    moved = {
        name: {old: getattr(importlib.import_module(home), new) for old, new in names.items()}
        for name, (home, names) in MOVED.items()
    }
    for name, values in {**MODULES, **moved}.items():
        parent, _, own = name.rpartition(".")
        importlib.import_module(parent)
        module = values
        if isinstance(values, dict):
            module = ModuleType(name)
            vars(module).update(values)
        sys.modules[name] = module
        setattr(sys.modules[parent], own, module)
