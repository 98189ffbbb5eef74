"""Witnesses for the findings of the rules, and findings for witnesses that no rule foresaw."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytensor
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors, graph_inputs

from theanoguard._backends import backends
from theanoguard._evaluate.replay import Replay
from theanoguard._graph import scalar_class, viewed
from theanoguard._lint.bounds import Bounds
from theanoguard._lint.evidence import find_evidence
from theanoguard._lint.finding import Finding, Static, reported
from theanoguard._lint.rules import RISKS
from theanoguard._lint.witness import Fault, Program, Search, Watched, rewrite_behind
from theanoguard._provenance import SourceLine
from theanoguard._provenance.designating import made_by_grad
from theanoguard._pytensor import Scan, is_numeric, is_sparse
from theanoguard._pytensor.labelled import unlabelled
from theanoguard._steps import ForeignError, foreign
from theanoguard.explain.advice.formulas import formula_for
from theanoguard.explain.advice.hints import GENERAL, advice
from theanoguard.guard.pausing import twin_of, without_watchers
from theanoguard.operations.names import op_name

SECONDS = 3.0  # how long lint searches one graph for inputs


@dataclass(frozen=True)
class Asked:
    """What is known of the inputs, and how the function is compiled."""

    bounds: Mapping[Variable, Bounds] = field(default_factory=dict)
    examples: Sequence[Mapping[Variable, Any]] = ()
    gradient: bool | None = None  # as for :func:`~theanoguard.lint`
    mode: Any = None
    seconds: float = SECONDS
    seed: int = 0
    compile: Callable[..., Any] = pytensor.function  # as ``pytensor.function``
    #: From the results of a call to the positions of those that must be finite.
    watched: Watched | None = None
    infinite_is_bad: bool = True  # whether an infinity that the formula has is a fault
    names: Sequence[str] = ()  # of the results
    everything: bool = False  # whether to look for what fails on other backends as well


class NotSearched(ValueError):
    """A graph cannot be searched for inputs at which it fails."""

    @property
    def short(self) -> str:
        """The reason in one line."""
        return str(self).partition("\n")[0].removeprefix("lint() ")


def unless_rejected(results: list[Any]) -> Collection[int]:
    """Return which results matter: if the first is a number and not finite, no other.

    Where a log-density or a loss is not finite, nobody uses its gradient.

    Examples
    --------
    >>> unless_rejected([np.array(-np.inf), np.array([np.nan])])
    (0,)
    >>> unless_rejected([np.array(1.0), np.zeros(2)])
    (0, 1)
    """
    first = np.asarray(results[0]) if results else np.empty(0)
    is_rejected = first.ndim == 0 and first.dtype.kind == "f" and not np.isfinite(first)
    return (0,) if is_rejected else tuple(range(len(results)))


def witnessed(
    outputs: Sequence[Variable],
    updates: Mapping[Variable, Variable],
    static: Sequence[Static],
    asked: Asked,
    ignore: Iterable[str] = (),
) -> list[Finding]:
    """Search a graph, and return the findings, those with a witness first.

    Raises ``NotSearched``: if the graph fails at every input that was tried, or takes inputs that
    are no arrays.
    """
    search = search_of(outputs, updates, asked)
    if search is None:
        return reported([one.finding for one in static], ignore)
    known = search.program.written.variables
    outside = [one.around[0].outputs[0] if one.around else one.variable for one in static]
    targets = [_target(one) for one, v in zip(static, outside, strict=True) if v in known]
    search.run([target for target in targets if target is not None])
    ensure_ran(search)
    faults = list(search.faults.values())
    found: dict[Finding, None] = {}
    used: set[int] = set()
    for fault in faults:
        position = _matching(fault, static)
        remark = _remark_of(fault)
        if position is None:
            finding = replace(_unforeseen(fault), witness=fault.witness, remark=remark)
        else:
            used.add(position)
            known = static[position].finding
            source = known.source or fault.line
            finding = replace(known, source=source, witness=fault.witness, remark=remark)
        one = None if position is None else static[position]
        found.setdefault(replace(finding, write=_write(fault, one, search.program)))
    for fault in search.flushed.values():
        finding = replace(_unforeseen(fault), remark=_on_flushing_backends(fault))
        found.setdefault(finding)
    for position, one in enumerate(static):
        if position not in used and one.finding not in found:
            found[replace(one.finding, remark=_without_witness(one, search))] = None
    return reported(found, ignore)


def search_of(
    outputs: Sequence[Variable], updates: Mapping[Variable, Variable], asked: Asked
) -> Search | None:
    """Return the search for a graph, or None if it computes nothing.

    Raises ``NotSearched``: if no values of its inputs can be made up.
    """
    plain = without_watchers([*outputs, *updates.values()])
    computed = map(_unwrapped, unlabelled(plain))
    results = [v for v in dict.fromkeys(computed) if v.owner and is_numeric(v.type)]
    roots = [
        v
        for v in dict.fromkeys(graph_inputs(results))
        if not isinstance(v, Constant | SharedVariable)
    ]
    if not results:
        return None
    if other := [v for v in roots if not _is_array(v.type)]:
        raise NotSearched(
            f"lint() cannot make up values of the input {other[0].name or other[0]}, of the type "
            f"{other[0].type}.\nWith seconds=0, lint checks its rules alone."
        )
    names = list(asked.names) or [v.name or f"output {i}" for i, v in enumerate(results)]
    slopes = _gradients(results, roots, asked.gradient)
    program = Program(
        roots,
        [*results, *slopes.values()],
        [*names, *(f"the gradient for {v.name or 'an input'}" for v in slopes)],
        twin_of(asked.mode),
        asked.compile,
        asked.watched,
    )
    evidence = find_evidence(roots, results, asked.bounds, asked.examples)
    return Search(
        program,
        evidence,
        asked.seconds,
        asked.seed,
        asked.infinite_is_bad,
        searches_flushed=asked.everything,
    )


def _unwrapped(variable: Variable) -> Variable:
    """Return the tensor that a labelled array is made of, or the variable itself."""
    made = variable.owner
    is_wrapped = made is not None and not is_numeric(variable.type) and len(made.inputs) == 1
    return made.inputs[0] if is_wrapped and is_numeric(made.inputs[0].type) else variable


def _is_array(kind: Any) -> bool:
    """Whether values of a Type are arrays, labelled or not, that can be made up."""
    dtype = getattr(kind, "dtype", None)
    is_plain = isinstance(dtype, str) and np.dtype(dtype).kind in "fiub"
    return is_plain and hasattr(kind, "shape") and not is_sparse(kind)


def _gradients(
    results: Sequence[Variable], roots: Sequence[Variable], gradient: bool | None
) -> dict[Variable, Variable]:
    """Return the gradients of a graph for its inputs and shared variables."""
    nodes = {v.owner for v in ancestors(list(results)) if v.owner is not None}
    if gradient is False or (gradient is None and any(map(made_by_grad, nodes))):
        return {}
    real = [v for v in results if str(getattr(v.type, "dtype", "")).startswith("float")]
    shared = [v for v in ancestors(real) if isinstance(v, SharedVariable)]
    wrt = [
        v
        for v in dict.fromkeys([*roots, *shared])
        if str(getattr(v.type, "dtype", "")).startswith("float")
    ]
    if not real or not wrt:
        return {}
    cost = sum(v.sum() for v in real) if len(real) > 1 else real[0].sum()
    try:
        with foreign():
            slopes = pytensor.grad(cost, wrt, disconnected_inputs="ignore")
    except ForeignError:  # no gradient, or one of the user's own that raises: nobody takes it
        return {}
    return dict(zip(wrt, slopes, strict=True))


def _target(one: Static) -> Callable[[Replay], float] | None:
    """Return what is small where an operand is near to where its operation fails."""
    node = one.variable.owner
    kind = None if node is None else scalar_class(one.variable)
    if kind not in RISKS:
        return None
    risk = RISKS[kind]
    operand = node.inputs[risk.operand]

    def distance(replay: Replay) -> float:
        runs = _executions(replay, one.around)
        values = [np.ravel(np.asarray(run.value(operand), float)) for run in runs]
        value = np.concatenate([np.empty(0), *values])
        value = value[np.isfinite(value)]
        if not value.size:
            return np.inf
        return float(_DISTANCES.get(risk.rule, np.min)(value))

    return distance


def _executions(replay: Replay, around: Sequence[Any]) -> Iterator[Replay]:
    """Yield each execution of a graph inside of nodes: of a loop, each step."""
    if not around:
        yield replay
        return
    node, *within = around
    inside = replay.inner(node, node.op.fgraph)
    for step in range(inside.steps_done()) if isinstance(node.op, Scan) else (None,):
        yield from _executions(inside.at(step), within)


_DISTANCES: dict[str, Callable[[np.ndarray], float]] = {
    "exp-overflow": lambda value: -value.max(),
    "division-by-zero": lambda value: np.abs(value).min(),
    "arc-out-of-range": lambda value: -np.abs(value).max(),
}
"""What is small near a failure, by rule; for the other rules, the smallest element is."""


def _matching(fault: Fault, static: Sequence[Static]) -> int | None:
    """Return the position of the finding of the rules that a fault confirms."""
    line = fault.line
    forward = fault.provenance.backward and fault.provenance.backward.forward
    ops = {fault.op, *([forward.lower()] if forward else [])}
    same = [i for i, one in enumerate(static) if fault.variable in _blamed(one)]
    near = [i for i, one in enumerate(static) if _is_same_line(one.finding.source, line)]
    exact = [i for i in near if static[i].variable.owner and _op(static[i].variable) in ops]
    return next(iter([*same, *exact, *near]), None)


def _blamed(one: Static) -> list[Any]:
    """Return the variables that a finding of a rule blames: of a bad constant, the operands."""
    made = one.variable.owner
    is_constant = one.finding.rule == "bad-constant" and made is not None
    return [one.variable, *(map(viewed, made.inputs) if is_constant else ())]


def _op(variable: Any) -> str:
    return op_name(variable.owner.op).lower()


def _is_same_line(one: SourceLine | None, other: SourceLine | None) -> bool:
    if one is None or other is None:
        return False
    return (one.file, one.line) == (other.file, other.line)


def _formula_for(fault: Fault, blamed: Sequence[Any], program: Program) -> str | None:
    """Return the formula that has the value which the arithmetic has lost, or None.

    `blamed`: variables around which the formula is searched.
    """
    if fault.witness.kind != "arithmetic" or fault.by_rewriting:
        return None
    replay = program.replay(fault.values)
    found = (formula_for(program.written, v, replay, FORMULA_SECONDS) for v in blamed)
    return next((f"{code} in place of {old}" for code, old in filter(None, found)), None)


FORMULA_SECONDS = 0.5  # processor time that the search for the formula of a finding may take

_UNFORESEEN = {
    "overflow": ("overflow", "{op} overflows"),
    "arithmetic": ("overflow", "{op} overflows or underflows on the way"),
    "no value": ("no-value", "{op} has no value"),
    "pole": ("no-value", "{op} is infinite"),
}


def _unforeseen(fault: Fault) -> Finding:
    """Return a finding for a fault that no rule foresaw."""
    rule, why = _UNFORESEEN[fault.witness.kind]
    line = fault.line
    line = None if line is None else replace(line, callers=(), loop=None)
    return Finding(rule, line, why.format(op=fault.op), _advice(fault, None))


def _write(fault: Fault, one: Static | None, program: Program) -> str:
    """Return what to write instead: a formula that has the value, or else the advice."""
    blamed = [fault.variable, *([] if one is None else [one.variable])]
    return _formula_for(fault, blamed, program) or _advice(fault, one)


def _advice(fault: Fault, one: Static | None) -> str:
    """Return advice on a fault by what the formula has there; `one` is what the rules say."""
    kind = fault.witness.kind
    if kind == "overflow":
        return GENERAL["too large"]
    is_backward = fault.provenance.backward is not None
    if one is not None and not (one.key == "cancellation" and kind in ("no value", "pole")):
        return one.finding.write
    if one is not None and not is_backward:  # (the difference itself is negative)
        return advice(f"{fault.op}-negative", fault.op)
    if is_backward:
        return advice("gradient-at-zero", "true_div")
    if kind == "arithmetic":
        return "Scale the operands, or compute with their logarithms."
    return "Keep the operands within the domain of the operation."


def _remark_of(fault: Fault) -> str:
    if not fault.by_rewriting:
        return ""
    reasons = [s.reason for s in fault.provenance.history]
    which = f" ({reasons[0]})" if reasons else ""
    return f"made by rewriting{which}: the graph as you wrote it is finite there"


def _on_flushing_backends(fault: Fault) -> str:
    """Return on which backends a fault holds that takes subnormal numbers for 0."""
    titles = " and ".join(b.title for b in backends().values() if b.flushes_subnormals)
    return f"holds on {titles}, where subnormal numbers count as 0: {fault.witness}"


def _without_witness(one: Static, search: Search) -> str:
    source = one.finding.source
    place = None if source is None else (source.file, source.line)
    made = one.variable.owner
    is_gradient = one.finding.rule == "masked-gradient"
    for line, op in search.repaired:
        if line == place and made and (is_gradient or op.lower() == _op(one.variable)):
            rewrite = rewrite_behind(search.program, source, op)
            which = f" (rewrite {rewrite})" if rewrite else ""
            return f"repaired by this mode{which}"
    return f"no input found in {search.tried} tries"


def ensure_ran(search: Search) -> None:
    """Check that a search has computed something.

    Raises ``NotSearched``.
    """
    if not search.tried and search.error is None:
        raise NotSearched("lint() had no time to try an input.\nRaise seconds=.")
    if search.error is None or search.faults or search.ran:
        return
    inputs = ", ".join(
        f"{v.name or v}: {r.dtype} {r.shape}" for v, r in search.evidence.ranges.items()
    )
    first = str(search.error).strip().splitlines()[:1]
    raise NotSearched(
        f"lint() cannot run the graph: {type(search.error).__name__}: {''.join(first)}\n"
        f"It tried the inputs {inputs}.\n"
        "Give inputs that fit: examples={variable: value}."
    ) from search.error
