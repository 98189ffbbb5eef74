"""The guard on the JAX backend: what the checks find comes back as one array with each call.

A JAX function changes nothing and has no order, so that no check can write into a ledger or stop
the call.  Each graph, also that of a loop, gets one output more: its *status*, a matrix of
integers with one row per check.  A :class:`Status` makes it of all the values that the plan keeps,
and of the statuses of the nodes with an inner graph; a loop carries its status from step to step.
Nothing else is changed.  The host looks at the status when the call has ended.  Only when a row
says that a value was bad, that place is computed once more, by a function compiled for it, which
gives the details.  ``code.py`` has what JAX traces for these operations.
"""

import copy
import importlib
import importlib.util
import warnings
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Apply
from pytensor.tensor.random.type import RandomType
from pytensor.tensor.type import TensorType

from theanoguard._provenance import watch_rewriting
from theanoguard._pytensor import JAXLinker, Scan, with_status
from theanoguard.explain.describe import kind_of
from theanoguard.guard.graph.checks import (
    FOUND,
    INDEX,
    CheckedGraph,
    Checks,
    CompiledOp,
    Place,
    Writer,
    counts_of,
)
from theanoguard.guard.graph.runtime import GuardedLinker, JittedRuntime
from theanoguard.guard.policy import Counts

STATUS = TensorType("int32", (None, None))

# Columns of a row.  After them stand the steps of the loops, outermost first.
BAD = 0
# Of a call: the bits of the largest magnitude (NaN is the largest), in one or two words.
LARGEST = 1
# Of the details of one place, after the columns from SIZE to INDEX, which are those of a ledger.
# The element that is the first bad one is held in two words for its real and two for its imaginary
# part; after that stands the shape of the value.
WORDS = INDEX + 1
FIRST = WORDS + 1
SHAPE = FIRST + 4


class Status(CompiledOp):
    """The status of a graph: of the values that it computes, and of the loops and bodies in it.

    Parameters
    ----------
    nan, inf, big : bool
    limit : float
        As in :class:`~theanoguard.guard.policy.Policy`.
    rows : tuple of int
        The checks of the first inputs.  The other inputs are the statuses of nodes.
    depth : int
        How many loops within loops are in the graph.
    """

    __props__ = ("nan", "inf", "big", "limit", "rows", "depth")

    def __init__(self, nan, inf, big, limit, rows, depth):
        self.nan = nan
        self.inf = inf
        self.big = big
        self.limit = limit
        self.rows = rows
        self.depth = depth

    def make_node(self, *inputs):
        return Apply(self, list(inputs), [STATUS()])


class NoStatus(CompiledOp):
    """The status of a loop that has not begun: a row that counts its steps, and those inside.

    Parameters
    ----------
    rows : int
    depth : int
        As in :class:`Status`, with the loop itself.
    """

    __props__ = ("rows", "depth")

    def __init__(self, rows, depth):
        self.rows = rows
        self.depth = depth

    def make_node(self):
        return Apply(self, [], [STATUS()])


class CarryStatus(CompiledOp):
    """Takes over into the status of a loop what a step has been the first to find.

    Parameters
    ----------
    depth : int
        As in :class:`NoStatus`.
    """

    __props__ = ("depth",)

    def __init__(self, depth):
        self.depth = depth

    def make_node(self, carried, of_step):
        return Apply(self, [carried, of_step], [STATUS()])


@dataclass(frozen=True)
class Detail:
    """What is asked of a function that gives the details of one place.

    Parameters
    ----------
    row : int
    ndim : int
        Of the value.
    """

    row: int
    ndim: int


class StatusGraph(CheckedGraph):
    """A graph whose last output is its status.

    Parameters
    ----------
    inputs, outputs : list of Variable
    order : list of Apply
    rows : list of int
        Which check each row of the status is of.
    depth : int
        As in :class:`Status`.
    """

    def __init__(self, inputs, outputs, order, rows, depth):
        super().__init__(inputs, outputs, order)
        self.rows = rows
        self.depth = depth


