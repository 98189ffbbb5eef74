"""The checks as operations of a graph, for backends that compile a whole graph at once.

After all rewriting, a :class:`Check` is put behind every output that the plan keeps.  Nothing
reads its output, so that no reference to an array is passed on: the order of the graph is all
that places it.  What it finds goes into the *ledger*, a matrix of float64 with one row per
check; which row is carried as data, so that a check is compiled once for each kind of array, not
for each place.  ``guard/numba/code.py`` has what Numba compiles for these operations.
"""

from dataclasses import dataclass

import numpy as np
from pytensor.graph.basic import Apply, Constant
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.scalar.basic import ScalarConstant, int64
from pytensor.tensor.type import TensorType

from theanoguard._event import Frame
from theanoguard._pytensor import IfElse, Scan, with_inner_graphs
from theanoguard.explain.describe import kind_of
from theanoguard.guard.plan import Plan, gives_clean
from theanoguard.guard.policy import Counts

LEDGER = TensorType("float64", (None, None))

# Columns of the first row: how many checks have found something, and whether the first stops.
FOUND, RAISING = 0, 1
# Columns of a check's row.  After them stand the rows of the loops around it, their steps, and
# the shape of the value.
ORDER, SIZE, N_NAN, N_POSINF, N_NEGINF, N_BIG, INDEX, REAL, IMAG, NDIM, N_LOOPS = range(11)
COLUMNS = 11
# Column of a loop's row: how many steps it has begun.
STEP = 1


class CompiledOp(Op):
    """An operation that exists in a graph for one backend alone, which compiles it."""

    def perform(self, node, inputs, output_storage):
        raise NotImplementedError(f"{type(self).__name__} is compiled, never run in Python")


class Check(CompiledOp):
    """Notes in the ledger when a value is bad.

    Parameters
    ----------
    nan, inf, big : bool
    limit : float
        As in :class:`~theanoguard.guard.policy.Policy`.
    """

    __props__ = ("nan", "inf", "big", "limit")

    def __init__(self, nan, inf, big, limit):
        self.nan = nan
        self.inf = inf
        self.big = big
        self.limit = limit

    def make_node(self, value, ledger, row):
        return Apply(self, [value, ledger, row], [int64()])


class CountStep(CompiledOp):
    """Counts in the ledger that a loop begins: anew (`first`), or its next step.

    Parameters
    ----------
    first : bool
    """

    __props__ = ("first",)
    view_map = {0: [0]}

    def __init__(self, first):
        self.first = first

    def make_node(self, ledger, row):
        return Apply(self, [ledger, row], [ledger.type()])


def has_elements(variable):
    """Whether values can be looked at: no booleans, and no lists of arrays."""
    return not is_list(variable) and getattr(variable.type, "dtype", "bool") != "bool"


def is_list(variable):
    """Whether a variable is a list of arrays."""
    return hasattr(variable.type, "ttype")


def number(row):
    """Return the constant that names a row."""
    return ScalarConstant(int64, row)


class CheckedGraph(FunctionGraph):
    """A graph with checks, which keeps the order in which it was written.

    The order of the graph without checks is that of its in-place operations.

    Parameters
    ----------
    inputs, outputs : list of Variable
    order : list of Apply
    """

    def __init__(self, inputs, outputs, order):
        super().__init__(inputs, outputs, clone=False)
        self.order = order

    def toposort(self):
        """Return the nodes in the order in which they run."""
        known = set(self.order)  # PyTensor 3.0 may put copies behind the outputs of a loop
        return [*self.order, *(node for node in super().toposort() if node not in known)]


@dataclass(frozen=True)
class Place:
    """Where a check stands.

    Parameters
    ----------
    variable : Variable
        What is checked, in the graph without checks.
    frames : tuple of Frame
        The inner graphs around it, outermost first, without their steps.
    output : int
        Which output of its node.
    loops : tuple of int
        Rows of the loops among the frames, outermost first.
    """

    variable: object
    frames: tuple = ()
    output: int = 0
    loops: tuple = ()

    @property
    def node(self):
        """The node of the function's own graph in which the check stands; None for an input."""
        return self.frames[0].node if self.frames else self.variable.owner

    def frames_at(self, steps):
        """Return the frames with the steps that their loops were at."""
        steps = iter(steps)
        return [
            Frame(f.node, f.fgraph, next(steps) if isinstance(f.node.op, Scan) else None)
            for f in self.frames
        ]


