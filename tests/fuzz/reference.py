"""What is an error, read a second time: the compiled graph, node by node, in Python.

Nothing here comes from the guard, but for how PyTensor 3.0 rewrites inner graphs.  Each node runs
by its operation's own code, out of place.
Every element of each output is compared with the elements of the operands that decide it:

- NaN is an error where no deciding element is NaN, and where it enters.
- An infinite or big element is an error where no deciding element is infinite or big, and where
  it enters with an input or a shared variable.  A constant, a copy and a choice are none.

With ``origin=False`` every NaN, infinite or big element of an output is an error.

A backend rounds otherwise than the code that runs here.  :meth:`Reference.judge_rounded` computes
the call several times with other rounding errors: what is in error each time is certain, and what
is in error now and then is possible.
"""

import copy
from collections import defaultdict
from dataclasses import dataclass, field, replace
from functools import reduce, singledispatch
from types import SimpleNamespace

import numpy as np
import pytensor
import pytensor.scalar as ps
import scipy.sparse
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.maker import FunctionMaker
from pytensor.compile.mode import Mode
from pytensor.compile.ops import DeepCopyOp, ViewOp
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Apply, Constant
from pytensor.scan.op import Scan
from pytensor.tensor import blas, subtensor
from pytensor.tensor.basic import (
    Alloc,
    AllocDiag,
    AllocEmpty,
    ExtractDiag,
    Join,
    MakeVector,
    ScalarFromTensor,
    Split,
    TensorFromScalar,
)
from pytensor.tensor.blockwise import OpWithCoreShape
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.extra_ops import CumOp, Repeat
from pytensor.tensor.math import Dot, Max, Min
from pytensor.tensor.shape import Reshape, Shape, Shape_i, SpecifyShape
from pytensor.tensor.special import LogSoftmax, Softmax
from pytensor.tensor.type import TensorType

from theanoguard._pytensor import inner_graphs_for_jax, inner_graphs_for_numba

# (Which elements of a shared variable count belongs to the definition of an error.)
from theanoguard.guard.partly import read_in_part

try:
    from pytensor.conditional.op import IfElse, LazyIfElse
except ImportError:  # before PyTensor 3.3
    from pytensor.ifelse import IfElse

    LazyIfElse = None

KINDS = ("nan", "inf", "big")
FLOATS = ("float16", "float32", "float64")
MOST_ELEMENTS = 64  # of a fused operation that are computed again, one by one
ROUNDED_RUNS = 24
MOST_CHANGED = 8  # elements of which is tried whether they matter
OTHER_VALUES = (0.7, -3.3)
ULPS = 8  # by which an operation may round otherwise

COPYING = (
    Alloc,
    AllocDiag,
    DeepCopyOp,
    DimShuffle,
    ExtractDiag,
    Join,
    MakeVector,
    Repeat,
    Reshape,
    ScalarFromTensor,
    SpecifyShape,
    Split,
    TensorFromScalar,
    ViewOp,
)
# (The operations for one vector of indices are no longer there in PyTensor 3.3.)
TAKING = tuple(
    getattr(subtensor, name)
    for name in ("Subtensor", "AdvancedSubtensor", "AdvancedSubtensor1")
    if hasattr(subtensor, name)
)
COPYING += TAKING
WRITING = tuple(
    getattr(subtensor, name)
    for name in ("IncSubtensor", "AdvancedIncSubtensor", "AdvancedIncSubtensor1")
    if hasattr(subtensor, name)
)


@dataclass(frozen=True)
class Rules:
    """What is bad, and where it is an error.

    Parameters
    ----------
    nan, inf, big : bool
        With `big`, an infinite element is bad as well.
    limit : float
    origin : bool
        Whether only what makes an infinite or big element is in error.
    integers : bool
        Whether integers may be big.
    inputs : bool
        Whether what enters is looked at.
    """

    nan: bool = True
    inf: bool = True
    big: bool = True
    limit: float = 1e10
    origin: bool = True
    integers: bool = False
    inputs: bool = True

    def kinds(self):
        """Return the kinds of element that are bad."""
        return [
            kind
            for kind, bad in (
                ("nan", self.nan),
                ("inf", self.inf or self.big),
                ("big", self.big),
            )
            if bad
        ]

    def mask(self, array, kind):
        """Return which elements of `array` are of this kind."""
        array = np.asarray(array)
        if array.dtype.kind in "iu":
            if kind == "big" and self.integers:
                return np.abs(array.astype("float64")) > self.limit
            return np.zeros(array.shape, bool)
        if array.dtype.kind not in "fc":
            return np.zeros(array.shape, bool)
        if kind == "nan":
            return np.isnan(array)
        infinite = np.isinf(array) & ~np.isnan(array)
        if kind == "inf":
            return infinite
        wide = array.astype("complex128" if array.dtype.kind == "c" else "float64")
        return (np.abs(wide) > self.limit) & ~infinite & ~np.isnan(array)

    def bad(self, array):
        """Return which elements of `array` are bad."""
        found = np.zeros(np.shape(array), bool)
        for kind in self.kinds():
            found |= self.mask(array, kind)
        return found


@dataclass
class Finding:
    """Elements of one value that are, or may be, in error.

    Parameters
    ----------
    role : {"node", "input", "shared", "constant"}
    name : str
        The node as it is printed, or the name of what enters.
    output : int
    path : tuple of (str, int or None)
        Operations with an inner graph, and the step, outermost first.
    certain, possible : ndarray of bool
        Elements in error, and those of which the definition leaves it open.
    value : ndarray
    follows : bool
        Whether something in error is among what the value was computed from.
    node : Apply or None
        What has made it.
    """

    role: str
    name: str
    output: int
    path: tuple
    certain: np.ndarray
    possible: np.ndarray
    value: np.ndarray
    follows: bool
    node: Apply | None = None

    @property
    def is_certain(self):
        return bool(self.certain.any())

    def __str__(self):
        at = np.argwhere(self.certain | self.possible)
        first = tuple(int(i) for i in at[0])
        where = "".join(f"{op} step {step}: " for op, step in self.path)
        sure = "" if self.is_certain else " (may be)"
        after = " (follows)" if self.follows else ""
        return (
            f"{where}{self.role} {self.name} output {self.output} {first} of "
            f"{self.value.shape}: {self.value[first]}, {len(at)} elements{sure}{after}"
        )


