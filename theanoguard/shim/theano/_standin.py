"""Classes of Theano's that make PyTensor's Ops by Theano's arguments."""


class StandIn(type):
    """The type of a class that stands for PyTensor's: their instances and subclasses are its own.

    The class names PyTensor's one in ``stands_for``; its own instances are functions of
    variables.
    """

    def __instancecheck__(cls, instance):
        return isinstance(instance, cls.stands_for) or super().__instancecheck__(instance)

    def __subclasscheck__(cls, subclass):
        return issubclass(subclass, cls.stands_for) or super().__subclasscheck__(subclass)
