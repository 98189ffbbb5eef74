"""The guard on the Numba backend: the checks are compiled into the jitted function.

No check stops the function, since Numba frees nothing of what a function holds that raises: the
call goes on and is reported when it has ended.  It is stopped only where what follows could do
harm with a bad value, and a ``while`` loop ends with the step that has found one.
"""

import importlib

import numpy as np
import pytensor.scalar as ps
from pytensor.compile.ops import DeepCopyOp
from pytensor.graph.basic import Constant
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.basic import (
    Alloc,
    AllocEmpty,
    Join,
    MakeVector,
    ScalarFromTensor,
    Split,
    TensorFromScalar,
)
from pytensor.tensor.blas import BatchedDot, Gemv
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.math import Argmax, Dot
from pytensor.tensor.shape import Reshape, Shape, Shape_i
from pytensor.tensor.subtensor import IncSubtensor, Subtensor

from theanoguard._provenance import watch_rewriting
from theanoguard._pytensor import (
    IfElse,
    NumbaLinker,
    Scan,
    advanced_increment_ops,
    advanced_subtensor_ops,
)
from theanoguard.guard.graph.checks import (
    COLUMNS,
    FOUND,
    IMAG,
    NDIM,
    ORDER,
    REAL,
    Checks,
    Place,
    Writer,
    counts_of,
    is_list,
    number,
)
from theanoguard.guard.graph.runtime import GuardedLinker, JittedRuntime
from theanoguard.guard.numba.ops import CheckIf, InBlocks, Stop, Until
from theanoguard.guard.plan import first_readers, may_be_large, runs_in_blocks
from theanoguard.guard.reporting import Tripped

# Operations that compute whatever they are given, without harm, and end: unlike many routines of
# linear algebra or random draws when they are given NaN.
STEADY = (
    Alloc,
    AllocEmpty,
    Argmax,
    BatchedDot,
    CAReduce,
    CheckAndRaise,
    CumOp,
    DeepCopyOp,
    DimShuffle,
    Dot,
    Elemwise,
    Gemv,
    IfElse,
    IncSubtensor,
    Join,
    MakeVector,
    Reshape,
    ScalarFromTensor,
    Shape,
    Shape_i,
    Split,
    Subtensor,
    TensorFromScalar,
    ps.ScalarOp,
    *advanced_increment_ops,
    *advanced_subtensor_ops,
)
# Of these, the ones that take integers for numbers, not for sizes or places in memory.
COUNTING = (
    CAReduce,
    CheckAndRaise,
    DeepCopyOp,
    DimShuffle,
    Elemwise,
    ScalarFromTensor,
    TensorFromScalar,
    ps.ScalarOp,
)


def is_steady(op):
    """Whether an operation, and all that it consists of, is in the table `STEADY`."""
    if hasattr(op, "core_op"):
        return is_steady(op.core_op)
    if isinstance(op, Scan) and op.info.as_while:
        return False
    if isinstance(op, STEADY):
        return True
    inner = getattr(op, "fgraph", None)
    return inner is not None and all(is_steady(node.op) for node in inner.apply_nodes)


def is_number(variable):
    """Whether a variable holds floating-point numbers."""
    return getattr(variable.type, "dtype", "int64") not in ps.discrete_dtypes


class NumbaChecks(Checks):
    """The graph of a function with its checks, as Numba compiles it.

    Attributes
    ----------
    waiting : dict of int to Variable
        Inputs that are checked where they are first read, by row of the ledger.
    """

    def __init__(self, fgraph, order, policy, inner_graphs):
        self._order = order
        self.waiting = {}
        super().__init__(fgraph, order, policy, inner_graphs)

    def new_writer(self, fgraph, ledger, frames, loops):
        return NumbaWriter(self, fgraph, ledger, frames, loops, () if frames else self._order)