class Checks:
    """The graph of a function with its checks, and where each of them stands.

    Parameters
    ----------
    fgraph : FunctionGraph
        As it was rewritten; it is left as it is.
    order : list of Apply
        In which its nodes run.
    policy : Policy
    inner_graphs : callable
        ``inner_graphs(node)`` returns those that the backend compiles on their own.

    Attributes
    ----------
    graph : CheckedGraph
        Takes the ledger as its last input.
    plan : Plan
    plans : list of Plan
        Of this graph and of those inside of it.
    stored : dict of Variable to (int or None)
        Shared variables that are not checked here but by whoever calls the graph, since a value
        that has been checked need not be checked again; and which output becomes its value.
    places : list of Place or None
        By row of the ledger; None for loops, and for the first row.
    width : int
        Columns of the ledger.
    """

    def __init__(self, fgraph, order, policy, inner_graphs):
        self.policy = policy
        self._inner_graphs = inner_graphs
        self.places = [None]
        self.plans = []
        self.op = Check(policy.nan, policy.inf, policy.big, policy.limit)
        ledger = LEDGER("ledger")
        self.plan, inner = self._plan(fgraph, order, is_inner=False)
        self.graph, _ = self._checked(self.plan, inner, ledger, (), ())
        known = [place for place in self.places if place is not None]
        depth = max((len(place.loops) for place in known), default=0)
        ndim = max((getattr(place.variable.type, "ndim", 0) for place in known), default=0)
        self.width = COLUMNS + 2 * depth + ndim

    def new_ledger(self):
        """Return an empty ledger."""
        ledger = np.zeros((len(self.places), self.width))
        ledger[0, RAISING] = self.policy.action == "raise"
        for row, place in enumerate(self.places):
            if place is not None:
                ledger[row, N_LOOPS] = len(place.loops)
                ledger[row, COLUMNS : COLUMNS + len(place.loops)] = place.loops
        return ledger

    def add_row(self, place=None):
        """Add a row to the ledger and return its number."""
        self.places.append(place)
        return len(self.places) - 1

    def new_writer(self, fgraph, ledger, frames, loops):
        """Return what writes a graph with checks."""
        return Writer(self, fgraph, ledger, frames, loops)

    def rebuilt(self, op, graphs, loop):
        """Return an op like `op` with these inner graphs, which have checks.

        Its loop, if it is one, has the row `loop`.
        """
        return with_inner_graphs(op, graphs)

    def _plan(self, fgraph, order, is_inner=True):
        """Return the plan of a graph whose inputs are clean, and what its nodes have inside.

        That is a dict of nodes to lists of the same: plans, and what is inside again.
        """
        inner = {
            node: [self._plan(graph, graph.toposort()) for graph in graphs]
            for node in order
            if (graphs := self._inner_graphs(node))
        }
        return self._new_plan(fgraph, order, inner, is_inner), inner

    def _new_plan(self, fgraph, order, inner, is_inner, clean_inputs=True):
        plan = Plan(
            fgraph,
            order,
            self.policy,
            updated=() if is_inner else fgraph.inputs,
            guarded_inner=inner,
            whole_inner={
                n for n, bodies in inner.items() if gives_clean(n, [p for p, _ in bodies])
            },
            clean_inputs=clean_inputs,
            is_inner=is_inner,
        )
        check_chosen_only(plan)
        return plan

    def _checked(self, plan, inner, ledger, frames, loops):
        """Return the graph of a plan with its checks, and whether it has any."""
        self.plans.append(plan)
        writer = self.new_writer(plan.fgraph, ledger, frames, loops)
        if frames and isinstance(frames[-1].node.op, Scan):
            writer.count_step(loops[-1], first=False)
        if not frames:
            self.stored = plan.kept
        for variable in plan.inputs:
            if variable not in self.stored and has_elements(variable):
                writer.check(variable)
        rows = len(self.places)
        for node in plan.order:
            op, ledger_needed = node.op, False
            if node in inner:
                clean = all(map(plan.holds_clean, node.inputs))
                op, loop = self._checked_op(node, inner[node], frames, loops, clean)
                ledger_needed = op is not node.op
                if ledger_needed and loop is not None:
                    writer.count_step(loop, first=True)
            writer.write(node, op, ledger_needed)
            for i, variable in plan.nodes[node].checked():
                if has_elements(variable):
                    writer.check(variable, i)
        return writer.graph(), len(self.places) > rows

    def _checked_op(self, node, bodies, frames, loops, clean_inputs):
        """Return the op with checks in its inner graphs, and the row that counts its steps.

        The op itself where there is nothing to check inside.
        """
        rows = len(self.places)
        loop = None
        if isinstance(node.op, Scan):
            loop = self.add_row()
            loops = (*loops, loop)
        checked, needed = [], False
        for plan, inner in bodies:
            if not clean_inputs:
                plan = self._new_plan(plan.fgraph, plan.order, inner, True, clean_inputs=False)
            inside = (*frames, Frame(node, plan.fgraph, None))
            new_graph, has_checks = self._checked(plan, inner, LEDGER(), inside, loops)
            checked.append(new_graph)
            needed |= has_checks
        if not needed:
            del self.places[rows:]
            return node.op, None
        return self.rebuilt(node.op, checked, loop), loop


