"""Theano's ``theano.tensor.var``."""

from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant
from pytensor.tensor import variable

from .._standin import SameAs


class _TensorVariableType(SameAs, type(variable.TensorVariable)):
    def __instancecheck__(cls, instance):
        if cls is not TensorVariable:
            return super().__instancecheck__(instance)
        return isinstance(instance, variable.TensorVariable) and not isinstance(
            instance, SharedVariable | Constant
        )

    def __subclasscheck__(cls, subclass):
        if cls is not TensorVariable:
            return super().__subclasscheck__(subclass)
        # Asking PyTensor's class would ask its subclasses, and so this one again.
        return variable.TensorVariable in subclass.__mro__ and not issubclass(
            subclass, SharedVariable | Constant
        )


class TensorVariable(variable.TensorVariable, metaclass=_TensorVariableType):
    """A variable: neither a shared one nor a constant, which are instances of PyTensor's class."""

    stands_for = variable.TensorVariable


class AsTensorError(TypeError):
    """A value cannot become a tensor."""


def equal_slices(s1, s2):
    """Whether two slices have the same start, stop and step."""
    return (s1.start, s1.stop, s1.step) == (s2.start, s2.stop, s2.step)
