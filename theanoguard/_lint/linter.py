"""Finding inputs at which a graph fails, and risky patterns in it."""

import builtins
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from pytensor.compile.mode import Mode
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors, graph_inputs

from theanoguard._arguments import (
    NotNegative,
    check_mode,
    checked,
    did_you_mean,
    pairs_of,
    refuse,
)
from theanoguard._compare.problem import without_damage
from theanoguard._lint.bounds import Bounds, of_array, of_arrays
from theanoguard._lint.finding import Finding, Findings, Static, reported
from theanoguard._lint.matching import SECONDS, Asked, witnessed
from theanoguard._lint.propagate import GraphBounds
from theanoguard._lint.rules import RULES
from theanoguard._lint.view import GraphView
from theanoguard._progress import searching
from theanoguard._provenance import SourceLine, attach, lookup, module_of, source_place, tracker_of
from theanoguard._provenance.records import user_line
from theanoguard._pytensor import Function, OpFromGraph, Scan, is_numeric, predefined_modes
from theanoguard._pytensor.labelled import unlabelled
from theanoguard.explain.advice.hints import with_module
from theanoguard.explain.advice.written import in_users_words


@checked
@searching("lint")
def lint(
    graph: Any,  # (checked below, with advice)
    *,
    updates: Mapping[Variable, Variable] | Iterable[tuple[Variable, Variable]] | None = None,
    params: Sequence[Variable] = (),
    bounds: Mapping[Variable, Any] | None = None,
    examples: Mapping[Variable, Any] | Sequence[Mapping[Variable, Any]] = (),
    shared_values: bool = False,
    gradient: bool | None = None,
    ignore: Iterable[str] = (),
    mode: str | Mode | None = None,
    all: bool = False,
    seconds: NotNegative = SECONDS,
    seed: int = 0,
) -> list[Finding]:
    """Find inputs at which a function fails, or gives a result that its formula does not have.

    Lint looks for an input at which a result, or a gradient, is NaN or infinite in the function
    that your mode compiles.  It reports a finding only with such an input.

    Parameters
    ----------
    graph : Variable, list of Variable, FunctionGraph or Function
        The outputs as you wrote them, or a compiled function.  The graph of a function as you wrote
        it is known if the function was compiled inside :func:`track_provenance` or under a guard.
    updates : dict or list of pairs, optional
        As for ``pytensor.function``.
    params : list of Variable, optional
        Parameters.  A gradient must reach each of them.
    bounds : dict of Variable to (float, float), optional
        Smallest and largest element of inputs and shared variables.
    examples : dict of Variable to value, or list of dict, optional
        Inputs of calls.  Their smallest and largest elements are the bounds of inputs without
        others, and their shapes are used.
    shared_values : bool
        Take the bounds of a shared variable from its present value, unless the graph updates it.
        The search for inputs always uses the present values.
    gradient : bool, optional
        Whether you take gradients of the graph.  If True, lint also searches gradients, and reports
        operations whose value is finite and whose gradient is not, such as ``sqrt(x ** 2)`` at 0.
        By default, lint looks at the gradients that the graph contains, and at all if it contains
        none.
    ignore : list of str
        Names of rules to switch off.  The comment ``# theanoguard: ignore[log-of-zero]`` on the
        user's line switches off a rule for that line.  Without the bracket it switches off all
        rules.
    mode : str or Mode, optional
        The mode in which you compile the function.
    all : bool
        Also report operations for which lint has found no such input.  The remark of a finding
        says whether your mode repairs it.
    seconds : float
        Seconds of processor time that the search may take.  With 0, lint does not search, and
        reports as with ``all=True``.
    seed : int
        Of the random inputs.

    Returns
    -------
    list of Finding
        In the order in which the graph computes.  Findings with a witness come first.

    Raises
    ------
    TypeError
        If `graph` is not a graph.
    ValueError
        For an unknown rule, for bounds that contradict each other, or if the graph fails at every
        input that was tried.

    Notes
    -----
    If nothing bounds an input, its elements lie between -1000 and 1000.  In float64, magnitudes up
    to 1e7 and down to 1e-150 are tried for faults of the arithmetic.  If a shared variable is not
    negative and its update cannot make it negative, it counts as not negative.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> from theanoguard import lint
    >>> n = pt.vector("n")
    >>> [finding] = lint(pt.log(n), mode="FAST_COMPILE")
    >>> finding.rule, finding.witness.inputs
    ('log-of-zero', {'n': array([0., 0., 0.])})
    >>> lint(pt.log(n), mode="FAST_COMPILE", bounds={n: (1, 100)})
    []

    The finding behind ``all=True`` says that a rewrite repairs it:

    >>> z = pt.vector("z")
    >>> loss = -pt.log(pt.special.softmax(z)).mean()
    >>> lint(loss, mode="FAST_RUN", gradient=False)
    []
    >>> [finding] = lint(loss, mode="FAST_RUN", gradient=False, all=True)
    >>> finding.remark
    'repaired by this mode (rewrite local_logsoftmax)'
    """
    check_mode("lint", mode, predefined_modes)
    outputs, own_updates, own_mode = _opened(graph)
    updates = pairs_of("lint", updates or {}) or own_updates
    results = [*outputs, *updates.values(), *params]
    values = {v: v.get_value(borrow=True) for v in ancestors(results) if _is_shared_array(v)}
    for v in updates:
        if _is_shared_array(v):
            values[v] = v.get_value(borrow=True)
    calls = [examples] if isinstance(examples, Mapping) else list(examples)
    found = lint_values(
        outputs,
        updates,
        values,
        params=params,
        bounds=bounds,
        shared_values=shared_values,
        gradient=gradient,
        ignore=ignore,
        ranges=ranges_of(calls),
    )
    if seconds <= 0:
        return Findings(reported([static.finding for static in found], ignore))
    asked = Asked(
        bounds={v: Bounds(float(lo), float(hi)) for v, (lo, hi) in (bounds or {}).items()},
        examples=calls,
        gradient=gradient,
        mode=own_mode if mode is None else mode,
        seconds=seconds,
        seed=seed,
        everything=all,
    )
    findings = witnessed(outputs, updates, found, asked, ignore)
    return Findings(f for f in findings if all or f.witness is not None)


