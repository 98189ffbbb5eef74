"""Classes of Theano's that make PyTensor's Ops by Theano's arguments."""

from pytensor.tensor.blockwise import Blockwise


class StandIn(type):
    """The type of a class that stands for PyTensor's: their instances and subclasses are its own.

    The class names PyTensor's one in ``stands_for``; its own instances are functions of
    variables.  An Op for stacks of matrices counts as the one that it applies to each matrix.
    """

    def __instancecheck__(cls, instance):
        core = instance.core_op if isinstance(instance, Blockwise) else instance
        return isinstance(core, cls.stands_for) or super().__instancecheck__(instance)

    def __subclasscheck__(cls, subclass):
        return issubclass(subclass, cls.stands_for) or super().__subclasscheck__(subclass)
