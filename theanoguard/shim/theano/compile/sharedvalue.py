"""Shared variables, and the functions that make them of values."""

import numpy as np
from pytensor.compile import sharedvalue
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable
from pytensor.graph.type import Type
from pytensor.graph.utils import add_tag_trace
from pytensor.link.c.type import Generic, generic


def shared_constructor(ctor, remove=False):
    """Have `shared` try a function first; it raises TypeError for values that are not for it."""
    if remove:
        shared.constructors.remove(ctor)
    else:
        shared.constructors.append(ctor)
    return ctor


def shared(value, name=None, strict=False, allow_downcast=None, **kwargs):
    """Make a shared variable of a value.

    Parameters
    ----------
    value : object
        Of what is no array, number or sparse matrix, as a list, the variable is generic.
    name : str, optional
    strict, allow_downcast : bool
        What becomes of later values of another dtype.
    kwargs
        What only some constructors take: `borrow`, `broadcastable`, `target`.

    Raises
    ------
    TypeError
        If no constructor takes the value and these arguments.
    """
    if isinstance(value, Variable):
        raise TypeError(
            "Shared variable constructor needs numeric values and not symbolic variables."
        )
    if isinstance(value, np.generic) and "broadcastable" in kwargs:
        value = np.asarray(value)  # PyMC3 3.11 relies on Theano-PyMC, whose test values are arrays
    for constructor in reversed(shared.constructors):
        try:
            variable = constructor(
                value, name=name, strict=strict, allow_downcast=allow_downcast, **kwargs
            )
        except TypeError:
            continue
        except MemoryError as error:
            error.args = (*error.args, "you might consider using 'theano.shared(..., borrow=True)'")
            raise
        return add_tag_trace(variable)
    raise TypeError(
        "No suitable SharedVariable constructor could be found. Are you sure all kwargs are "
        "supported? We do not support the parameter dtype or type. "
        f'value="{value}". parameters="{kwargs}"'
    )


shared.constructors = []


@shared_constructor
def generic_constructor(value, name=None, strict=False, allow_downcast=None):
    """Make a shared variable of anything."""
    return SharedVariable(generic, value, strict, allow_downcast, name=name)


@shared_constructor
def pytensor_constructor(
    value, name=None, strict=False, allow_downcast=None, target="cpu", broadcastable=None, **kwargs
):
    """Make a shared variable as PyTensor does; `target` is refused where it is not "cpu"."""
    if target != "cpu":
        raise TypeError("not for cpu")
    if broadcastable is not None:
        kwargs["shape"] = tuple(1 if b else None for b in broadcastable)
    variable = sharedvalue.shared_constructor(
        value, name=name, strict=strict, allow_downcast=allow_downcast, **kwargs
    )
    if isinstance(variable.type, Generic) and kwargs:
        raise TypeError(f"a generic shared variable has no {', '.join(kwargs)}")
    return variable


_init = SharedVariable.__init__
PARAMETERS = ("name", "type", "value", "strict", "allow_downcast", "container")


def init_shared(self, *args, **kwargs):
    """Make a shared variable; the name may come first, where PyTensor's has the type."""
    if args and not isinstance(args[0], Type):
        kwargs |= dict(zip(PARAMETERS, args, strict=False))
        args = ()
    _init(self, *args, **kwargs)


_default_update = SharedVariable.default_update


def forget_default_update(self):
    """Take the default update away."""
    _default_update.fset(self, None)


default_update = property(_default_update.fget, _default_update.fset, forget_default_update)
