"""A plugin of pytest that gives Theano what pylearn2 imports and Theano had until 0.9."""

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


@pytest.hookimpl(trylast=True)
def pytest_configure():
    """Add the modules to Theano, which a shim may be."""
    for name, values in MODULES.items():
        parent, _, own = name.rpartition(".")
        importlib.import_module(parent)
        module = values
        if isinstance(values, dict):
            module = ModuleType(name)
            vars(module).update(values)
        sys.modules[name] = module
        setattr(sys.modules[parent], own, module)