@dataclass
class Verdict:
    """What the reference has found in one call.

    Parameters
    ----------
    findings : list of Finding
        In an order in which the nodes can run.
    outputs : list of list
        Of the graph, updates included, in each run that was made.
    spoils : list of bool
        Whether, in each run, a bad element of an output was computed from one in error, by way of
        bad numbers alone.
    spoilt : set of Variable
        Whose bad elements were computed so, in the last run.
    """

    findings: list = field(default_factory=list)
    outputs: list = field(default_factory=list)
    spoils: list = field(default_factory=list)
    spoilt: set = field(default_factory=set)

    @property
    def certain(self):
        return [finding for finding in self.findings if finding.is_certain]

    def first(self):
        """Return the findings in error that follow from no other."""
        return [finding for finding in self.certain if not finding.follows]


def agreed(verdicts):
    """Return the verdict on a call from those on several runs of it.

    An element is in error for certain if it is so in each run, and it may be if it is, or may be,
    in one.
    """
    by_place = [
        {(f.role, f.name, f.output, f.path, f.value.shape): f for f in verdict.findings}
        for verdict in verdicts
    ]
    result = Verdict(
        outputs=[outs for verdict in verdicts for outs in verdict.outputs],
        spoils=[spoils for verdict in verdicts for spoils in verdict.spoils],
    )
    for place in dict.fromkeys(place for found in by_place for place in found):
        runs = [found.get(place) for found in by_place]
        there = [f for f in runs if f is not None]
        certain = np.logical_and.reduce([f.certain for f in there])
        if len(there) < len(runs):
            certain = np.zeros_like(certain)
        either = np.logical_or.reduce([f.certain | f.possible for f in there])
        follows = all(f.follows for f in there)
        result.findings.append(
            replace(there[0], certain=certain, possible=either & ~certain, follows=follows)
        )
    return result


# ---------------------------------------------------------------- running nodes