class NumbaWriter(Writer):
    """Writes a graph with checks for Numba.

    Parameters
    ----------
    checks, fgraph, ledger, frames, loops
        As for :class:`Writer`.
    order : sequence of Apply
        The nodes that may check what they read; none in an inner graph.
    """

    def __init__(self, checks, fgraph, ledger, frames, loops, order):
        super().__init__(checks, fgraph, ledger, frames, loops)
        self._raises = checks.policy.action == "raise"
        # Where each input may be checked block by block, by the node that reads it first.
        self._first_readers = {
            variable: node
            for variable, node in first_readers(fgraph.inputs, order).items()
            if runs_in_blocks(node)
        }
        self._rows = {}  # of inputs that wait for their first reader
        self._flags = {}  # of what a node has looked at block by block
        # What is no number and may have come from one: perhaps a wild place in memory.
        self._computed = {v for v in fgraph.inputs if frames and not is_number(v)}

    def write(self, node, op, with_ledger):
        if self._raises and not self._is_harmless(node, with_ledger):
            self._append(Stop().make_node(self._ledger))
        entering = [v for v in dict.fromkeys(node.inputs) if self._first_readers.get(v) is node]
        entering = [v for v in entering if v in self._rows]
        if entering:
            self._write_in_blocks(node, entering)
        else:
            super().write(node, op, with_ledger)

    def _write_in_blocks(self, node, entering):
        op = InBlocks(
            node.op,
            self._checks.op,
            tuple(node.inputs.index(v) for v in entering),
            tuple(i for i, v in enumerate(node.outputs) if may_be_large(v)),
        )
        *outputs, flag = self._append(op.make_node(*(self._get(v) for v in node.inputs)))
        self._new.update(zip(node.outputs, outputs, strict=True))
        self._flags.update({node.outputs[i]: flag for i in op.outputs})
        for variable in entering:
            self._check_if(variable, self._rows.pop(variable), flag)

    def _check_if(self, variable, row, flag):
        op = CheckIf(**self._checks.op._props_dict())
        self._append(op.make_node(self._new[variable], self._ledger, number(row), flag))

    def check(self, variable, output=0):
        flag = self._flags.get(variable)
        if flag is None and variable not in self._first_readers:
            super().check(variable, output)
            return
        row = self._checks.add_row(Place(variable, self._frames, output, self._loops))
        if flag is not None:
            self._check_if(variable, row, flag)
        else:
            self._rows[variable] = row
            self._checks.waiting[row] = variable

    def _is_harmless(self, node, with_ledger):
        """Whether a node can be run on whatever has been computed.

        One with a graph that takes the ledger has its own stops.
        """
        reads_computed = any(v in self._computed for v in node.inputs)
        if not isinstance(node.op, Shape | Shape_i) and (
            reads_computed or any(is_number(v) for v in node.inputs if not isinstance(v, Constant))
        ):
            self._computed.update(v for v in node.outputs if not is_number(v))
        if reads_computed and not isinstance(node.op, COUNTING):
            return False
        return with_ledger or is_steady(node.op)

    def graph(self):
        loop = self._frames[-1].node.op if self._frames else None
        if self._raises and isinstance(loop, Scan) and loop.info.as_while:
            condition = self._fgraph.outputs[-1]
            [ends] = self._append(Until().make_node(self._get(condition), self._ledger))
            self._new[condition] = ends
        return super().graph()


class NumbaRuntime(JittedRuntime):
    """The guard of one function that Numba compiles; the checks write into its ledger."""

    def __init__(self, policy, recorder, checks, storage_map):
        super().__init__(policy, recorder, checks, storage_map)
        self.waiting = checks.waiting
        self.lists = [v for v in self.plan.inputs if is_list(v)]
        self.prepares |= bool(self.lists)

    def begin(self):
        super().begin()
        for variable in self.lists:
            value = self.cells[variable][0]
            if self.policy.is_bad(value):
                self.report_value(variable, value, self.role(variable))

    def settle(self):
        """Report what the checks have written into the ledger, in the order of the run.

        What enters a call comes first, though it may have been checked later.
        """
        rows = np.flatnonzero(self.ledger[1:, ORDER]) + 1
        inside = [self.places[row].node is not None for row in rows]
        rows = rows[np.lexsort((self.ledger[rows, ORDER], inside))]
        found = self.ledger[rows]
        self.forget()
        for row, record in zip(rows, found, strict=True):
            place = self.places[row]
            begun, first = (COLUMNS + k * len(place.loops) for k in (1, 2))
            steps = [int(s) - 1 for s in record[begun:first]]
            shape = tuple(int(n) for n in record[first : first + int(record[NDIM])])
            element = VALUE_OF[np.dtype(place.variable.type.dtype).kind]
            value = element(record[REAL].item(), record[IMAG].item())
            counts = counts_of(record, value, shape)
            role = "node" if place.variable.owner is not None else self.role(place.variable)
            self.report(place, counts, shape, steps, role)

    def forget(self):
        """Make the ledger ready for the next call."""
        self.seen = {}
        self.ledger[1:, ORDER] = 0
        self.ledger[0, FOUND] = 0

    def failed(self, error, raise_other):
        try:
            if self.pending is None:
                self.check_waiting()
        except Tripped:
            self.forget()
        super().failed(error, raise_other)

    def check_waiting(self):
        """Check the inputs of a call that has ended before they were read."""
        for row, variable in self.waiting.items():
            value = self.cells[variable][0]
            if not self.ledger[row, ORDER] and self.policy.is_bad(value):
                self.report_value(variable, value, self.role(variable))


# How the two numbers that hold an element give it back, by the kind of its dtype.
VALUE_OF = {
    "f": lambda real, imag: real,
    "c": complex,
    "i": lambda high, low: (int(high) << 32) + int(low),
    "u": lambda high, low: (int(high) << 32) + int(low),
}


class NumbaGuardLinker(GuardedLinker, NumbaLinker):
    """A ``NumbaLinker`` whose functions are guarded."""

    def compiled(self, order, input_storage, storage_map):
        code = importlib.import_module("theanoguard.guard.numba.code")
        with watch_rewriting():
            checks = NumbaChecks(self.fgraph, order, self.policy, code.inner_graphs)
        guard = NumbaRuntime(self.policy, self.recorder, checks, storage_map)
        return guard, self.jit_compile(self.fgraph_convert(checks.graph))
