"""Small helpers of ``theano.gof``."""

import hashlib
import sys
from collections import Counter
from functools import wraps
from pathlib import Path

from pytensor.graph.utils import MetaObject, Scratchpad
from pytensor.utils import hash_from_code

from .._standin import StandIn

object2 = MetaObject
scratchpad = Scratchpad


class StandsFor(type(MetaObject)):
    """Counts another class, `stands_for` in a class's body, as its own, with its instances."""

    def __instancecheck__(cls, instance):
        other = vars(cls).get("stands_for")
        return isinstance(instance, other) if other else super().__instancecheck__(instance)

    def __subclasscheck__(cls, subclass):
        other = vars(cls).get("stands_for")
        # ABCMeta asks all subclasses of a class: this one, which is one itself, would make its
        # bases those of every class that it stands for.
        if other is None or sys._getframe(1).f_globals["__name__"] == "abc":
            return super().__subclasscheck__(subclass)
        meant = subclass.stands_for if isinstance(subclass, StandIn) else subclass
        return all(issubclass(c, other) for c in (meant if isinstance(meant, tuple) else (meant,)))


def hashtype(self):
    """Return a hash of the class of an object, the same in each process."""
    cls = type(self)
    name = f"{cls.__module__}.{cls.__name__}".encode()
    return int.from_bytes(hashlib.md5(name).digest()[:7], "big")


class TestValueError(AttributeError):
    """A variable has no test value: Theano 1.0.5 raises its base class."""

    __test__ = False  # pytest would collect it by its name


class D:
    """An object with the attributes that it is given."""

    def __init__(self, **d):
        self.__dict__.update(d)


def memoize(f):
    """Keep what a function returns for each set of arguments, which are hashable."""
    cache = {}

    def remembering(*args, **kwargs):
        key = (args, tuple(kwargs.items()))
        if key not in cache:
            cache[key] = f(*args, **kwargs)
        return cache[key]

    return remembering


def deprecated(filename, msg=""):
    """Make a function print a warning at its first call."""

    def decorator(f):
        told = []

        @wraps(f)
        def telling(*args, **kwargs):
            if not told:
                print(f"WARNING: {filename}.{f.__name__} deprecated. {msg}")
                told.append(True)
            return f(*args, **kwargs)

        return telling

    return decorator


def toposort(prereqs_d):
    """Return the keys of a dict in an order in which each follows the elements of its value."""
    left = {key: set(before) for key, before in prereqs_d.items()}
    order = []
    ready = [key for key, before in left.items() if not before]
    while ready:
        order.extend(ready)
        for key in ready:
            del left[key]
        for before in left.values():
            before.difference_update(ready)
        ready = [key for key, before in left.items() if not before]
    if left:
        raise Exception(
            "Cannot sort topologically: there might be cycles, prereqs_d does not have a key for "
            "each element or some orderings contain invalid elements."
        )
    return order


class Keyword:
    """A constant that shows its name."""

    def __init__(self, name, nonzero=True):
        self.name = name
        self.nonzero = nonzero

    def __bool__(self):
        return self.nonzero

    def __repr__(self):
        return f"<{self.name}>"


ABORT = Keyword("ABORT", False)
RETRY = Keyword("RETRY", False)
FAILURE = Keyword("FAILURE", False)
ANY_TYPE = Keyword("ANY_TYPE")
FALL_THROUGH = Keyword("FALL_THROUGH")
simple_types = (int, str, float, bool, type(None), Keyword)


def unique(x):
    """Whether no element comes twice."""
    return len(set(x)) == len(x)


def hist(coll):
    """Return a dict from each element to how often it comes."""
    return dict(Counter(coll))


@deprecated("theano.gof.utils", msg="Use a_theano_variable.auto_name instead")
def give_variables_names(variables):
    """Give names to the variables that have none, or another's, and return them."""
    counts = Counter(variable.name for variable in variables)
    unnamed = [v for v in variables if not v.name or counts[v.name] > 1]
    for i, variable in enumerate(unnamed):
        variable.name = f"{variable.name or ''}_{i}"
    if not unique([str(v) for v in variables]):
        raise ValueError(
            "Not all variables have unique names. Maybe you've named some of the variables "
            "identically"
        )
    return variables


def remove(predicate, coll):
    """Return the elements for which `predicate` is false."""
    return [x for x in coll if not predicate(x)]


def hash_from_file(file_path):
    """Return the SHA256 hash of a file's content."""
    return hash_from_code(Path(file_path).read_bytes())