class Reference:
    """Runs one compiled function's graph by hand.

    Parameters
    ----------
    fn : Function
        The guarded one: its graph and the values of its shared variables are taken.
    rules : Rules
    impl : {"c", "py"}
        Which code of the operations to run.
    backend : {"c", "numba", "jax"}
        For which the graph has been compiled.
    """

    def __init__(self, fn, rules, impl, backend="c"):
        self.fn = fn
        self.backend = backend
        self.fgraph = fn.maker.fgraph
        self.rules = rules
        self.impl = impl
        self.inputs = set(self.fgraph.inputs)
        self.partly = read_in_part(self.fgraph)
        self.reads = defaultdict(list)
        for touch in (t for touches in self.partly.values() for t in touches if t.reads):
            self.reads[touch.node].append(touch)
        self.kernels = {}
        self.orders = {}
        self.inner_graphs = {}
        self.steps = {}
        self.given = {}
        self.rounding = None
        self.by_backend = set()
        self.followed = {}
        self.changed = None

    def judge(self, inputs):
        """Return the :class:`Verdict` on a call with these arguments."""
        given = iter(inputs)
        containers = zip(self.fgraph.inputs, self.fn.input_storage, strict=True)
        self.given = {
            v: copy_value(container.storage[0] if container.implicit else next(given))
            for v, container in containers
        }
        return self.run_once()

    def judge_rounded(self, names=()):
        """Judge the call that was judged last, whatever the operations round to.

        `names` are nodes that also run by the backend's own code, which computes some of what IEEE
        754 leaves no choice in otherwise: subnormal numbers, and inverse roots of an infinity.
        """
        verdicts = [self.run_once()]
        self.by_backend = set(names) if self.backend != "c" else set()
        if self.by_backend:
            verdicts.append(self.run_once())
        for seed in range(ROUNDED_RUNS):
            self.rounding = Rounding(seed)
            try:
                verdicts.append(self.run_once())
            finally:
                self.rounding = None
        self.by_backend = set()
        return agreed(verdicts)

    def run_once(self):
        verdict = Verdict()
        values, tainted = {}, set()
        with np.errstate(all="ignore"):
            for variable, value in self.given.items():
                values[variable] = copy_value(value)
                if self.enters(variable, value, verdict):
                    tainted.add(variable)
                    verdict.spoilt.add(variable)
            verdict.outputs = [self.evaluate(self.fgraph, values, tainted, (), verdict)[0]]
            for finding in verdict.findings:
                if finding.node is not None and self.may_be_discarded(finding.node):
                    self.leave_open(finding, verdict.outputs[0])
        verdict.spoils = [not verdict.spoilt.isdisjoint(self.fgraph.outputs)]
        return verdict

    def may_be_discarded(self, node):
        """Whether an operation that may discard elements follows a node."""
        if node not in self.followed:
            clients = defaultdict(list)
            for graph in (self.fgraph, *self.inner_graphs.values()):
                for reader in graph.apply_nodes:
                    for v in reader.inputs:
                        clients[v].append(reader)
            seen, todo = {node}, [node]
            while todo:
                for reader in (r for v in todo.pop().outputs for r in clients[v]):
                    if reader not in seen:
                        seen.add(reader)
                        todo.append(reader)
            # (a fused operation may have an output that shows what it discards itself)
            self.followed[node] = any(map(may_discard, seen))
        return self.followed[node]

    def leave_open(self, finding, outputs):
        """Leave open whether elements are in error that change no output if they are others."""
        for number, at in enumerate(np.argwhere(finding.certain)):
            at = tuple(at)
            if number >= MOST_CHANGED or not self.counts(finding, at, outputs):
                finding.certain[at], finding.possible[at] = False, True

    def counts(self, finding, at, outputs):
        """Whether the outputs change if one element has another value."""
        for value in OTHER_VALUES:
            self.changed = (finding.node, finding.path, finding.output, at, value)
            try:
                values = {v: copy_value(x) for v, x in self.given.items()}
                results, _ = self.evaluate(self.fgraph, values, set(), (), Verdict())
            except Exception:
                return True
            finally:
                self.changed = None
            if list(map(bits, results)) != list(map(bits, outputs)):
                return True
        return False

    def constants(self):
        """Return the constants of the graph with a bad element that is an error by itself."""
        kinds = [kind for kind in self.rules.kinds() if kind == "nan" or not self.rules.origin]
        return [
            v
            for node in self.fgraph.apply_nodes
            for v in node.inputs
            if isinstance(v, Constant)
            and any(self.rules.mask(a, kind).any() for a in arrays_in(v.data) for kind in kinds)
        ]

    def enters(self, variable, value, verdict):
        """Note the bad elements of an input; return whether there are any."""
        role = "shared" if isinstance(variable, SharedVariable) else "input"
        is_read = bool(self.fgraph.clients[variable])
        found = False
        for array in arrays_in(value) if self.rules.inputs else ():
            bad = self.rules.bad(array)
            if not bad.any():
                continue
            nothing = np.zeros_like(bad)
            is_whole = is_read and variable not in self.partly
            certain, possible = (bad, nothing) if is_whole else (nothing, bad)
            verdict.findings.append(
                Finding(role, variable.name, 0, (), certain, possible, array, False)
            )
            found = found or is_whole
        return found

    def enters_in_part(self, touch, values, verdict):
        """Note the bad elements that a node reads of a variable; return whether there are any."""
        value = values[touch.variable]
        bad = self.rules.bad(value) & touch.mask(values.__getitem__) if self.rules.inputs else False
        if np.any(bad):
            for f in verdict.findings:
                if (f.role, f.name) == ("shared", touch.variable.name):
                    f.certain, f.possible = f.certain | bad, f.possible & ~bad
        return bool(np.any(bad))

    def evaluate(self, fgraph, values, tainted, path, verdict):
        """Compute the outputs of a graph; return them, and which depend on an error.

        `values` and `tainted` begin with the inputs of the graph; only what the outputs need
        is computed, as far as lazy branches ask for it.
        """
        for node in self.order(fgraph, values, tainted, path, verdict):
            self.run(fgraph, node, values, tainted, path, verdict)
        outputs = [value_of(v, values) for v in fgraph.outputs]
        return outputs, [v in tainted for v in fgraph.outputs]

    def order(self, fgraph, values, tainted, path, verdict):
        """Return the nodes to run; where branches are lazy, those that are asked for."""
        if id(fgraph) not in self.orders:
            order = list(fgraph.toposort())
            lazy = any(isinstance(node.op, IfElse) for node in order)
            self.orders[id(fgraph)] = (order, lazy, fgraph)
        order, lazy, _ = self.orders[id(fgraph)]
        return self.demanded(fgraph, values) if lazy else order

    def demanded(self, fgraph, values):
        done, waiting = set(), list(reversed(fgraph.outputs))
        while waiting:  # (a recursion would be as deep as the graph)
            node = waiting[-1].owner
            if node is None or node in done:
                waiting.pop()
                continue
            needed = node.inputs
            if isinstance(node.op, IfElse):
                condition = node.inputs[0]
                is_known = condition.owner is None or condition.owner in done
                needed = (
                    branch_taken(node, value_of(condition, values)) if is_known else [condition]
                )
            missing = [v for v in needed if v.owner is not None and v.owner not in done]
            waiting += reversed(missing)
            if not missing:
                done.add(node)
                yield node

    def run(self, fgraph, node, values, tainted, path, verdict):
        """Compute one node and judge what it has made."""
        if isinstance(node.op, IfElse):
            taken = branch_taken(node, value_of(node.inputs[0], values))
            for out, v in zip(node.outputs, taken, strict=True):
                values[out] = value_of(v, values)
                if v in tainted or node.inputs[0] in tainted:
                    tainted.add(out)
                if v in verdict.spoilt:
                    verdict.spoilt.add(out)
            return
        ins = [value_of(v, values) for v in node.inputs]
        follows = any(v in tainted for v in node.inputs)
        spoils = not verdict.spoilt.isdisjoint(node.inputs)
        for touch in self.reads.get(node, ()) if fgraph is self.fgraph else ():
            enters = self.enters_in_part(touch, values, verdict)
            follows, spoils = follows or enters, spoils or enters
        stepper = None if self.has_own_code(node.op) else has_steps(node.op)
        if stepper is not None:
            outs, marks = stepper(self, node, ins, tainted, path, verdict)
        else:
            outs = self.compute(node, ins)
            if self.changed is not None and self.changed[:2] == (node, path):
                *_, index, at, other = self.changed
                outs[index] = np.array(outs[index])
                outs[index][at] = other
            marks = self.judge_node(node, ins, outs, follows, path, verdict)
        for variable, value, mark in zip(node.outputs, outs, marks, strict=True):
            values[variable] = value
            if mark or follows:
                tainted.add(variable)
            if (mark or spoils) and any(self.rules.bad(a).any() for a in arrays_in(value)):
                verdict.spoilt.add(variable)

    def judge_node(self, node, ins, outs, follows, path, verdict):
        """Append what the node has made; return, for each output, whether it is in error."""
        marks = [False] * len(outs)
        for index, value in enumerate(outs):
            if isinstance(node.op, AllocEmpty):
                continue
            arrays = list(arrays_in(value))
            for array in arrays:
                certain = np.zeros(array.shape, bool)
                possible = np.zeros(array.shape, bool)
                for kind in self.rules.kinds():
                    bad = self.rules.mask(array, kind)
                    if not bad.any():
                        continue
                    sure, unsure = self.made(
                        node, ins, outs, index, kind, bad, len(arrays) == 1, path
                    )
                    certain |= sure
                    possible |= unsure
                if self.backend == "jax":
                    hidden = certain & multiplied_by_false(node, ins, array.shape)
                    certain, possible = certain & ~hidden, possible | hidden
                possible &= ~certain
                if certain.any() or possible.any():
                    verdict.findings.append(
                        Finding(
                            "node", str(node), index, path, certain, possible, array, follows, node
                        )
                    )
                    marks[index] = marks[index] or bool(certain.any())
        return marks

    def made(self, node, ins, outs, index, kind, bad, is_array, path=()):
        """Return which of the bad elements are, and may be, made by the node."""
        nothing = np.zeros_like(bad)
        if not self.rules.origin:
            return bad, nothing
        masks = [
            self.operand_mask(v, value, kind) for v, value in zip(node.inputs, ins, strict=True)
        ]
        if not self.rules.inputs:  # nobody has looked at them: the first to read them is in error
            if path:
                return nothing, bad
            if any(v in self.inputs and np.any(m) for v, m in zip(node.inputs, masks, strict=True)):
                return self.read_first(node, masks, bad)
        anywhere = any(mask is not None and bool(np.any(mask)) for mask in masks)
        if is_array and isinstance(node.op, Elemwise):
            return self.made_by_elements(node, ins, outs, index, kind, bad, masks)
        if not anywhere:
            return bad, nothing
        decided = deciding(node.op, self, node, ins, masks, index) if is_array else None
        if decided is None or np.shape(decided) != bad.shape:
            return nothing, bad
        return bad & ~decided, nothing

    def read_first(self, node, masks, bad):
        """:meth:`made` for a node that reads a bad input that was not looked at."""
        others = any(
            v not in self.inputs and np.any(m) for v, m in zip(node.inputs, masks, strict=True)
        )
        nothing = np.zeros(bad.shape, bool)
        return (nothing, bad) if others else (bad, nothing)

    def operand_mask(self, variable, value, kind):
        """Return which elements of an operand excuse a bad one of this kind; None: no numbers."""
        arrays = list(arrays_in(value))
        if not arrays:
            return None
        if kind == "nan" and isinstance(variable, Constant):
            return np.zeros(np.shape(value), bool)  # a constant NaN enters where it is read
        kinds = {"nan": ("nan",), "inf": ("inf",), "big": ("inf", "big")}[kind]
        found = [
            np.logical_or.reduce([self.rules.mask(array, one) for one in kinds]) for array in arrays
        ]
        if isinstance(value, np.ndarray | np.generic | float | int | complex):
            return found[0]
        return np.asarray(any(mask.any() for mask in found))

    def made_by_elements(self, node, ins, outs, index, kind, bad, masks):
        """:meth:`made` for an elementwise node: operands decide at the same place."""
        scalar_op = node.op.scalar_op
        nothing, certain, possible = (np.zeros(bad.shape, bool) for _ in range(3))
        columns = [np.broadcast_to(np.asarray(v), bad.shape) for v in ins]
        if not isinstance(scalar_op, ps.Composite):
            decided = nothing.copy()
            for i, mask in enumerate(masks):
                if mask is not None:
                    decides = chosen(scalar_op, i, columns)
                    decided |= np.broadcast_to(mask, bad.shape) & decides
            return bad & ~decided, nothing
        carried = np.zeros(bad.shape, bool)
        for mask in masks:
            if mask is not None:
                carried |= np.broadcast_to(mask, bad.shape)
        if kind == "nan":
            certain = np.array(bad & ~carried)
            possible = np.array(bad & carried)  # made inside, although an operand is NaN
            remaining = np.array(possible)
        else:
            remaining = bad
        for number, at in enumerate(np.argwhere(remaining)):
            at = tuple(at)
            if number >= MOST_ELEMENTS:
                possible[at] = True
                continue
            operands = [column[at] for column in columns]
            origins = self.origins(scalar_op, operands, index, kind, outs[index][at])
            if origins is None:
                (possible if carried[at] else certain)[at] = True
            else:
                certain[at] = origins == {"made"}
                possible[at] = "made" in origins and len(origins) > 1
        return certain, np.array(possible & ~certain)

    def origins(self, composite, operands, index, kind, value):
        """Return where a bad element of a fused operation comes from: "made", "given".

        None if the scalar operations, run one by one, do not give such an element.
        """
        graph = composite.fgraph
        known = {
            v: np.asarray(x, v.type.dtype)[()] for v, x in zip(graph.inputs, operands, strict=True)
        }
        for node in graph.toposort():
            args = [known[v] if v in known else scalar_constant(v) for v in node.inputs]
            try:
                results = scalar_results(node, args)
            except (ValueError, OverflowError, ZeroDivisionError, TypeError):
                return None
            known.update(zip(node.outputs, results, strict=True))
        kinds = {"nan": ("nan",), "inf": ("inf",), "big": ("inf", "big")}[kind]

        def is_bad(x):
            return any(bool(self.rules.mask(x, one)) for one in kinds)

        output = graph.outputs[index]
        if output not in known or not bool(self.rules.mask(known[output], kind)):
            return None
        found, seen = set(), set()

        def follow(variable):
            if variable in seen:
                return
            seen.add(variable)
            if variable.owner is None:
                is_nan = kind == "nan" and isinstance(variable, Constant)
                found.add("made" if is_nan else "given")
                return
            node = variable.owner
            args = [known[v] if v in known else scalar_constant(v) for v in node.inputs]
            bad = [
                v
                for i, (v, x) in enumerate(zip(node.inputs, args, strict=True))
                if is_bad(x) and bool(np.all(chosen(node.op, i, args)))
            ]
            if not bad:
                found.add("made")
            for v in bad:
                follow(v)

        follow(output)
        return found

    def compute(self, node, ins):
        """Return the outputs of a node, run by its operation's own code."""
        if isinstance(node.op, AllocEmpty):  # what is never written must not be taken for bad
            return [np.zeros([int(n) for n in ins], node.op.dtype)]
        if type(node.op).__name__ == "JAXShapeTuple":  # which only JAX can run
            return [np.array([int(n) for n in ins])]
        if self.rounding is not None:
            return self.rounding.run(self, node, ins)
        return self.run_kernel(node, ins)

    def has_own_code(self, op):
        """Whether the backend does not run the graph of an operation that has one.

        JAX has functions for softmax and its logarithm.
        """
        if self.backend != "jax" or not isinstance(op, OpFromGraph):
            return False
        from pytensor.link.jax.dispatch import jax_funcify

        return jax_funcify.dispatch(type(op)) is not jax_funcify.dispatch(OpFromGraph)

    def run_kernel(self, node, ins):
        """Run the code of a node's operation, out of place."""
        # (the maximum of Numba on PyTensor 3.0 passes over NaN)
        if self.has_own_code(node.op):
            return self.backend_kernel(node)(ins)
        if self.by_backend and (
            str(node) in self.by_backend
            or isinstance(node.op, Max | Min)
            or (self.backend == "jax" and self.rounding is None and is_wide(node, ins))
        ):
            return self.backend_kernel(node)(ins)
        kernel = self.kernels.get(node)
        if kernel is None:
            kernel = self.kernels[node] = make_kernel(node, self.impl)
        overwritten = {i for where in node.op.destroy_map.values() for i in where}
        own = [copy_value(v) if i in overwritten else v for i, v in enumerate(ins)]
        try:
            return kernel(own)
        except (ValueError, OverflowError):
            if self.backend == "c":
                raise
            return self.backend_kernel(node)(
                ins
            )  # the backend may accept what PyTensor's code refuses

    def backend_kernel(self, node):
        """Return what runs a node as the backend compiles it, without a guard."""
        key = "backend", node
        if key not in self.kernels:
            outer = [v.type() for v in node.inputs if not isinstance(v, Constant)]
            given = iter(outer)
            own = Apply(
                node.op,
                [v if isinstance(v, Constant) else next(given) for v in node.inputs],
                [v.clone() for v in node.outputs],
            )
            overwritten = {i for where in node.op.destroy_map.values() for i in where}
            specs = [
                pytensor.In(v, borrow=True, mutable=own.inputs.index(v) in overwritten)
                for v in outer
            ]
            mode = Mode(self.backend, None)
            # (PyTensor 3.0's `function` refuses an operation that overwrites its operand.)
            maker = FunctionMaker(
                specs, own.outputs, mode, accept_inplace=True, on_unused_input="ignore"
            )
            fn = maker.create()
            fn.trust_input = True
            places = [i for i, v in enumerate(node.inputs) if not isinstance(v, Constant)]
            self.kernels[key] = lambda ins: [
                np.asarray(v) if isinstance(u.type, TensorType) else v
                for u, v in zip(
                    node.outputs, fn(*[copy_value(ins[i]) for i in places]), strict=True
                )
            ]
        return self.kernels[key]

    def scalar_steps(self, node):
        """Return the operations in a fused one, as elementwise ones, and its variables there."""
        if node not in self.steps:
            graph = node.op.scalar_op.fgraph
            alike = {v: outer.type() for v, outer in zip(graph.inputs, node.inputs, strict=True)}
            flat, steps = (1,) * node.outputs[0].ndim, []
            for inner in graph.toposort():
                operands = [
                    alike[v] if v in alike else scalar_constant(v).reshape(flat)
                    for v in inner.inputs
                ]
                step = Elemwise(inner.op).make_node(*operands)
                alike.update(zip(inner.outputs, step.outputs, strict=True))
                steps.append(step)
            self.steps[node] = steps, [alike[v] for v in graph.inputs], alike
        return self.steps[node]

    def inner_graph(self, op, node):
        """Return the inner graph of an operation as it is linked; `node` runs it."""
        if op not in self.inner_graphs:
            self.inner_graphs[op] = linked_graph(op, node, self.backend)
        return self.inner_graphs[op]


