"""The operations that the guard writes into a graph for Numba alone; ``code.py`` compiles them."""

import pytensor.scalar as ps
from pytensor.graph.basic import Apply
from pytensor.tensor.elemwise import Elemwise

from theanoguard.guard.graph.checks import Check, CompiledOp


class Stop(CompiledOp):
    """Ends the call where a check has found something."""

    __props__ = ()

    def make_node(self, ledger):
        return Apply(self, [ledger], [ps.int64()])


class Until(CompiledOp):
    """The condition that ends a ``while`` loop, or a check in it that has found something."""

    __props__ = ()

    def make_node(self, condition, ledger):
        return Apply(self, [condition, ledger], [condition.type()])


class CheckIf(Check):
    """A check of what is known to be clean unless a condition holds."""

    def make_node(self, value, ledger, row, condition):
        return Apply(self, [value, ledger, row, condition], [ps.int64()])


class InBlocks(CompiledOp):
    """An elementwise operation, block by block, and whether anything bad was read or written.

    So that a large array passes from memory once, not twice.

    Parameters
    ----------
    elemwise : Elemwise
    check : Check
        Says what is bad.
    inputs, outputs : tuple of int
        Which of them are looked at.
    """

    __props__ = ("elemwise", "check", "inputs", "outputs")

    def __init__(self, elemwise, check, inputs, outputs):
        self.elemwise = elemwise
        self.check = check
        self.inputs = inputs
        self.outputs = outputs

    def make_node(self, *inputs):
        outputs = self.elemwise.make_node(*inputs).outputs
        return Apply(self, list(inputs), [*(v.type() for v in outputs), ps.bool()])

    def into(self, node):
        """Return a node of the same operation that writes into arrays, its last inputs."""
        scalars = [ps.get_scalar_type(v.type.dtype)() for v in (*node.inputs, *node.outputs[:-1])]
        results = self.elemwise.scalar_op.make_node(*scalars[: len(node.inputs)]).outputs
        places = {i: len(node.inputs) + i for i in range(len(results))}
        op = Elemwise(ps.Composite(scalars, results), inplace_pattern=places)
        return op.make_node(*(v.type() for v in (*node.inputs, *node.outputs[:-1])))
