"""Write a loop whose states are probabilities with the logarithms of its states.

The step, the initial state, the sequences and what reads the states are changed in the user's
lines.  Everything else reads the new states as well: a trial shows whether that is right.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import ancestors
from pytensor.scan.op import Scan
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.subtensor import Subtensor

from theanoguard._graph import is_buffer, scan_of
from theanoguard._provenance import SourceLine, source_place
from theanoguard._provenance.designating import made_by_grad
from theanoguard.explain.advice.judge import Judge
from theanoguard.explain.advice.logarithms import InLogs
from theanoguard.explain.advice.source_edit import filled
from theanoguard.explain.advice.trials import AsBuilt, Body, Builders, Spot, fixed
from theanoguard.explain.advice.written import Made, arguments_at
from theanoguard.stable.patterns import New, rebuild


@dataclass(frozen=True)
class Edit:
    """An expression to write in place of a variable.

    Parameters
    ----------
    code : str
        The expression, with PyTensor's module as ``pt``.
    operands : dict of str to Variable
        What the names in the code stand for.
    spot : Spot
        Knows the names and values of the operands.
    alike : dict of Variable to list of Variable
        The variables that the same code of the user computes, such as in a function that is called
        twice, and their operands.
    place : SourceLine or None
        Where the user wrote it, if that is not known from the variable.
    inner : Variable or None
        The variable whose logarithm the code computes.
    logged : tuple of Variable
        Operands that hold logarithms after the change.
    """

    variable: Variable
    code: str
    operands: dict[str, Variable]
    spot: Spot
    alike: dict[Variable, list[Variable]]
    place: SourceLine | None = None
    inner: Variable | None = None
    logged: tuple[Variable, ...] = ()

    def holds_around(self, judge: Judge) -> bool:
        """Return whether the code gives the logarithm for other values of its operands as well."""
        assert self.inner is not None
        own = {v: v.type() for v in self.logged}
        (user,) = rebuild([self.inner], {v: fixed(pt.exp(o)) for v, o in own.items()})
        with np.errstate(all="ignore"):
            values = {o: np.log(self.spot.replay.value(v)) for v, o in own.items()}
        operands = [own.get(v, v) for v in self.operands.values()]
        real = [v for v in operands if v.type.dtype[:5] == "float"]
        factors = [v for v in real if v not in values]
        build = InLogs(self.inner, own).build
        return judge.holds_around(pt.log(user), build, real, factors, self.spot, values)


@dataclass(frozen=True)
class LoopInLogs:
    """A loop one of whose states is kept as its logarithm.

    Parameters
    ----------
    state : Variable
        The states, as the loop returns them.
    edits : tuple of Edit
        The logarithm of what is computed from the states, the step and the initial state.
    sequences : dict of int to Edit
        The sequences whose logarithms are computed, by position among the inputs of the loop.
    """

    body: Body
    state: Variable
    edits: tuple[Edit, Edit, Edit]
    sequences: dict[int, Edit]

    @property
    def all_edits(self) -> tuple[Edit, ...]:
        """The changes of the user's code."""
        return *self.edits, *self.sequences.values()

    def builders(self, made: list[Made]) -> Builders:
        """Return what builds the results, from what the code of the edits makes of its operands.

        There is nothing if the code changes a dtype, which loops do not allow.
        """
        pairs = zip(self.all_edits, made, strict=True)
        if any(m.result.type.dtype != edit.variable.type.dtype for edit, m in pairs):
            return {}
        build = dict(zip(map(id, self.all_edits), map(_build, self.all_edits, made), strict=True))
        result, step, first = self.edits
        node, op = self.body.node, self.body.node.op
        start = node.inputs.index(op.outer_sitsot(node.inputs)[self._position])
        edited = {start: first, **self.sequences}

        def loop(new: New) -> Variable:
            outputs = rebuild(self.body.graph.outputs, {step.variable: build[id(step)]})
            outer = [new(v) for v in node.inputs]
            for i, edit in edited.items():
                changed = {edit.variable: fixed(build[id(edit)](new))}
                (outer[i],) = rebuild([node.inputs[i]], changed)
            other = scan_of(op, list(self.body.graph.inputs), outputs).make_node(*outer)
            return other.outputs[self.state.index]

        return {self.state: loop, result.variable: build[id(result)]}

    @property
    def _position(self) -> int:
        node = self.body.node
        return node.op.outer_sitsot_outs(node.outputs).index(self.state)