def multiplied_by_false(node, ins, shape):
    """Return which elements XLA may compute as 0: it takes a product with a boolean as a choice."""
    found = np.zeros(shape, bool)
    if isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, ps.Mul):
        for v, value in zip(node.inputs, ins, strict=True):
            while v.owner is not None and (
                isinstance(v.owner.op, DimShuffle)
                or (isinstance(v.owner.op, Elemwise) and isinstance(v.owner.op.scalar_op, ps.Cast))
            ):
                [v] = v.owner.inputs
            if v.dtype == "bool":
                found |= np.asarray(value) == 0
    return found


def is_wide(node, ins):
    """Whether the results of a node may have more bits on JAX than their type.

    There PyTensor's sums keep the type in which they add up, and so does what follows from them.
    """
    adds_up = isinstance(node.op, CAReduce) and node.op.acc_dtype not in (None, node.op.dtype)
    return adds_up or any(
        isinstance(value, np.ndarray) and value.dtype.kind in "fc" and value.dtype != v.type.dtype
        for v, value in zip(node.inputs, ins, strict=True)
    )


# PyTensor's Python and C code refuse to repeat what is written along an axis of length 1.  Before
# PyTensor 3.3 they refuse some writes of one element that repeat nothing.  Numba and JAX do it.
CHECKS_OF_BROADCASTING = ("_check_runtime_broadcasting", "_check_runtime_broadcast_of_vector_index")


