"""Theano's ``theano.tensor.type``."""

from pytensor.tensor.type import TensorType as PyTensorType

from .._standin import SameAs


class _TensorTypeMeta(SameAs, type(PyTensorType)):
    """Calling ``TensorType`` gives PyTensor's type; its instances are those of PyTensor's."""

    def __call__(cls, dtype, broadcastable, name=None, sparse_grad=False):
        """Return the type of tensors of `dtype` with this broadcast pattern.

        In PyTensor the second argument is a static shape, where a 0 is a length.
        """
        return PyTensorType(dtype, shape=[bool(b) for b in broadcastable], name=name)

    def __instancecheck__(cls, instance):
        # PyTensor's type of sparse matrices is a tensor type, which Theano's is not.
        return PyTensorType in type(instance).__mro__ and not hasattr(instance, "format")

    def __subclasscheck__(cls, subclass):
        # Asking PyTensor's class would ask its subclasses, and so this one again.
        return PyTensorType in subclass.__mro__


class TensorType(PyTensorType, metaclass=_TensorTypeMeta):
    """The type of tensors of one dtype and one broadcast pattern."""

    stands_for = PyTensorType

    def __new__(cls):
        """Make what a pickle of Theano's asks for: PyTensor's type."""
        return object.__new__(PyTensorType)
