"""Theano's ``theano.tensor.sharedvar``."""

from pytensor.tensor.sharedvar import TensorSharedVariable


class _ZeroDimensional(type):
    """The type of a class whose instances are the shared tensors without dimensions."""

    def __instancecheck__(cls, instance):
        return isinstance(instance, TensorSharedVariable) and instance.ndim == 0


class ScalarSharedVariable(metaclass=_ZeroDimensional):
    """A shared number, which is a shared tensor without dimensions."""

    def __new__(cls, *args, **kwargs):
        """Return PyTensor's variable; without arguments, the one that a pickle fills."""
        if not args and not kwargs:
            return object.__new__(TensorSharedVariable)
        return TensorSharedVariable(*args, **kwargs)
