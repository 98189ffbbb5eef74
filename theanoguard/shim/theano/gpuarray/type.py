"""Types of arrays on a GPU, of which there are none."""

from ..compile.sharedvalue import SharedVariable
from ..gof import Constant, Variable


class ContextNotDefined(ValueError):
    """A GPU was asked for by a name that no GPU has."""


def get_context(name):
    """Raise a `ContextNotDefined`."""
    raise ContextNotDefined(f"context name {name} not defined")


def list_contexts():
    """Return the names of the GPUs: there are none."""
    return {}.keys()


def reg_context(name, ctx):
    """Raise a RuntimeError: there is no GPU backend."""
    raise RuntimeError(f"There is no GPU backend, so no context {name!r}.")


class GpuArrayType:
    """The type of an array on a GPU; it cannot be made."""

    def __init__(self, dtype, broadcastable, context_name=None, name=None):
        get_context(context_name)


class GpuArrayVariable(Variable):
    """A variable on a GPU; there is none."""


class GpuArrayConstant(Constant):
    """A constant on a GPU; there is none."""


class GpuArraySharedVariable(SharedVariable):
    """A shared variable on a GPU; there is none."""


def gpuarray_shared_constructor(value, name=None, strict=False, allow_downcast=None, **kwargs):
    """Raise a TypeError, after which `theano.shared` asks the next constructor."""
    raise TypeError("There is no GPU to put a shared variable on.")
