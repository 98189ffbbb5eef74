"""Finding risky patterns in a graph without running it."""

import linecache
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import ancestors

from theanoguard._arguments import checked, did_you_mean, refuse
from theanoguard._lint.bounds import Bounds, of_array
from theanoguard._lint.propagate import GraphBounds
from theanoguard._lint.rules import RULES
from theanoguard._lint.view import GraphView
from theanoguard._provenance import SourceLine, lookup, module_of, source_place
from theanoguard._provenance.places import place_text, source_lines, text_width
from theanoguard._pytensor import OpFromGraph, Scan, is_numeric
from theanoguard._pytensor.labelled import unlabelled
from theanoguard._shown import brief
from theanoguard.explain.advice.hints import with_module


@brief
@dataclass(frozen=True)
class Finding:
    """An operation that may become NaN or infinite.

    Parameters
    ----------
    rule : str
        Name of the rule, a key of ``theanoguard.records.RULES``.
    source : SourceLine or None
        The user's line.  None if PyTensor has kept no stack trace.
    why : str
        What may go wrong.
    write : str
        What to write instead.

    Examples
    --------
    >>> from theanoguard import Finding
    >>> from theanoguard.records import SourceLine
    >>> line = SourceLine("model.py", 7, "<module>", "y = pt.log(x)")
    >>> print(Finding("log-of-zero", line, "x must be positive", "log(x + eps)"))
    model.py:7: log-of-zero: x must be positive
        y = pt.log(x)
        write: log(x + eps)
    """

    rule: str
    source: SourceLine | None
    why: str
    write: str

    def __str__(self):
        if self.source is None:
            where, text = "(line not known)", ""
        else:
            line = replace(self.source, function="<module>")
            where = place_text(line)
            below = source_lines(line, text_width())[1:] or [f"  {line.text}"] * bool(line.text)
            text = "".join(f"\n  {shown}" for shown in below)
        advice = textwrap.fill(
            f"write: {self.write}",
            text_width(),
            initial_indent=" " * 4,
            subsequent_indent=" " * 6,
            break_long_words=False,
            break_on_hyphens=False,
        )
        return f"{where}: {self.rule}: {self.why}{text}\n{advice}"


@checked
def lint(
    graph: Any,  # (checked below, with advice)
    *,
    updates: Mapping[Variable, Any] | Iterable[tuple[Variable, Any]] | None = None,
    params: Sequence[Variable] = (),
    bounds: Mapping[Variable, Any] | None = None,
    shared_values: bool = False,
    gradient: bool | None = None,
    ignore: Iterable[str] = (),
) -> list[Finding]:
    """Find risky patterns in a graph, without running or compiling it.

    Parameters
    ----------
    graph : Variable, list of Variable, or FunctionGraph
        The outputs as you wrote them.  PyTensor's rewrites repair some patterns in some modes.
    updates : dict or list of pairs, optional
        As for ``pytensor.function``.
    params : list of Variable, optional
        Parameters.  A gradient must reach each of them.
    bounds : dict of Variable to (float, float), optional
        Smallest and largest element of inputs and shared variables.
    shared_values : bool
        Take the bounds of a shared variable from its present value, unless the graph updates it.
    gradient : bool, optional
        Whether you take gradients of the graph.  If True, lint also reports operations whose value
        is finite and whose gradient is not, such as ``sqrt(x ** 2)`` at 0.  By default, lint
        reports them where the graph contains their gradient, and everywhere if it contains no
        gradient.
    ignore : list of str
        Names of rules to switch off.  The comment ``# theanoguard: ignore[log-of-zero]`` on the
        user's line switches off a rule for that line.  Without the bracket it switches off all
        rules.

    Returns
    -------
    list of Finding
        In the order in which the graph computes.

    Raises
    ------
    TypeError
        If `graph` is not a graph, such as a compiled function.
    ValueError
        For an unknown rule.

    Notes
    -----
    If a shared variable is not negative and its update cannot make it negative, it counts as not
    negative.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> from theanoguard import lint
    >>> n = pt.vector("n")
    >>> [finding.rule for finding in lint(pt.log(n))]
    ['log-of-zero']
    >>> lint(pt.log(pt.sqr(n) + 1e-6))
    []
    >>> lint(pt.log(n), bounds={n: (1, 100)})
    []
    """
    outputs = _outputs_of(graph)
    updates = dict(updates or {})  # type: ignore[arg-type]
    if wrong := [new for new in updates.values() if not isinstance(new, Variable)]:
        raise refuse("lint", "updates", wrong[0], "the values of updates must be variables")
    results = [*outputs, *updates.values(), *params]
    values = {v: v.get_value(borrow=True) for v in ancestors(results) if _is_shared_array(v)}
    for v in updates:
        if _is_shared_array(v):
            values[v] = v.get_value(borrow=True)
    return lint_values(
        outputs,
        updates,
        values,
        params=params,
        bounds=bounds,
        shared_values=shared_values,
        gradient=gradient,
        ignore=ignore,
    )


