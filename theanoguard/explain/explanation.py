"""From a :class:`~theanoguard._event.Trip` to an :class:`Explanation`."""

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import walk
from pytensor.tensor.elemwise import Elemwise

from theanoguard._evaluate import culprit
from theanoguard._evaluate.culprit import Origin, Place, Scope, find_origin, is_numeric
from theanoguard._evaluate.replay import Implementation, Kernels, Replay
from theanoguard._evaluate.scalars import ScalarStep, agrees
from theanoguard._event import GuardEvent, Trip
from theanoguard._faults import code_of
from theanoguard._naming import LOG_DENSITY, apply_text, name_of
from theanoguard._provenance import Provenance, SourceLine, lookup, module_of
from theanoguard._steps import attempt, failures, foreign
from theanoguard._text import number_text, number_texts
from theanoguard._values import Mask
from theanoguard.explain.advice.hints import (
    OUT_OF_DOMAIN,
    WITHOUT_TRIAL,
    diverges,
    in_module,
    with_hint,
    with_module,
    with_outcome,
)
from theanoguard.explain.advice.meaning import meaning_of
from theanoguard.explain.advice.remedies import Outcome, position, try_remedies
from theanoguard.explain.facts.describe import describe, finite_range
from theanoguard.explain.facts.handed import Advice, Case, Facts, Found
from theanoguard.explain.facts.labels import display_name, user_op
from theanoguard.explain.facts.records import ROLES, Cause, Explanation, Fate, Meaning, Operand
from theanoguard.explain.facts.restated import Spot, differentiated, restated
from theanoguard.explain.facts.situation import update_lines, updates_numbers
from theanoguard.explain.facts.way import way_from_inputs, without_rewrites
from theanoguard.explain.repro.script import FailingCall, Repro, repro_of
from theanoguard.operations.names import op_name


def explanation_of(
    trip: Trip, tell_fate: bool = False, impl: Implementation | None = None
) -> Explanation:
    """Find the operation or outside value that a bad value comes from.

    Parameters
    ----------
    trip : Trip
    tell_fate : bool
        Also run the rest of the call, to see whether the bad value survives.
    impl : {"c", "py", None}
        The implementation of the operations that the replay runs.

    Returns
    -------
    Explanation
    """
    with _garbage_kept():
        return _explained(Case(trip, tell_fate, impl))


@contextmanager
def _garbage_kept() -> Iterator[None]:
    """Pause garbage collection, which visits all nodes of a graph and takes half of the time."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _explained(case: Case) -> Explanation:
    with failures() as failed:
        found = attempt("the operation that made the value", Found(case), evaluate, case)
        facts = None
        if found.first is not None:
            facts = attempt("its operands", None, state, found)
        if facts is None:
            live = attempt("the operands in the call", None, _live_cause, case.trip)
            facts = Facts(found, live if live is not None else _bare_cause(case.trip))
        advice = Advice(facts, facts.cause)
        if facts.origin is not None:
            advice = attempt("the advice", Advice.of_none(facts), advise, facts)
        return replace(conclude(advice), failed=tuple(failed))


def evaluate(case: Case) -> Found:
    """Find where the bad value was made."""
    trip = case.trip
    outermost = _scope_of(case)
    place, note = _tripped_place(case, outermost)
    if place is None and trip.kernels is not None and (kernels := trip.kernels()) is not None:
        outermost = _scope_of(case, kernels)
        place, note = _tripped_place(case, outermost)
    first = None if place is None else find_origin(place, case.mask)
    return Found(case, outermost, first, note or "")


def state(found: Found) -> Facts:
    """Describe what is there: the operation, its operands and the user's line."""
    origin, case = found.first, found.case
    assert origin is not None  # (the caller has looked)
    event = case.trip.event if len(origin.steps) == 1 else None
    facts = Facts(found, _described(origin, case.mask, event), None, origin)
    if origin.made_here and np.isnan(facts.cause.value):
        further = find_origin(origin.place, culprit.not_finite)
        if further.place != origin.place or _is_before(further, origin):
            deeper = _described(further, culprit.not_finite)
            if deeper.kind != "nan":
                ends = further if further.made_here else origin
                return replace(facts, deeper=deeper, origin=ends)
    return facts