def make_kernel(node, impl):
    """Return a function from operands to outputs that runs the node's own code."""
    if impl == "py" and isinstance(node.op, WRITING):
        node = node.clone()
        node.op = copy.copy(node.op)
        for name in CHECKS_OF_BROADCASTING:
            if hasattr(node.op, name):
                setattr(node.op, name, lambda *args: None)
    cells = {v: [None] for v in (*node.inputs, *node.outputs)}
    done = {v: [v.owner is None or v in node.inputs] for v in cells}
    try:
        thunk = node.op.make_thunk(node, cells, done, [], impl=impl)
    except NotImplementedError:  # no C code for these types
        thunk = node.op.make_thunk(node, cells, done, [], impl="py")

    def kernel(ins):
        for v, value in zip(node.inputs, ins, strict=True):
            cells[v][0] = value
        for v in node.outputs:  # what is left there would be written into
            cells[v][0] = None
        thunk()
        return [cells[v][0] for v in node.outputs]

    return kernel


def linked_graph(op, node, backend):
    """Return the inner graph of `op` as PyTensor links it for a backend.

    PyTensor 3.3 links it as it is; before, it is rewritten when it is compiled.
    """
    if hasattr(op.fgraph, "unfreeze"):
        return op.fgraph.unfreeze()
    if isinstance(op, OpWithCoreShape):
        return op.fgraph  # compiled as one piece: rewritten, it would hold itself
    if backend != "c":
        graphs = {"numba": inner_graphs_for_numba, "jax": inner_graphs_for_jax}[backend]
        [graph] = graphs(node, compiled_by=lambda kind: None)
        return graph
    own = op.clone() if isinstance(op, Scan) else copy.copy(op)
    own._fn = None
    with pytensor.config.change_flags(mode="CVM"):
        return own.fn.maker.fgraph


# ---------------------------------------------------------------- inner graphs


@singledispatch
def has_steps(op):
    """Return what steps into the inner graph of `op`, or None."""
    return None


@has_steps.register
def _(op: OpFromGraph):
    return run_body


@has_steps.register
def _(op: Scan):
    return run_scan