def lint_values(
    outputs: Sequence[Variable],
    updates: Mapping[Variable, Variable],
    values: Mapping[Variable, Any],
    *,
    params: Sequence[Variable] = (),
    bounds: Mapping[Variable, Any] | None = None,
    shared_values: bool = False,
    gradient: bool | None = None,
    ignore: Iterable[str] = (),
    ranges: Mapping[Variable, Bounds] | None = None,
) -> list[Static]:
    """:func:`lint`, for a graph the values of whose shared variables are given.

    - `params`, `bounds`, `shared_values`, `gradient`, `ignore`: as for :func:`lint`.
    - `ranges`: what other evidence says of inputs.
    - Returns: also of rules that are switched off.
    """
    ignore = [ignore] if isinstance(ignore, str) else list(ignore)
    if unknown := [rule for rule in ignore if rule not in RULES]:
        near = did_you_mean(unknown[0], RULES)
        problem = f"there is no rule {unknown[0]!r}{near}\nThe rules are {', '.join(RULES)}."
        raise refuse("lint", "ignore", unknown[0], problem)
    for v, pair in (bounds or {}).items():
        is_pair = np.shape(pair) == (2,) and np.asarray(pair).dtype.kind in "fiub"
        if not (is_pair and pair[0] <= pair[1]):
            expected = f"the bounds of {v} must be a pair (smallest, largest)"
            raise refuse("lint", "bounds", {v: pair}, expected)
    computed = unlabelled([*outputs, *updates.values()])
    outputs, news = computed[: len(outputs)], computed[len(outputs) :]
    updates = dict(zip(updates, news, strict=True))
    known = dict(ranges or {})
    known |= {v: Bounds(float(lo), float(hi)) for v, (lo, hi) in (bounds or {}).items()}
    if shared_values:
        kept = {v: of_array(value) for v, value in values.items() if v not in updates}
        known = {**kept, **known}
    known = _with_invariants(known, updates, values)
    view = GraphView(
        outputs,
        GraphBounds(known),
        gradient,
        updates=updates,
        params=params,
        values=values if shared_values else {},
    )
    return list({static.finding: static for static in _findings(view)}.values())


def with_lines(found: list[Static], results: list[Variable]) -> list[Static]:
    """Give each finding that has no line the line of the nearest variable.

    A package which was called with variables has built their operations: PyMC, for a model.
    """
    if builtins.all(one.finding.source for one in found):
        return found
    graph = FunctionGraph(list(graph_inputs(results)), results, clone=False)
    attach(graph)
    lined = []
    for one in found:
        if one.finding.source is None and one.variable in graph.variables:
            line = user_line(lookup(graph, one.variable))
            line = None if line is None else replace(line, callers=(), loop=None)
            one = replace(one, finding=replace(one.finding, source=line), is_own=False)
        lined.append(one)
    return lined