def _described(origin: Origin, mask: Mask, event: GuardEvent | None = None) -> Cause:
    """Return the cause at an origin, with a hint if one can be chosen."""
    cause = describe(origin, mask, event)
    return attempt("the advice", replace(cause, situation=None), with_hint, cause)


def advise(facts: Facts) -> Advice:
    """Say what to do, and whether the formula has a value."""
    advice = _with_remedies(facts)
    deeper = None if advice.deeper is None else in_module(advice.deeper)
    return replace(advice, cause=in_module(advice.cause), deeper=deeper)


def conclude(advice: Advice) -> Explanation:
    """Put together what is told, with the path to the cause and where the bad value goes."""
    facts = advice.facts
    found, case, no_path = facts.found, facts.found.case, dict[str, Any]()
    notes = (found.note,) if found.note else _joined_note(advice)
    if found.case.trip.counts_as_big:
        notes = (*notes, AS_BIG)
    return Explanation(
        case.trip.event,
        advice.cause,
        deeper=advice.deeper,
        meaning=advice.meaning,
        **attempt("the path", no_path, _path, advice),
        reproduced=found.first is not None,
        notes=notes or attempt("the notes on rounding", (), _rounding_notes, found.first),
        fate=attempt("the outputs that it reaches", None, _fate, found),
        feeds=attempt("the outputs that depend on it", (), feeds, case.trip.fgraph, case.outer),
        repro=attempt("the script that reproduces it", None, _repro, found),
    )


STEPS = (evaluate, state, advise, conclude)
"""The steps of an explanation.  Each takes what the one before it returns, and nothing else."""


def _path(advice: Advice) -> dict[str, Any]:
    """Return the path to the cause; the last point that a rewrite made is left out."""
    facts = advice.facts
    if facts.origin is None:
        return {}
    points, left_out = way_from_inputs(facts.origin)
    computed, shown = facts.deeper or facts.cause, advice.deeper or advice.cause
    rewritten = (shown.op, shown.backward) != (computed.op, computed.backward)
    points = without_rewrites(points, shown.operands if rewritten else ())
    return {"waypoints": points, "left_out": left_out}


def _fate(found: Found) -> Fate | None:
    case = found.case
    if found.first is None or found.outermost is None or not case.tell_fate:
        return None
    return fate_of(found.outermost.replay, case.outer[0], case.mask)


def _repro(found: Found) -> Repro | None:
    if found.first is None:
        return None
    repro = repro_of(found.first, lambda p: display_name(p.scope, p.variable))
    return replace(repro, call=FailingCall(found.case.trip))


def _scope_of(case: Case, kernels: Kernels | None = None) -> Scope:
    trip, kernels = case.trip, kernels or Kernels(case.impl)
    given = trip.inputs if case.impl else {**trip.computed, **trip.inputs}
    return Scope(Replay(trip.fgraph, given, kernels, live=trip.live))


AS_BIG = "inf_is_error=False allows an Inf, and it counts as big: pass big_is_error=False as well."


def _rounding_notes(origin: Origin | None) -> tuple[str, ...]:
    """Return a sentence for each number for which compiled code and NumPy differ."""
    if origin is None or origin.made is None:
        return ()
    step = origin.made.step
    near = [step, *(o for o in step.origins if isinstance(o, ScalarStep))]
    sources = [origin.made.sources[o] for o in step.origins if isinstance(o, int)]
    finals = (culprit.scalar_final(p) for p in sources if _is_elementwise(p.variable))
    near += [final for final in finals if isinstance(final, ScalarStep)]
    return tuple(
        f"Compiled, {apply_text(s.op, number_texts(s.operands))} is {number_text(s.results[0])};"
        f" NumPy gives {number_text(s.by_numpy[0])}.{_why_otherwise(s)}"
        for s in near
        if s.by_numpy is not None
    )


def _joined_note(advice: Advice) -> tuple[str, ...]:
    """Return a sentence if the user's operation gives inf, and what a rewrite made of it NaN."""
    computed, told = advice.facts.cause, advice.cause
    if told.kind != "nan" or np.isnan(told.value):
        return ()
    written = f"{told.expression} = {number_text(told.value)}"
    return (f"PyTensor joined {written} with a product, and computes {computed.expression}.",)