if LazyIfElse is not None:

    @has_steps.register
    def _(op: LazyIfElse):
        return run_branch


def run_body(reference, node, ins, tainted, path, verdict, inner=None, operands=None):
    """Run the inner graph of ``OpFromGraph`` once."""
    graph = reference.inner_graph(node.op if inner is None else inner, node)
    operands = node.inputs if operands is None else operands
    values = dict(zip(graph.inputs, ins, strict=True))
    marked = {v for v, outer in zip(graph.inputs, operands, strict=True) if outer in tainted}
    path = (*path, (str(node.op), None))
    known = len(verdict.findings)
    outs, marks = reference.evaluate(graph, values, marked, path, verdict)
    one_piece = type(node.op).__name__ == "FusedElemwise"
    if one_piece and not any(reference.rules.bad(a).any() for v in outs for a in arrays_in(v)):
        for finding in verdict.findings[known:]:  # it shows nowhere
            finding.possible = finding.possible | finding.certain
            finding.certain = np.zeros_like(finding.certain)
    return outs, marks


def run_branch(reference, node, ins, tainted, path, verdict):
    """Run the branch of a lazy condition that is taken."""
    op = node.op.true_branch if np.all(ins[0]) else node.op.false_branch
    return run_body(reference, node, ins[1:], tainted, path, verdict, op, node.inputs[1:])


def run_scan(reference, node, ins, tainted, path, verdict):
    """Run a loop by ``Scan.perform``, each of its steps by hand."""
    graph = reference.inner_graph(node.op, node)
    op = copy.copy(node.op)
    body = Body(reference, node, op, graph, tainted, path, verdict)
    op._fn = body
    outs = [[None] for _ in node.outputs]
    overwritten = {i for where in op.destroy_map.values() for i in where}
    ins = [copy_value(v) if i in overwritten else v for i, v in enumerate(ins)]
    op.perform(node, ins, outs)
    return [cell[0] for cell in outs], [body.is_tainted] * len(outs)


class Body:
    """Stands for a loop's compiled inner function; each call runs one step by hand."""

    def __init__(self, reference, node, op, graph, tainted, path, verdict):
        self.reference, self.op, self.graph = reference, op, graph
        self.path, self.verdict = path, verdict
        self.input_storage = [SimpleNamespace(storage=[None]) for _ in graph.inputs]
        self.output_storage = [SimpleNamespace(storage=[None]) for _ in graph.outputs]
        self.maker = SimpleNamespace(fgraph=graph, profile=None)
        self.step = 0
        self.is_tainted = False
        info = op.info
        taps = (*info.mit_mot_in_slices, *info.mit_sot_in_slices, *info.sit_sot_in_slices)
        n_states = sum(map(len, taps)) + info.n_untraced_sit_sot
        outer = [
            *node.inputs[1 : 1 + info.n_seqs],
            *[None] * n_states,
            *node.inputs[1 + info.n_seqs + len(taps) + info.n_untraced_sit_sot + info.n_nit_sot :],
        ]
        states = node.inputs[1 + info.n_seqs : 1 + info.n_seqs + len(taps)]
        self.states_tainted = any(v in tainted for v in states)
        self.tainted = [v in tainted if v is not None else None for v in outer]
        self.overwritten = self._overwritten_inputs()

    def _overwritten_inputs(self):
        """Return, by number of output, the inner input whose cell PyTensor reads it from."""
        info, found, k = self.op.info, {}, 0
        first = info.n_seqs
        for taps, outs in zip(info.mit_mot_in_slices, info.mit_mot_out_slices, strict=True):
            for out in outs:
                if self.op.mitmots_preallocated[k]:
                    found[k] = first + taps.index(out)
                k += 1
            first += len(taps)
        return found

    @property
    def vm(self):
        return self

    def __call__(self):
        values = {
            v: copy_value(cell.storage[0])
            for v, cell in zip(self.graph.inputs, self.input_storage, strict=True)
        }
        marked = {
            v
            for v, mark in zip(self.graph.inputs, self.tainted, strict=True)
            if (self.states_tainted if mark is None else mark)
        }
        path = (*self.path, (str(self.op), self.step))
        outs, marks = self.reference.evaluate(self.graph, values, marked, path, self.verdict)
        for k, (value, cell) in enumerate(zip(outs, self.output_storage, strict=True)):
            if k in self.overwritten:
                self.input_storage[self.overwritten[k]].storage[0] = copy_value(value)
            else:
                cell.storage[0] = copy_value(value)
        self.step += 1
        self.states_tainted = self.states_tainted or any(marks)
        self.is_tainted = self.is_tainted or any(marks)


# ---------------------------------------------------------------- rounding

CHOOSING = (ps.Switch, ps.Second, ps.Identity, ps.Clip, ps.ScalarMaximum, ps.ScalarMinimum)
WHOLE = (ps.Floor, ps.Ceil, ps.Trunc, ps.RoundHalfToEven, ps.RoundHalfAwayFromZero)
EXACT = (*CHOOSING, *WHOLE, ps.Neg, ps.Abs, ps.Sign)
# What is rounded once: 1 * x and x / 1 are exact everywhere.
ARITHMETIC = {
    ps.Cast: np.positive,
    ps.Add: np.add,
    ps.Sub: np.subtract,
    ps.Mul: np.multiply,
    ps.TrueDiv: np.true_divide,
    ps.Sqr: np.square,
    ps.Sqrt: np.sqrt,
}


