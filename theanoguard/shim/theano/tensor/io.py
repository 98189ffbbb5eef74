"""Theano's ``theano.tensor.io``: arrays from files."""

import numpy as np
from pytensor.graph.basic import Apply, Constant
from pytensor.graph.op import Op
from pytensor.graph.type import Type

from .basic import tensor


class _Path(Type):
    """The type of a file's name."""

    def filter(self, data, strict=False, allow_downcast=None):
        """Take anything, as Theano's ``Generic`` does."""
        return data

    def __eq__(self, other):
        return type(self) is type(other)

    def __hash__(self):
        return hash(type(self))


class LoadFromDisk(Op):
    """Read an array from a file in NumPy's format ``.npy`` when the function runs."""

    __props__ = ("dtype", "broadcastable", "mmap_mode")

    def __init__(self, dtype, broadcastable, mmap_mode=None):
        if mmap_mode not in (None, "c"):
            raise ValueError(
                f"The only supported values for mmap_mode are None and 'c', got {mmap_mode}"
            )
        self.dtype = np.dtype(dtype)
        self.broadcastable = tuple(broadcastable)
        self.mmap_mode = mmap_mode

    def make_node(self, path):
        """Take the name of the file, or a variable of it."""
        if isinstance(path, str):
            path = Constant(_Path(), path)
        return Apply(self, [path], [tensor(self.dtype, broadcastable=self.broadcastable)])

    def perform(self, node, inputs, outputs):
        """Read the file."""
        (path,) = inputs
        if path.endswith(".npz"):
            raise ValueError(f"Expected a .npy file, got {path} instead")
        result = np.load(path, mmap_mode=self.mmap_mode, allow_pickle=False)
        if result.dtype != self.dtype:
            raise TypeError(f"Expected an array of type {self.dtype}, got {result.dtype} instead")
        outputs[0][0] = result


def load(path, dtype, broadcastable, mmap_mode=None):
    """Return a variable that is read from a ``.npy`` file whenever the function runs."""
    return LoadFromDisk(dtype, broadcastable, mmap_mode)(path)


# Message passing needs mpi4py in Theano, too, and its Ops come from nowhere else.
mpi_enabled = False