def _is_elementwise(variable: Variable) -> bool:
    return variable.owner is not None and isinstance(variable.owner.op, Elemwise)


def _flushed(number: Any, tiny: Any) -> Any:
    """Return 0 for a subnormal number, and any other number unchanged."""
    return number * 0 if abs(number) < tiny else number


def _why_otherwise(step: ScalarStep) -> str:
    """Return why compiled code and NumPy differ; an empty text if the reason is unknown."""
    result = np.asarray(step.results[0])
    if result.dtype.kind == "f":
        tiny = np.finfo(result.dtype).tiny
        with np.errstate(all="ignore"), foreign():
            plain = step.op.impl(*(_flushed(v, tiny) for v in step.operands))
        if agrees(_flushed(plain, tiny), result):
            return f" The backend takes what is smaller than {number_text(tiny)} for 0."
    products = [o for o in step.origins if isinstance(o, ScalarStep) and op_name(o.op) == "mul"]
    if op_name(step.op) in ("add", "sub") and (products or step.node is not None):
        return " The compiler joins a product and a sum into one operation, which rounds once."
    return ""


def _with_remedies(facts: Facts) -> Advice:
    """Return the causes, and what the fault means.

    The hint of the cause to repair names a remedy that helps the call.
    """
    deeper = facts.deeper
    if deeper is not None and deeper.hint and deeper.hint.key == "switch-chose-infinity":
        deeper = replace(deeper, hint=None)  # (the user chose it; the fault is in its reader)
        facts = replace(facts, deeper=deeper)
    outcome = try_remedies(facts) if facts.blamed.role == "node" else None
    if outcome is None:
        return Advice(facts, facts.cause, deeper)
    if outcome.cause is not None:
        told = _in_users_functions(outcome.cause, outcome)
        meaning = _meaning(facts, told, outcome)
        if outcome.text is not None and told.hint is not None:
            told = replace(told, hint=with_outcome(told.hint, outcome, meaning))
        return Advice(facts, told, None, meaning)
    told = _in_users_functions(_as_built(facts.blamed, outcome.spots, facts.mask), outcome)
    if len(outcome.lines) > 1:
        told = replace(told, provenance=_undecided(told.provenance, outcome.lines))
        outcome = replace(outcome, fact="")
    elif told.backward and outcome.spots:
        told = replace(told, differentiated=differentiated(outcome.spots[0], position(told)))
    if outcome.node is not None and len(outcome.lines) <= 1:
        told = replace(told, provenance=_placed(told, outcome.node))
    meaning = _meaning(facts, told, outcome)
    from_data = deeper.hint if deeper and deeper.role in ROLES and deeper.size > 1 else None
    if from_data is not None and not outcome.text:
        told = replace(told, hint=from_data)
    elif outcome.text is not None and told.hint is not None:
        if meaning.kind != "none" and _may_diverge(facts, told, outcome):
            lines = update_lines(facts.trip.fgraph, facts.found.case.outer)
            outcome = replace(
                outcome, text=f"{outcome.text} {diverges(lines, told.source)}.".lstrip()
            )
        told = replace(told, hint=with_outcome(told.hint, outcome, meaning))
    elif told.hint is None and meaning.kind == "none" and meaning.text:
        hint = with_outcome(OUT_OF_DOMAIN, replace(outcome, text=""), meaning)
        told = replace(told, hint=hint)
    if facts.blamed is deeper:
        cause = _as_built(facts.cause, outcome.spots, facts.mask)
        return Advice(facts, cause, told, meaning)
    return Advice(facts, told, deeper, meaning)


def _meaning(facts: Facts, cause: Cause, outcome: Outcome) -> Meaning:
    """Return whether the formula has a value."""
    if outcome.judge is None:
        return Meaning("unknown")
    outputs, fgraph = outcome.judge.built.outputs, facts.trip.fgraph

    def subject(variable: Variable) -> str:
        name = _output_name(fgraph, outputs.index(variable))
        if name.isdigit():
            return f"output {name}" if len(outputs) > 1 else "the result"
        return name.replace("update of ", "the new value of ")

    mapping = getattr(fgraph, "update_mapping", None) or {}
    updated = {fgraph.inputs[i] for i in mapping.values()}
    return meaning_of(outcome.judge, cause, outcome.fact, updated, subject)


