"""Types."""

from pytensor.graph import type as graph_type
from pytensor.link.c import type as c_type
from pytensor.utils import Singleton

from .utils import MethodNotDefined, StandsFor

PureType = graph_type.Type


def _missing(name):
    """Return a method that tells that a type does not have it."""

    def method(self, *args, **kwargs):
        raise MethodNotDefined(name, type(self), type(self).__name__)

    return method


class Type(c_type.CType, metaclass=StandsFor):
    """What values of a variable are like; see Theano's ``Type``.

    Other than PyTensor's, a type may lack ``filter`` and the methods that write C code.
    """

    stands_for = graph_type.Type
    filter = _missing("filter")
    c_declare = _missing("c_declare")
    c_init = _missing("c_init")
    c_extract = _missing("c_extract")
    c_sync = _missing("c_sync")

    def value_validity_msg(self, a):
        """Return a hint why a value is not valid."""
        return "none"


class SingletonType(Singleton, Type):
    """A type of which there is one instance."""