def _opened(graph: Any) -> tuple[list[Variable], dict[Variable, Variable], Any]:
    """Return the outputs and the updates of what was handed to lint, and its mode."""
    if isinstance(graph, Function):
        return _of_function(graph)
    if isinstance(graph, FunctionGraph):
        works_in_place = builtins.any(node.op.destroy_map for node in graph.apply_nodes)
        return _on_copies(graph) if works_in_place else list(graph.outputs), {}, None
    outputs = [graph] if isinstance(graph, Variable) else graph
    if isinstance(outputs, list | tuple) and builtins.all(isinstance(v, Variable) for v in outputs):
        return list(outputs), {}, None
    raise TypeError(
        f"lint() takes variables, a FunctionGraph or a Function, not {type(graph).__name__}.\n"
        "Give it the outputs, and `updates=`, that pytensor.function was given."
    )


def _on_copies(fgraph: FunctionGraph) -> list[Variable]:
    """Return the outputs of a compiled graph, computed so that no input is overwritten."""
    new = without_damage(fgraph, fused=False)
    return [new.get(v, v) for v in fgraph.outputs]


def _of_function(fn: Any) -> tuple[list[Variable], dict[Variable, Variable], Any]:
    fgraph = fn.maker.fgraph
    tracker = tracker_of(fgraph)
    if tracker is not None and tracker.original_outputs:
        outputs, _ = tracker.before()
    else:
        outputs = _on_copies(fgraph)
    kept = dict(zip(fgraph.inputs, fn.maker.inputs, strict=True))
    known = {v: kept[v].variable for v in fgraph.inputs if kept[v].variable is not v}
    outputs = clone_replace(outputs, known) if known else outputs
    n_own = len(fn.maker.outputs)
    updates = {
        kept[fgraph.inputs[i]].variable: outputs[o] for o, i in fgraph.update_mapping.items()
    }
    return list(outputs[:n_own]), updates, fn.maker.mode


def ranges_of(examples: Sequence[Mapping[Variable, Any]]) -> dict[Variable, Bounds]:
    """Return the bounds of the values that inputs had in calls."""
    known = dict.fromkeys(v for example in examples for v in example)
    return {v: of_arrays([e[v] for e in examples if v in e]) for v in known}


def _is_shared_array(variable: Variable) -> bool:
    return isinstance(variable, SharedVariable) and is_numeric(variable.type)


def _with_invariants(
    known: Mapping[Variable, Bounds],
    updates: Mapping[Variable, Variable],
    values: Mapping[Variable, Any],
) -> dict[Variable, Bounds]:
    """Add what updates cannot change: that a value which is not negative stays so."""
    sure = {v for v in updates if v in values and v not in known and of_array(values[v]).lo >= 0}
    while sure:
        found = GraphBounds({**known, **dict.fromkeys(sure, Bounds(lo=0.0))})
        broken = {v for v in sure if found[updates[v]].lo < 0}
        if not broken:
            break
        sure -= broken
    return {**known, **dict.fromkeys(sure, Bounds(lo=0.0))}


def _findings(
    view: GraphView, around: tuple[Apply, ...] = (), loop: SourceLine | None = None
) -> Iterator[Static]:
    """The findings of a graph and of the graphs inside its nodes."""
    fgraph = around[-1].op.fgraph if around else None
    for rule in RULES.values():
        for found in rule.check(view):
            line = _line(found.variable, fgraph) or loop
            write = with_module(found.write, module_of(found.variable))
            if line is not None:
                write = in_users_words(write, line.file, line.text)
            finding = Finding(rule.name, line, found.why, write)
            yield Static(finding, found.variable, around=around, key=found.key)
    for node in view.nodes:
        if node in view.backward or not _is_users(node.op):
            continue
        line = _line(node.outputs[0], fgraph) or loop
        yield from _findings(view.inside(node), (*around, node), line)


def _is_users(op: Op) -> bool:
    """Whether an op has an inner graph that is the user's; PyTensor has some of its own."""
    own = type(op).__module__.partition(".")[0] != "pytensor"
    return type(op) in (Scan, OpFromGraph) or (own and isinstance(op, OpFromGraph))


def _line(variable: Variable, fgraph: FunctionGraph | None) -> SourceLine | None:
    line = source_place(variable)
    if line is None and fgraph is not None and variable.owner is not None:
        line = lookup(fgraph, variable).source
    return None if line is None else replace(line, callers=(), loop=None)