class StatusChecks(Checks):
    """The graph of a function that gives its status, and where each check stands."""

    def __init__(self, fgraph, order, policy, inner_graphs):
        self.inside = {}  # of each rebuilt op: the rows of its status, and its depth
        super().__init__(fgraph, order, policy, inner_graphs)

    def new_writer(self, fgraph, ledger, frames, loops):
        return StatusWriter(self, fgraph, ledger, frames, loops)

    def rebuilt(self, op, graphs, loop):
        new = with_status(op, graphs)
        rows = [row for graph in graphs for row in graph.rows]
        depth = max(graph.depth for graph in graphs)
        self.inside[id(new)] = (rows, depth) if loop is None else ([loop, *rows], depth + 1)
        return new

    def new_ledger(self):
        """Return what says whether the last call has found something."""
        return np.zeros((1, 1), bool)


class StatusWriter(Writer):
    """Writes a graph that gives its status."""

    def __init__(self, checks, fgraph, ledger, frames, loops):
        super().__init__(checks, fgraph, ledger, frames, loops)
        # PyTensor's linker puts copies in the place of shared random states, in the graph too.
        for variable in fgraph.inputs:
            if is_shared_random(variable):
                self._new[variable] = variable.type(variable.name)
        self._inputs = [self._new[variable] for variable in fgraph.inputs]
        self._checked = []
        self._rows = []
        self._statuses = []
        self._inner_rows = []
        self._depth = 0
        self._body_of = None
        if frames and isinstance(frames[-1].node.op, Scan):
            self._body_of = frames[-1].node.op
            self._carried = STATUS("carried")
            self._inputs.insert(len(self._inputs) - self._body_of.info.n_non_seqs, self._carried)

    def count_step(self, row, first):
        """(The status of a loop counts its steps by itself.)"""

    def write(self, node, op, with_ledger):
        if not with_ledger:
            super().write(node, op, with_ledger)
            return
        rows, depth = self._checks.inside.pop(id(op))
        inputs = [self._get(v) for v in node.inputs]
        if isinstance(op, Scan):
            at = len(inputs) - op.info.n_non_seqs - op.info.n_nit_sot
            inputs[at:at] = self._append(NoStatus(len(rows), depth).make_node())
        outputs = [*(v.clone() for v in node.outputs), STATUS()]
        *outputs, status = self._append(Apply(op, inputs, outputs))
        self._new.update(zip(node.outputs, outputs, strict=True))
        self._statuses.append(status)
        self._inner_rows += rows
        self._depth = max(self._depth, depth)

    def check(self, variable, output=0):
        if is_shape_alone(self._fgraph, variable):
            return
        row = self._checks.add_row(Place(variable, self._frames, output, self._loops))
        self._rows.append(row)
        self._checked.append(self._new[variable])

    def graph(self):
        policy = self._checks.policy
        op = Status(
            policy.nan, policy.inf, policy.big, policy.limit, tuple(self._rows), self._depth
        )
        [status] = self._append(op.make_node(*self._checked, *self._statuses))
        if self._body_of is not None:
            carry = CarryStatus(self._depth + 1)
            [status] = self._append(carry.make_node(self._carried, status))
        outputs = [*(self._get(v) for v in self._fgraph.outputs), status]
        rows = [*self._rows, *self._inner_rows]
        return StatusGraph(self._inputs, outputs, self._order, rows, self._depth)


def is_shape_alone(fgraph, variable):
    """Whether an input gives the length of arrays and nothing else: for JAX it is no array."""
    readers = [node for node, _ in fgraph.clients[variable]] if variable.owner is None else []
    return bool(readers) and all(type(n.op).__name__ == "JAXShapeTuple" for n in readers)


def is_shared_random(variable):
    return isinstance(variable, SharedVariable) and isinstance(variable.type, RandomType)


