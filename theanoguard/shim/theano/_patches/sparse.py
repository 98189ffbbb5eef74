"""Tell dense variables from sparse ones."""

from pytensor.sparse import basic
from pytensor.sparse.type import SparseTensorType

from . import Patch

is_a_tensor = basic._is_dense_variable


def is_dense_variable(x):
    """Whether a variable is a dense tensor.

    In the shim, the type of sparse matrices is a subclass of the tensor type.  So PyTensor's own
    test takes them for dense, and in 3.0 the gradient of a sparse matrix times a vector fails.
    """
    return is_a_tensor(x) and not isinstance(x.type, SparseTensorType)


PATCHES = [Patch(basic, "_is_dense_variable", is_dense_variable)]
