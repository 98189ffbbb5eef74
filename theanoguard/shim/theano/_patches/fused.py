"""Run a fused operation in Python on whole arrays instead of element by element."""

from functools import reduce, wraps

import numpy as np
from pytensor.graph.basic import Constant
from pytensor.scalar.basic import Add, Cast, Composite, Mul, discrete_dtypes
from pytensor.tensor.elemwise import CAReduce, Elemwise
from pytensor.tensor.utils import import_func_from_string

from . import Patch


def ufunc_of(node):
    """Return a function of arrays that computes a node of a fused operation."""
    op, (output, *others) = node.op, node.outputs
    if isinstance(op, Composite):
        return OnArrays(op)
    if isinstance(op, Cast):
        return np.asarray  # every result is converted to the output's dtype anyway
    spec = getattr(op, "nfunc_spec", None)
    function = import_func_from_string(spec[0]) if spec and not others else None
    if function is not None and isinstance(op, Add | Mul):
        return lambda *values: reduce(function, values)
    if function is None or spec[1] != len(node.inputs):
        return np.frompyfunc(op.impl, len(node.inputs), len(node.outputs))
    is_float = output.dtype.startswith("float")
    if is_float and isinstance(function, np.ufunc) and node.inputs[0].dtype in discrete_dtypes:
        # Without a dtype, NumPy returns float16 for small integers.
        return lambda *values: function(*values, dtype=output.dtype)
    return function


class OnArrays:
    """A fused operation as a function of arrays, with the attribute `nout` of a ufunc.

    Parameters
    ----------
    composite : Composite
    """

    def __init__(self, composite):
        fgraph = composite.fgraph
        self.inputs, self.outputs = fgraph.inputs, fgraph.outputs
        self.nout = len(fgraph.outputs)
        self.steps = [(node, ufunc_of(node)) for node in fgraph.toposort()]
        self.constants = {x: x.data for x in fgraph.variables if isinstance(x, Constant)}

    def __call__(self, *values):
        """Return the result, or a tuple of them."""
        known = dict(zip(self.inputs, values, strict=True)) | self.constants
        for node, function in self.steps:
            results = function(*(known[x] for x in node.inputs))
            results = results if len(node.outputs) > 1 else [results]
            for output, result in zip(node.outputs, results, strict=True):
                known[output] = np.asarray(result, dtype=output.dtype)
        results = tuple(known[x] for x in self.outputs)
        return results if self.nout > 1 else results[0]


_prepare_node = Elemwise.prepare_node


@wraps(_prepare_node)
def prepare_node(self, node, storage_map, compute_map, impl):
    """Prepare a node; a fused one computes on arrays."""
    is_fused = isinstance(self.scalar_op, Composite)
    if is_fused and impl == "py" and len(node.inputs) + len(node.outputs) <= 32:
        self.ufunc = self.ufunc or OnArrays(self.scalar_op)
    return _prepare_node(self, node, storage_map, compute_map, impl)


_reduce = CAReduce.perform
# What a fused reduction does with its terms, by what it starts from.
REDUCTIONS = {0: np.add, 1: np.multiply}


@wraps(_reduce)
def reduce_terms(self, node, inputs, outputs):
    """Sum or multiply; a fused reduction computes the term of the first element as well.

    NumPy starts a reduction of objects from the first element as it is, so PyTensor's
    ``sum(exp(x))`` does not take the exponential of that one.  `DebugMode` then finds that the C
    code, which is right, has another result.
    """
    if not isinstance(self.scalar_op, Composite):
        return _reduce(self, node, inputs, outputs)
    start = self.scalar_op.identity
    terms = OnArrays(self.scalar_op)(start, *inputs)
    total = REDUCTIONS[start].reduce(terms, axis=self.axis, dtype=terms.dtype)
    outputs[0][0] = np.asarray(total, dtype=node.outputs[0].dtype)


PATCHES = [
    Patch(Elemwise, "prepare_node", prepare_node),
    Patch(CAReduce, "perform", reduce_terms),
]