class JaxRuntime(JittedRuntime):
    """The guard of one function that JAX compiles.

    Parameters
    ----------
    policy : Policy
    recorder : Recorder
    checks : StatusChecks
    storage_map : dict of Variable to list
    run : callable
        Takes the values of the inputs, and returns those of the outputs and the status, as
        ``found_first`` in ``code.py`` gives it.
    compile_detail : callable
        ``compile_detail(detail)`` returns a function that takes the values of the inputs, and
        returns the status with the details of that place.
    """

    def __init__(self, policy, recorder, checks, storage_map, run, compile_detail):
        super().__init__(policy, recorder, checks, storage_map)
        self.rows = checks.graph.rows
        self.depth = checks.graph.depth
        self._run = run
        self._detailed = lru_cache(maxsize=16)(compile_detail)
        self.status = None

    def run(self, *values):
        """Run the function, and see whether it has found something."""
        *results, status = self._run(*values[:-1])
        status = np.asarray(status)  # (waits for the end of the call)
        if status.item(0):
            self.ledger[0, FOUND] = True
            self.status = status[1:].reshape(len(self.rows), -1)
        return results

    def settle(self):
        """Report what the status tells, in the order of the schedule of the graph."""
        status, self.status = self.status, None
        self.ledger[0, FOUND] = False
        self.seen = {}
        found = [
            (self.rows[i], status[i], [int(s) for s in status[i, status.shape[1] - self.depth :]])
            for i in np.flatnonzero(status[:, BAD])
        ]
        for row, record, steps in sorted(found, key=lambda one: self._when(one[0], one[2])):
            place = self.places[row]
            if self.follows(place):
                continue
            counts, shape = self._details(row, record)
            role = "node" if place.variable.owner is not None else self.role(place.variable)
            self.report(place, counts, shape, steps[: len(place.loops)], role)

    def _when(self, row, steps):
        """Return a key that sorts checks as one thread would run them."""
        key = []
        for loop, step in zip(self.places[row].loops, steps, strict=False):
            key += [loop, step]
        return [*key, row]

    def _details(self, row, record):
        """Compute a place once more; return its `Counts` and its shape."""
        variable = self.places[row].variable
        ndim = getattr(variable.type, "ndim", 0)
        status = self._detailed(Detail(row, ndim))(*[cell[0] for cell in self.cells.values()])
        details = np.asarray(status)[self.rows.index(row)]
        shape = tuple(int(n) for n in details[SHAPE : SHAPE + ndim])
        if details[BAD]:
            return counts_of(details, first_bad(details, variable.type.dtype), shape), shape
        # Compiled for itself, the place was rounded to a value that is not bad.
        largest = float_of(record[LARGEST : len(record) - self.depth])
        size = int(np.prod(shape))
        return Counts(kind_of(largest), (), largest, size, 0, 0, 0, 0), shape

    def values_before(self):
        return {
            v: np.asarray(value, v.type.dtype) if isinstance(v.type, TensorType) else value
            for v, value in super().values_before().items()
        }


def float_of(words):
    """Return the floating number that is held in one or two words."""
    return np.ascontiguousarray(words).view(f"float{32 * len(words)}").item()


def first_bad(record, dtype):
    """Return the first bad element of the place of which a row holds the details."""
    n_words = int(record[WORDS])
    real, imag = (record[at : at + n_words] for at in (FIRST, FIRST + 2))
    kind = np.dtype(dtype).kind
    if kind in "iu":
        return np.ascontiguousarray(real).view(f"{kind}{4 * n_words}").item()
    return float_of(real) if kind == "f" else complex(float_of(real), float_of(imag))


class JaxGuardLinker(GuardedLinker, JAXLinker):
    """A ``JAXLinker`` whose functions are guarded.

    Raises
    ------
    ImportError
        If JAX is not installed.
    """

    def __init__(self, policy, recorder, allow_gc=None):
        if importlib.util.find_spec("jax") is None:
            raise ImportError(
                "backend='jax' needs JAX, which is not installed.\n"
                "Install it with: pip install 'theanoguard[jax]'"
            )
        super().__init__(policy, recorder, allow_gc)

    def compiled(self, order, input_storage, storage_map):
        code = importlib.import_module("theanoguard.guard.jax.code")  # how operations are traced
        random = [v for v in self.fgraph.inputs if is_shared_random(v)]
        if random:
            warnings.warn(
                f"{random}: random states of JAX are not NumPy's. The function draws from a copy "
                "of its own, and does not change the shared variable.",
                UserWarning,
                stacklevel=2,
            )
        for variable in random:
            shared = storage_map[variable]
            at = next(i for i, cell in enumerate(input_storage) if cell is shared)
            storage_map[variable] = input_storage[at] = [copy.deepcopy(shared[0])]
        self.create_thunk_inputs(storage_map)  # (makes JAX's states of them)
        with watch_rewriting():
            checks = StatusChecks(self.fgraph, order, self.policy, code.inner_graphs)

        def compile_detail(detail):
            traced = self.fgraph_convert(checks.graph, input_storage, {}, detail=detail)
            return self.jit_compile(lambda *values: traced(*values)[-1])

        guard = JaxRuntime(
            self.policy,
            self.recorder,
            checks,
            storage_map,
            self.jit_compile(
                code.found_first(self.fgraph_convert(checks.graph, input_storage, {}))
            ),
            compile_detail,
        )
        return guard, guard.run
