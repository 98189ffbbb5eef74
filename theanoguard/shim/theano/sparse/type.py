"""Theano's ``theano.sparse.type``."""

from pytensor.sparse.type import SparseTensorType

from .._standin import SameAs

imported_scipy = True


class _SparseTypeMeta(SameAs, type(SparseTensorType)):
    """Calling ``SparseType`` gives PyTensor's type; its instances are those of PyTensor's."""

    def __call__(cls, format, dtype):
        """Return the type of sparse matrices of this format and dtype."""
        if format not in cls.format_cls:
            raise NotImplementedError(f'unsupported format "{format}" not in list', cls.format_cls)
        if dtype not in cls.dtype_set:
            raise NotImplementedError(f'unsupported dtype "{dtype}" not in list', cls.dtype_set)
        return SparseTensorType(format, dtype)

    def __instancecheck__(cls, instance):
        return SparseTensorType in type(instance).__mro__

    def __subclasscheck__(cls, subclass):
        return SparseTensorType in subclass.__mro__


class SparseType(SparseTensorType, metaclass=_SparseTypeMeta):
    """The type of sparse matrices of one format and one dtype."""

    stands_for = SparseTensorType

    dtype_set = set(SparseTensorType.dtype_specs_map)

    def __new__(cls):
        """Make what a pickle of Theano's asks for: PyTensor's type."""
        return object.__new__(SparseTensorType)
