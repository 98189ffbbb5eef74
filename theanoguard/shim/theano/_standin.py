"""Classes of Theano's that make PyTensor's Ops by Theano's arguments."""

from pytensor.tensor.blockwise import Blockwise


class SameAs(type):
    """The type of a class that equals the ones of PyTensor named in its ``stands_for``.

    Programs ask for ``type(x) == theano.tensor.TensorVariable``, or look ``type(x)`` up in a dict.
    In a dict the class is the first of several that it stands for.
    """

    def __eq__(cls, other):
        return other is cls or any(other is named for named in _named(cls))

    def __hash__(cls):
        return next(map(hash, _named(cls)), type.__hash__(cls))


def _named(cls):
    """Return what the class itself stands for, and not a class that it is derived from."""
    named = vars(cls).get("stands_for", ())
    return named if isinstance(named, tuple) else (named,)


def _alike(self, other):
    # (An operation of PyTensor's may know that it is the same.)
    return vars(self) == vars(other) if type(self) is type(other) else NotImplemented


class StandIn(SameAs):
    """The type of a class that stands for PyTensor's: their instances and subclasses are its own.

    The class names PyTensor's one in ``stands_for``; its own instances are functions of
    variables, equal if their arguments are.  An Op for stacks of matrices counts as the one that it
    applies to each matrix.
    """

    def __new__(mcs, name, bases, namespace):
        """Make the class."""
        alike = {} if bases else {"__eq__": _alike, "__hash__": lambda self: hash(type(self))}
        return super().__new__(mcs, name, bases, alike | namespace)

    def __instancecheck__(cls, instance):
        core = instance.core_op if isinstance(instance, Blockwise) else instance
        return isinstance(core, cls.stands_for) or super().__instancecheck__(instance)

    def __subclasscheck__(cls, subclass):
        return issubclass(subclass, cls.stands_for) or super().__subclasscheck__(subclass)