def _is_of_gradient(built: AsBuilt, spot: Spot, node: Apply) -> bool:
    return made_by_grad(built.original(spot.at(node)))


def _build(edit: Edit, made: Made) -> Callable[[New], Variable]:
    return lambda new: made.of(*map(new, edit.operands.values()))


def loops_in_logs(
    built: AsBuilt, spot: Spot, log: Variable, inner: Variable
) -> Iterator[LoopInLogs]:
    """Yield changes of a loop from whose states a logarithm is computed.

    `spot`: an operation of the function's own graph.
    `inner`: the variable whose logarithm it computes.
    """
    reached = set(ancestors([log]))
    for body in built.bodies:
        node = body.node
        if body.outer is not None or not isinstance(node.op, Scan):
            continue
        if not _is_of_gradient(built, spot, node):
            for state in node.op.outer_sitsot_outs(node.outputs):
                if state in reached:
                    yield from _of_state(built, spot.at(log.owner), body, state, inner)


def _of_state(
    built: AsBuilt, spot: Spot, body: Body, state: Variable, inner: Variable
) -> Iterator[LoopInLogs]:
    """Yield the changes of one state: with the sequences that have logarithms, and without."""
    node, op, graph = body.node, body.node.op, body.graph
    position = op.outer_sitsot_outs(node.outputs).index(state)
    buffer = op.outer_sitsot(node.inputs)[position]
    readers = [c for c in spot.clients.get(state, ()) if isinstance(c.op, Subtensor)]
    views = [c.outputs[0] for c in readers if not _is_of_gradient(built, spot, c)]
    place, inside = source_place(state), built.first_run(body)
    if place is None or inside is None or len(views) != 1 or not is_buffer(buffer):
        return
    written = arguments_at(place, ("sequences", "outputs_info"))
    firsts, columns = written["outputs_info"], written["sequences"]
    if len(firsts) != op.info.n_sit_sot:
        return
    before = op.inner_sitsot(graph.inputs)[position]
    after = op.inner_sitsot_outs(graph.outputs)[position]
    first = _behind_axes(buffer.owner.inputs[1])
    (log,) = spot.node.outputs
    start = _edit(spot, first, {}, firsts[position])
    end = _edit(spot, inner, views, variable=log)
    sequences: dict[int, Edit] = {}
    if len(columns) == op.info.n_seqs:
        for i, outer in enumerate(op.outer_seqs(node.inputs)):
            v = _behind_slices(outer, place)
            found = _edit(spot, v, {}, columns[i]) if InLogs(v).parts else None
            sequences |= {} if found is None else {i + 1: found}
    for some in [sequences, {}] if sequences else [{}]:
        step = _edit(inside, after, [before, *(graph.inputs[i - 1] for i in some)])
        if start is not None and step is not None and end is not None:
            yield LoopInLogs(body, state, (end, step, start), some)


def _edit(
    spot: Spot,
    inner: Variable,
    logged: Any,
    place: SourceLine | None = None,
    variable: Variable | None = None,
) -> Edit | None:
    """Return the code of the logarithm of a variable, or None.

    `logged`: variables that hold logarithms.
    `place`: where the code goes.
    `variable`: the variable that the code replaces; `inner` by default.
    """
    own = {v: v.type() for v in logged}
    written = InLogs(inner, own).code()
    if written is None:
        return None
    code, operands = written
    names = {o: name for name, o in operands.items()}
    texts = {}
    for v, o in own.items():
        if v in names:  # (what holds its logarithm now)
            name = names.setdefault(o, names[v])
            texts[names.pop(v)] = f"pt.exp({name})"
    code = filled(code, texts)
    backs = {o: v for v, o in own.items()}
    known = {name: backs.get(o, o) for o, name in names.items()}
    replaced = inner if variable is None else variable
    return Edit(replaced, code, known, spot, {}, place, inner, tuple(logged))


def _behind_axes(variable: Variable) -> Variable:
    """Return the initial state that the user has given, which a loop gets with an axis more."""
    node = variable.owner
    is_more = isinstance(getattr(node, "op", None), DimShuffle) and node.op.is_expand_dims
    return node.inputs[0] if is_more else variable


def _behind_slices(variable: Variable, place: SourceLine) -> Variable:
    """Return the sequence that the user has given, of which the loop at a place takes a slice."""
    while source_place(variable) == place and isinstance(variable.owner.op, Subtensor):
        variable = variable.owner.inputs[0]
    return variable