def _may_diverge(facts: Facts, cause: Cause, outcome: Outcome) -> bool:
    """Whether a value of a training is too large, and no change of one operation makes it small."""
    too_large = cause.kind != "nan" and not (
        cause.hint is not None and cause.hint.key == "diverging-update"
    )
    return too_large and not outcome.text and updates_numbers(facts.trip.fgraph)


def _in_users_functions(cause: Cause, outcome: Outcome) -> Cause:
    """Return a cause whose hint has functions that take the operands of the user's operation."""
    if not outcome.spots or cause.hint is None or code_of(cause.hint.key) is None:
        return cause
    module = module_of(outcome.spots[0].node.outputs[0])
    fact, advice = (with_module(text, module) for text in (cause.hint.fact, cause.hint.advice))
    return replace(cause, hint=replace(cause.hint, fact=fact, advice=advice))


def _as_built(cause: Cause, spots: Sequence[Spot], mask: Mask) -> Cause:
    """Return a cause with the operation and the operand names of the graph as built."""
    for spot in spots:
        other = restated(cause, spot, mask)
        if other is not cause:
            other = with_hint(other, unless=WITHOUT_TRIAL)
            known = cause.provenance.own_source
            return other if known else replace(other, provenance=_placed(other, spot.node))
    return cause


def _undecided(provenance: Provenance, lines: tuple[SourceLine, ...]) -> Provenance:
    """Return the provenance of a gradient that may be the derivative of several operations."""
    backward = provenance.backward and replace(
        provenance.backward, forward=None, forward_name=None, forward_source=None
    )
    return replace(provenance, candidates=lines, backward=backward)


def _placed(cause: Cause, node: Apply) -> Provenance:
    """Return the provenance of a cause, with the line of the operation in the graph as built."""
    # (PyMC rewrites a graph before it compiles it; its records say more than its stack traces)
    provenance, built = cause.provenance, lookup(None, node.outputs[0])
    line = built.source
    if line is None or not built.own_source:
        return provenance
    if line == provenance.source:  # (which may also know the pass of the user's loop)
        return replace(provenance, candidates=())
    backward = provenance.backward
    if backward is None:
        same = op_name(node.op) == cause.op
        certain = replace(provenance, source=line, own_source=True, candidates=())
        return certain if same else provenance
    forward = replace(
        backward,
        forward=str(node.op),
        forward_name=node.outputs[0].name or backward.forward_name,
        forward_source=line,
    )
    return replace(provenance, backward=forward)


def _tripped_place(case: Case, scope: Scope) -> tuple[Place | None, str | None]:
    """Return the bad element in the replay, or None and the reason."""
    trip = case.trip
    try:
        for frame in trip.frames:
            scope = scope.inner(frame.node, frame.step, frame.fgraph)
        value = culprit.dense(scope.replay.value(trip.variable))
    except Exception as error:  # a user-defined op may raise anything when it runs again
        if scope.replay.interrupted()[1] is None:  # (no operation was running)
            raise
        return None, f"{not_reproduced(trip)} The replay ended in {type(error).__name__}: {error}"
    if is_numeric(value):
        bad = np.asarray(case.mask(value))
        index = tuple(trip.event.first_index)
        inside = len(index) == bad.ndim and np.all(np.less(index, bad.shape))
        if inside and bad[index]:
            return Place(scope, trip.variable, index), None
        if bad.any():
            index = tuple(int(i) for i in np.argwhere(bad)[0])
            return Place(scope, trip.variable, index), None
    return None, not_reproduced(trip)


def not_reproduced(trip: Trip) -> str:
    """Return why there is no more to say than what the live call showed."""
    reason = "one of them is not deterministic, or reads memory that nothing has written"
    if trip.kernels:
        reason += ", or the backend computes some of them together and gets another result"
    return (
        "Running the operations of the call again did not give a bad value here:"
        f" {reason}. What follows is what the live call showed."
    )