class Rounding:
    """Runs nodes with other rounding errors.

    A result is one that operands, or the terms of a sum, could have that differ by some `ULPS`.
    What is copied or chosen stays as it is.  A product that is added may be taken as it is before
    it is rounded, as compilers do that have one instruction for both.

    Parameters
    ----------
    seed : int
    """

    def __init__(self, seed):
        self.random = np.random.default_rng(seed)
        self.together = seed % 2 == 0  # all elements of a result err in the same direction
        self.cancels = seed % 4 < 2  # a difference of what may be equal is 0
        self.fuses = seed % 3 == 0  # products that are added are not rounded
        self.products = {}  # by variable, before they were rounded

    def run(self, reference, node, ins):
        """Return the outputs of a node."""
        op = node.op
        if isinstance(op, Elemwise) and isinstance(op.scalar_op, ps.Composite):
            return self.run_steps(reference, node, ins)
        exact = ARITHMETIC.get(type(getattr(op, "scalar_op", None)))
        if isinstance(op, Elemwise) and exact and node.outputs[0].dtype in FLOATS:
            wide_ins = [np.asarray(v, np.longdouble) for v in ins]
            if self.fuses and exact in (np.add, np.subtract):
                wide_ins = [
                    self.products.get(v, x) for v, x in zip(node.inputs, wide_ins, strict=True)
                ]
            wide = reduce_with(exact, wide_ins)
            if exact in (np.multiply, np.square):
                self.products[node.outputs[0]] = wide
            return [self.rounded(exact, wide, node.outputs[0].dtype, ins)]
        if isinstance(op, Elemwise) and not isinstance(op.scalar_op, EXACT):
            ins = [self.moved(v) for v in ins]
        outs = reference.run_kernel(node, ins)
        dtype = getattr(node.outputs[0], "dtype", None)  # (a generator has none)
        if dtype in FLOATS and (sums := wide_sums(op, ins)) is not None:
            [out], (total, size) = outs, sums
            most = np.finfo(getattr(op, "acc_dtype", None) or out.dtype).max
            return [self.moved(self.in_another_order(out, total, size, most), size)]
        sizes = error_sizes(op, node, ins, outs)
        return [
            value if size is None else self.moved(value, size)
            for value, size in zip(outs, sizes, strict=True)
        ]

    def run_steps(self, reference, node, ins):
        """Return the outputs of a fused node, whose steps round otherwise as well."""
        steps, operands, alike = reference.scalar_steps(node)
        values = dict(zip(operands, ins, strict=True))
        for step in steps:
            given = [value_of(v, values) for v in step.inputs]
            values.update(zip(step.outputs, self.run(reference, step, given), strict=True))
        graph = node.op.scalar_op.fgraph
        shape = np.broadcast_shapes(*map(np.shape, ins))
        return [
            np.broadcast_to(values[alike[v]] if v in alike else scalar_constant(v), shape).astype(
                v.type.dtype
            )
            for v in graph.outputs
        ]

    def rounded(self, ufunc, wide, dtype, ins):
        """Return numbers that have more bits than `dtype`, with errors where they do not fit."""
        value, eps = wide.astype(dtype), np.finfo(dtype).eps
        errors = self.errors(wide.shape) * eps * np.abs(wide)
        result = np.where(value == wide, value, (wide + errors).astype(dtype))
        if self.cancels and ufunc in (np.add, np.subtract) and len(ins) > 1:
            size = reduce_with(np.add, [np.abs(np.asarray(v, np.longdouble)) for v in ins])
            result = np.where(np.abs(wide) < ULPS * eps * size, np.zeros((), dtype), result)
        return result

    def in_another_order(self, value, total, size, most):
        """Return a sum as another order of its terms may give it, which decides what overflows.

        `total` and `size` are the sum and the sum of the magnitudes, and have more bits.  A sum of
        some of the terms may overflow where the terms of their sign do.
        """
        shape = () if self.together else np.shape(value)
        up, down = (self.random.random(shape) < 0.5 for _ in range(2))
        up, down = up & ((size + total) / 2 > most), down & ((size - total) / 2 > most)
        ends = total.astype(value.dtype) + np.where(up, np.inf, 0) - np.where(down, np.inf, 0)
        return np.where((size > most) & np.isfinite(size), ends, value).astype(value.dtype)

    def errors(self, shape):
        """Return errors in units of the last place."""
        if self.together:
            return np.broadcast_to(self.random.uniform(-ULPS, ULPS), shape)
        return self.random.uniform(-ULPS, ULPS, shape)

    def moved(self, value, size=None):
        """Return a value with errors of some ulps of `size`, by default of itself."""
        if not isinstance(value, np.ndarray) or value.dtype.kind not in "fc":
            return value
        size = np.abs(value) if size is None else size
        wide = self.errors(value.shape) * np.finfo(value.dtype).eps * size
        return np.where(np.isfinite(wide), value + wide, value).astype(value.dtype)


def reduce_with(ufunc, operands):
    """Return the result for any number of operands, as an array."""
    return np.asarray(reduce(ufunc, operands) if len(operands) > 1 else ufunc(*operands))


@singledispatch
def error_sizes(op, node, ins, outs):
    """Return of what size the errors of each output are; None: it is exact."""
    if isinstance(op, (*COPYING, Shape, Shape_i, AllocEmpty)):
        return [None] * len(outs)
    if isinstance(op, WRITING):
        [out] = outs
        return [np.where(out == np.asarray(ins[0]), 0, np.abs(out))]
    return [
        np.max(np.abs(v), initial=0, where=np.isfinite(v))
        if isinstance(v, np.ndarray) and v.dtype.kind in "fc"
        else None
        for v in outs
    ]


@error_sizes.register
def _(op: Elemwise, node, ins, outs):
    return [None if isinstance(op.scalar_op, EXACT) else np.abs(v) for v in outs]


@error_sizes.register
def _(op: CAReduce, node, ins, outs):
    is_product = isinstance(op.scalar_op, ps.Mul) and ins[0].size != outs[0].size
    return [np.abs(outs[0]) if is_product else None]


def wide_sums(op, ins):
    """Return sums, and the sums of the magnitudes of their terms, with more bits; None: no sum."""
    if not all(isinstance(v, np.ndarray | np.generic) for v in ins):  # a sparse matrix
        return None
    wide = [np.asarray(v, "float64" if v.dtype == "float32" else np.longdouble) for v in ins]
    total = summed(op, wide)
    return None if total is None else (np.asarray(total), np.asarray(summed(op, map(np.abs, wide))))


@singledispatch
def summed(op, ins):
    """Return the result of an operation that adds up terms; None: it does something else."""
    return None


@summed.register
def _(op: CAReduce, ins):
    [value] = ins
    axis = tuple(range(value.ndim)) if op.axis is None else op.axis
    is_sum = isinstance(op.scalar_op, ps.Add) and any(value.shape[i] != 1 for i in axis)
    return value.sum(axis=axis) if is_sum else None


@summed.register
def _(op: CumOp, ins):
    return np.cumsum(*ins, axis=op.axis) if op.mode == "add" else None