class Writer:
    """Writes a graph with checks, node by node.

    Parameters
    ----------
    checks : Checks
    fgraph : FunctionGraph
        The graph without checks.
    ledger : Variable
        Its further input.
    frames, loops : tuple
        As in :class:`Place`.
    """

    def __init__(self, checks, fgraph, ledger, frames, loops):
        self._checks = checks
        self._fgraph = fgraph
        self._inputs = [*fgraph.inputs, ledger]
        self._ledger = ledger  # what the next check writes into
        self._frames = frames
        self._loops = loops
        self._order = []
        self._new = {variable: variable for variable in fgraph.inputs}

    def _get(self, variable):
        return variable if isinstance(variable, Constant) else self._new[variable]

    def _append(self, node):
        self._order.append(node)
        return node.outputs

    def count_step(self, row, first):
        """Count a step of the loop with this row, or let it begin."""
        [self._ledger] = self._append(CountStep(first).make_node(self._ledger, number(row)))

    def write(self, node, op, with_ledger):
        """Write a node, with another op that may take the ledger too."""
        inputs = [self._get(v) for v in node.inputs]
        if with_ledger:
            inputs.append(self._ledger)
        outputs = self._append(Apply(op, inputs, [v.clone() for v in node.outputs]))
        self._new.update(zip(node.outputs, outputs, strict=True))

    def check(self, variable, output=0):
        """Put a check behind a variable that has been written."""
        row = self._checks.add_row(Place(variable, self._frames, output, self._loops))
        self._append(self._checks.op.make_node(self._new[variable], self._ledger, number(row)))

    def graph(self):
        """Return what has been written."""
        outputs = [self._get(v) for v in self._fgraph.outputs]
        return CheckedGraph(self._inputs, outputs, self._order)


def floor_to(limit, dtype):
    """Return the largest number of a floating type that is not above `limit`."""
    largest = np.finfo(dtype).max
    if limit >= largest:
        return largest
    nearest = dtype(limit)
    return nearest if float(nearest) <= limit else np.nextafter(nearest, dtype(0))


def counts_of(record, value, shape):
    """Return the `Counts` in the columns of a row from `SIZE` to `INDEX`.

    Parameters
    ----------
    record : array
    value : number
        The first bad element.
    shape : tuple of int
        Of the array.
    """
    return Counts(
        kind=kind_of(value),
        index=tuple(int(i) for i in np.unravel_index(int(record[INDEX]), shape)),
        value=value,
        size=int(record[SIZE]),
        n_nan=int(record[N_NAN]),
        n_posinf=int(record[N_POSINF]),
        n_neginf=int(record[N_NEGINF]),
        n_big=int(record[N_BIG]),
    )


def check_chosen_only(plan):
    """Let what only an ``IfElse`` may choose be checked once it has been chosen.

    These backends compute both branches where they have not been made graphs of their own.

    Parameters
    ----------
    plan : Plan
        Changed in place.
    """
    if not any(isinstance(node.op, IfElse) for node in plan.order):
        return
    needed = {v.owner for v in plan.fgraph.outputs}
    for node in reversed(plan.order):
        if node in needed:
            certain = node.inputs[:1] if isinstance(node.op, IfElse) else node.inputs
            needed.update(v.owner for v in certain)
    for node in plan.order:
        node_plan = plan.nodes[node]
        if node not in needed:
            node_plan.checks = []
        elif isinstance(node.op, IfElse):
            node_plan.checks = [
                i for i, v in enumerate(node.outputs) if plan.dropped.get(v) in (None, "branch")
            ]
