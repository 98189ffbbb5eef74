"""`Rebroadcast`, an Op that PyTensor has no counterpart of: it can take a static 1 away."""

import numpy as np
from pytensor.gradient import DisconnectedType
from pytensor.graph.basic import Apply
from pytensor.link.c.op import COp
from pytensor.tensor.basic import as_tensor_variable
from pytensor.tensor.basic import constant as tensor_constant


class Rebroadcast(COp):
    """Change the broadcast pattern of a tensor, and nothing else.

    Parameters
    ----------
    *axis : tuple of (int, bool)
        An axis, and whether it shall be broadcastable.  Where it shall, the length of the axis
        is checked when the function runs.
    """

    view_map = {0: [0]}
    check_input = False
    __props__ = ("items",)

    def __init__(self, *axis):
        for which, is_broadcastable in axis:
            if not isinstance(which, int | np.integer):
                raise TypeError(f"Rebroadcast needs integer axes. Got {which}")
            if not isinstance(is_broadcastable, bool | np.bool_):
                raise TypeError(
                    f"Rebroadcast needs bool for new broadcast pattern. Got {is_broadcastable}"
                )
        self.items = tuple(sorted((int(a), bool(b)) for a, b in axis))

    @property
    def axis(self):
        """The pattern as a dictionary, as Theano keeps it."""
        return dict(self.items)

    def __str__(self):
        pattern = ["?"] * (1 + max(self.axis, default=-1))
        for which, is_broadcastable in self.items:
            pattern[which] = str(int(is_broadcastable))
        return f"{type(self).__name__}{{{','.join(pattern)}}}"

    def make_node(self, x):
        """Give `x` another type with the same values."""
        x = as_tensor_variable(x)
        if self.axis and x.type.ndim <= max(self.axis):
            raise ValueError("Trying to rebroadcast non-existent dimension")
        shape = list(x.type.shape)
        for which, is_broadcastable in self.items:
            if is_broadcastable:
                shape[which] = 1
            elif shape[which] == 1:
                shape[which] = None
        return Apply(self, [x], [x.type.clone(shape=shape)()])

    def perform(self, node, inputs, outputs):
        """Check the lengths and pass the array on."""
        (x,) = inputs
        for which, is_broadcastable in self.items:
            if is_broadcastable and x.shape[which] != 1:
                raise ValueError(
                    f"Dimension {which} in Rebroadcast's input was supposed to be 1 "
                    f"(got {x.shape[which]} instead)"
                )
        outputs[0][0] = x

    def c_code(self, node, name, inputs, outputs, sub):
        """Check the lengths and pass the array on."""
        (x,), (out,) = inputs, outputs
        checks = "".join(
            f"""
            if (PyArray_DIMS({x})[{which}] != 1) {{
                PyErr_Format(PyExc_ValueError, "Dimension {which} in Rebroadcast's input was"
                    " supposed to be 1 (got %lld instead)",
                    (long long)PyArray_DIMS({x})[{which}]);
                {sub["fail"]}
            }}
            """
            for which, is_broadcastable in self.items
            if is_broadcastable
        )
        return f"{checks} Py_XDECREF({out}); {out} = {x}; Py_XINCREF({out});"

    def c_code_cache_version(self):
        """Return the version of the C code."""
        return (1,)

    def infer_shape(self, *args):
        """Return the shape of the input, with ones where they are asked for."""
        shapes = args[-1]  # the graph comes first in PyTensor 3.0
        one = tensor_constant(1, dtype="int64")
        return [tuple(one if self.axis.get(i) else s for i, s in enumerate(shapes[0]))]

    def pullback(self, inputs, outputs, cotangents):
        """Give the cotangent the pattern that the input has."""
        (x,), (cotangent,) = inputs, cotangents
        return [Rebroadcast(*((a, x.type.broadcastable[a]) for a in self.axis))(cotangent)]

    def pushforward(self, inputs, outputs, tangents):
        """Give the tangent the new pattern."""
        (tangent,) = tangents
        return [tangent if isinstance(tangent.type, DisconnectedType) else self(tangent)]


def rebroadcast(x, pattern):
    """Apply a `Rebroadcast` for those axes of `x` where the pattern is not the asked one already.

    One that `x` comes from is taken into it.

    Parameters
    ----------
    x : TensorVariable or TensorLike
        Any tensor.
    pattern : dict of int to bool
        Whether an axis shall be broadcastable.
    """
    x = as_tensor_variable(x)
    if pattern and max(pattern) >= x.type.ndim:
        raise ValueError("Trying to rebroadcast non-existent dimension")
    if x.owner is not None and isinstance(x.owner.op, Rebroadcast):
        pattern = x.owner.op.axis | pattern
        x = x.owner.inputs[0]
    changed = [(a, b) for a, b in pattern.items() if x.type.broadcastable[a] != b]
    return Rebroadcast(*changed)(x) if changed else x


def replacements(pairs):
    """Give what replaces a tensor the broadcast pattern of what it replaces.

    Parameters
    ----------
    pairs : iterable of (variable, variable)
        What is replaced, and what by.

    Returns
    -------
    list of (variable, variable)

    Raises
    ------
    TypeError
        If a dimension would have to become broadcastable.
    """
    return [(old, replacement(old, new)) for old, new in pairs]


def replacement(old, new):
    """Return `new` with the broadcast pattern of `old`, where both are tensors."""
    wanted = getattr(old, "broadcastable", None)
    given = getattr(new, "broadcastable", wanted)
    if wanted == given or len(wanted) != len(given) or old.type.dtype != new.type.dtype:
        return new
    if any(one and not other for one, other in zip(wanted, given, strict=True)):
        raise TypeError(
            f"Cannot convert Type {new.type} (of Variable {new}) into Type {old.type}.\n"
            "Use theano.tensor.addbroadcast for the dimensions whose length is 1."
        )
    return rebroadcast(new, dict(enumerate(wanted)))