@summed.register(Dot)
@summed.register(blas.Dot22)
def _(op, ins):
    return np.dot(*ins)


@summed.register
def _(op: blas.Dot22Scalar, ins):
    x, y, a = ins
    return a * np.dot(x, y)


@summed.register(blas.Gemm)
@summed.register(blas.Gemv)
def _(op, ins):
    z, a, x, y, b = ins
    return b * z + a * np.dot(x, y)


@summed.register
def _(op: blas.BatchedDot, ins):
    return np.matmul(*ins)


# ---------------------------------------------------------------- deciding elements


def chosen(scalar_op, position, operands):
    """Return where operand number `position` of a scalar operation can decide its result."""
    if isinstance(scalar_op, ps.Switch):
        condition = np.asarray(operands[0]) != 0
        return (np.zeros_like(condition), condition, ~condition)[position]
    if isinstance(scalar_op, ps.Second):
        return np.asarray(position == 1)
    return np.asarray(True)


def scalar_constant(variable):
    return np.asarray(variable.data, variable.type.dtype)[()]


def scalar_results(node, args):
    """Return what a scalar operation gives in Python, in the dtypes of its outputs."""
    results = node.op.impl(*args)
    if len(node.outputs) == 1:
        results = (results,)
    return [
        np.asarray(x).astype(v.type.dtype)[()] for x, v in zip(results, node.outputs, strict=True)
    ]


@singledispatch
def deciding(op, reference, node, ins, masks, index):
    """Return which elements of an output have a bad deciding element; None: it is left open."""
    if isinstance(op, COPYING):
        return _run_on_masks(reference, node, ins, masks, index)
    if isinstance(op, WRITING):
        return _run_on_masks(reference, node, ins, masks, index)
    if isinstance(op, Shape | Shape_i):
        return np.zeros(np.shape(masks[0]), bool)
    return None


def _run_on_masks(reference, node, ins, masks, index):
    """Copy, or add up, marks in place of the numbers."""
    marks = []
    for v, value, mask in zip(node.inputs, ins, masks, strict=True):
        dtype = np.asarray(value).dtype if mask is not None else None
        is_number = mask is not None and dtype.kind in "fc"
        marks.append(np.asarray(mask).astype(dtype) if is_number else value)
        if mask is not None and not is_number and _is_data(node, v):
            marks[-1] = np.zeros_like(value)
    return np.asarray(reference.compute(node, marks)[index]) != 0


def _is_data(node, variable):
    """Whether an operand of a copying operation is data, and no index or shape."""
    op = node.op
    if isinstance(op, Join | MakeVector):
        return variable in node.inputs if isinstance(op, MakeVector) else variable.type.ndim > 0
    if isinstance(op, WRITING):
        return variable in node.inputs[:2]
    return variable is node.inputs[0]


@deciding.register
def _(op: CAReduce, reference, node, ins, masks, index):
    return np.any(masks[0], axis=op.axis)


@deciding.register(Softmax)
@deciding.register(LogSoftmax)
def _(op, reference, node, ins, masks, index):
    [mask] = masks
    return np.broadcast_to(np.any(mask, axis=op.axis, keepdims=True), mask.shape)


@deciding.register
def _(op: CumOp, reference, node, ins, masks, index):
    return np.cumsum(masks[0], axis=op.axis) > 0


def _product(a, b):
    """Return which elements of a matrix product read a marked one."""
    return (a.astype(float) @ np.ones(b.shape)) + (np.ones(a.shape) @ b.astype(float)) > 0


@deciding.register(Dot)
@deciding.register(blas.Dot22)
def _(op, reference, node, ins, masks, index):
    return _product(*masks)


@deciding.register
def _(op: blas.Dot22Scalar, reference, node, ins, masks, index):
    return _product(*masks[:2]) | masks[2]


@deciding.register
def _(op: blas.Gemm, reference, node, ins, masks, index):
    z, a, x, y, b = masks
    return z | a | b | _product(x, y)


@deciding.register
def _(op: blas.Gemv, reference, node, ins, masks, index):
    z, a, x, y, b = masks
    return z | a | b | _product(x, y)


def _outer(op, reference, node, ins, masks, index):
    z, a, x, y = masks
    return z | a | x[:, None] | y[None, :]


if hasattr(blas, "Ger"):  # before PyTensor 3.3
    deciding.register(blas.Ger, _outer)


@deciding.register
def _(op: blas.BatchedDot, reference, node, ins, masks, index):
    return _product(*masks)


# ---------------------------------------------------------------- values


def branch_taken(node, condition):
    """Return the variables of the branch that a lazy ``IfElse`` takes."""
    n = node.op.n_outs
    return node.inputs[1 : 1 + n] if np.all(condition) else node.inputs[1 + n :]


def value_of(variable, values):
    return variable.data if isinstance(variable, Constant) else values[variable]


def may_discard(node):
    """Whether a node chooses among elements, takes some of them, or overwrites them."""
    if isinstance(node.op, (IfElse, Shape, Shape_i, *TAKING, *WRITING)):
        return True
    scalar_op = getattr(node.op, "scalar_op", None)
    inside = (
        [n.op for n in scalar_op.fgraph.apply_nodes]
        if isinstance(scalar_op, ps.Composite)
        else [scalar_op]
    )
    return any(isinstance(op, ps.Switch | ps.Second | ps.IsNan | ps.IsInf) for op in inside)


def bits(value):
    """Return a value as something that is equal if all is the same; NaNs are alike."""
    return [(a.shape, np.where(np.isnan(a), np.nan, a).tobytes()) for a in arrays_in(value)]


def copy_value(value):
    if isinstance(value, np.ndarray):
        return value.copy(order="K")
    if type(value).__module__.startswith("jax"):  # an array that cannot be written
        return np.array(value)
    return copy.deepcopy(value)


def arrays_in(value):
    """Yield the numeric arrays of a value."""
    if isinstance(value, np.ndarray):
        if value.dtype.kind in "fciu":
            yield value
    elif scipy.sparse.issparse(value):
        yield value.data
    elif isinstance(value, np.generic | float | complex | int):
        yield np.asarray(value)
    elif isinstance(value, list):
        for item in value:
            yield from arrays_in(item)
    elif hasattr(value, "__array__"):  # JAX's
        yield from arrays_in(np.asarray(value))