def lint_values(
    outputs,
    updates,
    values,
    *,
    params=(),
    bounds=None,
    shared_values=False,
    gradient=None,
    ignore=(),
):
    """:func:`lint`, for a graph the values of whose shared variables are given.

    Parameters
    ----------
    outputs : list of Variable
    updates : dict of Variable to Variable
    values : dict of Variable to array
    params, bounds, shared_values, gradient, ignore
        As for :func:`lint`.

    Returns
    -------
    list of Finding
    """
    ignore = [ignore] if isinstance(ignore, str) else list(ignore)
    if unknown := [rule for rule in ignore if rule not in RULES]:
        near = did_you_mean(unknown[0], RULES)
        problem = f"there is no rule {unknown[0]!r}{near}\nThe rules are {', '.join(RULES)}."
        raise refuse("lint", "ignore", unknown[0], problem)
    for v, pair in (bounds or {}).items():
        if not (np.shape(pair) == (2,) and pair[0] <= pair[1]):
            expected = f"the bounds of {v} must be a pair (smallest, largest)"
            raise refuse("lint", "bounds", {v: pair}, expected)
    computed = unlabelled([*outputs, *updates.values()])
    outputs, news = computed[: len(outputs)], computed[len(outputs) :]
    updates = dict(zip(updates, news, strict=True))
    known = {v: Bounds(float(lo), float(hi)) for v, (lo, hi) in (bounds or {}).items()}
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
    findings = dict.fromkeys(finding for finding in _findings(view) if finding.rule not in ignore)
    return [finding for finding in findings if not is_ignored(finding)]


def _outputs_of(graph):
    if isinstance(graph, FunctionGraph):
        return list(graph.outputs)
    outputs = [graph] if isinstance(graph, Variable) else graph
    if isinstance(outputs, list | tuple) and all(isinstance(v, Variable) for v in outputs):
        return list(outputs)
    raise TypeError(
        f"lint() takes variables or a FunctionGraph, not {type(graph).__name__}.\n"
        "Give it the outputs, and `updates=`, that pytensor.function was given."
    )


def _is_shared_array(variable):
    return isinstance(variable, SharedVariable) and is_numeric(variable.type)


def _with_invariants(known, updates, values):
    """Add what updates cannot change: that a value which is not negative stays so."""
    sure = {v for v in updates if v in values and v not in known and of_array(values[v]).lo >= 0}
    while sure:
        found = GraphBounds({**known, **dict.fromkeys(sure, Bounds(lo=0.0))})
        broken = {v for v in sure if found[updates[v]].lo < 0}
        if not broken:
            break
        sure -= broken
    return {**known, **dict.fromkeys(sure, Bounds(lo=0.0))}


def _findings(view, fgraph=None, around=None):
    """The findings of a graph and of the graphs inside its nodes."""
    for rule in RULES.values():
        for found in rule.check(view):
            line = _line(found.variable, fgraph) or around
            write = with_module(found.write, module_of(found.variable))
            yield Finding(rule.name, line, found.why, write)
    for node in view.nodes:
        if node in view.backward or not _is_users(node.op):
            continue
        line = _line(node.outputs[0], fgraph) or around
        yield from _findings(view.inside(node), node.op.fgraph, line)


def _is_users(op):
    """Whether an op has an inner graph that is the user's; PyTensor has some of its own."""
    own = type(op).__module__.partition(".")[0] != "pytensor"
    return type(op) in (Scan, OpFromGraph) or (own and isinstance(op, OpFromGraph))


def _line(variable, fgraph):
    line = source_place(variable)
    if line is None and fgraph is not None and variable.owner is not None:
        line = lookup(fgraph, variable).source
    return None if line is None else replace(line, callers=(), loop=None)


_COMMENT = re.compile(r"#\s*theanoguard:\s*ignore(?:\[([^\]]*)\])?")


def is_ignored(finding):
    """Whether a comment on the user's line switches the rule of a finding off."""
    if finding.source is None:
        return False
    line = linecache.getline(finding.source.file, finding.source.line) or finding.source.text
    comment = _COMMENT.search(line)
    if comment is None:
        return False
    return comment[1] is None or finding.rule in re.split(r"[,\s]+", comment[1].strip())
