"""What is dense among PyTensor's variables."""

from pytensor.sparse import basic
from pytensor.sparse.type import SparseTensorType

from . import Patch

is_a_tensor = basic._is_dense_variable


def is_dense_variable(x):
    """Whether a variable is a dense tensor.

    The type of sparse matrices is a subclass of that of tensors here, so that PyTensor takes them
    for dense, and in 3.0 the gradient of a sparse matrix times a vector fails.
    """
    return is_a_tensor(x) and not isinstance(x.type, SparseTensorType)


PATCHES = [Patch(basic, "_is_dense_variable", is_dense_variable)]