def _is_before(one: Origin, other: Origin) -> bool:
    """Whether two origins at the same place are different steps to the same element."""

    def step_of(origin: Origin) -> Any:
        if origin.made is None:
            return None
        step = origin.made.step  # (all steps of a Composite inside a Composite share one node)
        return step.node, step.op, repr(step.operands)

    # (the terms of a fused reduction are different elements)
    same_element = (one.made and one.made.index) == (other.made and other.made.index)
    return same_element and step_of(one) != step_of(other)


def _live_cause(trip: Trip) -> Cause:
    node, bare = trip.variable.owner, _bare_cause(trip)
    known = bare.provenance
    array = np.asarray(culprit.dense(trip.value))  # (holds None if no value was kept)
    low, high = finite_range(array) if is_numeric(array) else (None, None)
    own_name = known.name if known.own_name else None
    operands = tuple(
        Operand(name_of(v), None, (...,), tuple(v.type.shape), v.type.dtype)
        for v in (node.inputs if node is not None else ())
        if hasattr(v.type, "dtype") and hasattr(v.type, "shape")
    )
    return replace(
        bare,
        op=None if node is None else op_name(node.op),
        name=own_name or name_of(trip.variable),
        own_name=bool(own_name),
        expression=name_of(trip.variable),
        operands=operands,
        minimum=low,
        maximum=high,
    )


def _bare_cause(trip: Trip) -> Cause:
    """Return a cause with no more than the event and the user's line."""
    event, fgraph = trip.event, trip.frames[-1].fgraph if trip.frames else trip.fgraph
    provenance = attempt("the line", Provenance(None), lookup, fgraph, trip.variable)
    name = event.variable or event.op or event.role
    return Cause(
        event.kind,
        event.role,
        event.op,
        event.node,
        fused=False,
        name=name,
        own_name=event.variable is not None,
        expression=name,
        operands=(),
        index=event.first_index,
        value=event.first_value,
        shape=event.shape,
        dtype=event.dtype,
        n_bad=event.n_bad,
        size=event.size,
        minimum=None,
        maximum=None,
        provenance=provenance,
        path=event.path,
    )


def feeds(fgraph: FunctionGraph, variables: Sequence[Variable]) -> tuple[str, ...]:
    """Return the outputs and updates of a function that are computed from some variables.

    They are named "output loss", or "output 1" (from 0) if it has no name, and "update of w".
    """

    def readers(variable: Variable) -> list[Variable]:
        clients = fgraph.clients.get(variable, ())
        return [v for node, _ in clients for v in getattr(node, "outputs", ())]

    reached = set(walk(variables, readers))
    named = (_output_name(fgraph, i) for i, out in enumerate(fgraph.outputs) if out in reached)
    known = ("update of ", "the ")
    return tuple(name if name.startswith(known) else f"output {name}" for name in named)


def _output_name(fgraph: FunctionGraph, position: int) -> str:
    """Return the name of an output; its number if it has none; for an update, "update of w"."""
    updates = getattr(fgraph, "update_mapping", None) or {}
    if position in updates:
        return f"update of {name_of(fgraph.inputs[updates[position]])}"
    known = lookup(fgraph, fgraph.outputs[position])
    is_own = known.name and (known.own_name or known.name.startswith("the "))
    name = known.name if is_own and known.name else str(position)
    return "the log-density" if name.startswith(LOG_DENSITY) else name


def fate_of(replay: Replay, variable: Variable, mask: Mask) -> Fate:
    """Return whether a bad value reaches an output or update, or which nodes mask it."""
    masked_by, seen, reached, todo = [], set(), {variable}, [variable]
    while todo:
        for node, _ in replay.fgraph.clients.get(todo.pop(), ()):
            if node in seen or not getattr(node, "outputs", ()):
                continue
            seen.add(node)
            spoiled = [v for v in node.outputs if culprit.holds(replay.value(v), mask)]
            reached.update(spoiled)
            todo += spoiled
            if not spoiled:
                masked_by.append(user_op(lookup(replay.fgraph, node.outputs[0]), node))
    outputs = tuple(name_of(out) for out in replay.fgraph.outputs if out in reached)
    return Fate(bool(outputs), outputs, tuple(masked_by))
