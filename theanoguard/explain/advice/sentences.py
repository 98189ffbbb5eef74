"""Run a change on the failing call, and write it in the user's lines.

The number that a sentence quotes is the result of the code that is printed, in the user's module.
"""

import re
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
from pytensor.graph.basic import Variable
from pytensor.tensor.elemwise import DimShuffle

from theanoguard._provenance import SourceLine, lookup, module_of, source_place
from theanoguard._provenance.designating import made_by_grad
from theanoguard._provenance.source import expression_of, lines_of, on_one_line
from theanoguard.explain.advice.candidates import Remedy, with_operand
from theanoguard.explain.advice.judge import Judge
from theanoguard.explain.advice.logarithms import axes_text
from theanoguard.explain.advice.loops import Edit
from theanoguard.explain.advice.source_edit import (
    Line,
    Span,
    bare,
    filled,
    index_of_argument,
    listed,
)
from theanoguard.explain.advice.trials import Builders, Trial
from theanoguard.explain.advice.written import (
    OPERAND,
    Made,
    as_template,
    evaluated,
    in_one_file,
    is_known,
    on_lines,
    spellings,
    with_import,
    with_modules,
)
from theanoguard.explain.facts.naming import name_of, op_name
from theanoguard.explain.facts.restated import unmoved
from theanoguard.explain.records import Cause, called_function
from theanoguard.stable.patterns import New, rebuild, through_views


def _inside(name: str, template: str) -> str:
    """Return a name for insertion into a template, in parentheses if that is needed."""
    plain = all(c.isalnum() or c in "_.[](), :" for c in name)
    return name if plain or "{x}." not in template and "{x} " not in template else f"({name})"


def is_same_around(remedy: Remedy, judge: Judge) -> bool:
    """Return whether a remedy is the same function around the failing input as well."""
    if remedy.around:
        whole, changed = remedy.around
        inside = remedy.builders[changed]
        return judge.holds_around(
            whole,
            lambda new: rebuild([whole], {changed: inside, remedy.x: lambda _: new(remedy.x)})[0],
            [remedy.x],
        )
    if remedy.loop is not None:
        return all(edit.holds_around(judge) for edit in remedy.edits)
    for edit in remedy.edits:
        real = {name: v for name, v in edit.operands.items() if v.type.dtype[:5] == "float"}
        factors = [v for name, v in real.items() if f"pt.log({name})" in edit.code]
        build = remedy.builders[edit.variable]
        if real and not judge.holds_around(edit.variable, build, list(real.values()), factors):
            return False
    if remedy.x is None or remedy.operand is not None:
        return True
    variable, build = next(iter(remedy.builders.items()))  # (the others are built alike)
    keeps_sign = [remedy.x] if remedy.one_sign else []
    return judge.holds_around(variable, build, [remedy.x], keeps_sign)


def tried(remedy: Remedy, builders: Builders, judge: Judge) -> Trial | None:
    """Return the trial of a remedy if it may be shown; else None."""
    trial = judge.built.attempt(builders)
    if trial is None or not judge.is_mended(trial):
        return None
    if (remedy.changes or remedy.moves) and not judge.keeps_earlier_call(trial):
        return None
    if remedy.moves:
        return trial
    if remedy.larger and not _is_steady(trial, judge.built.attempt(remedy.larger)):
        return None
    is_right = judge.keeps if remedy.changes else judge.is_right
    return trial if is_right(trial) else None


def _is_steady(trial: Trial, other: Trial | None) -> bool:
    """Return whether two trials give the same results."""
    if other is None:
        return False
    for variable, value in trial.values.items():
        scale = float(np.max(np.abs(value), initial=0))
        if not np.allclose(value, other.values[variable], rtol=1e-9, atol=1e-9 * scale):
            return False
    return True


_CALLED = re.compile(r"\w+(?=\()").findall


def _takes_labels(text: str) -> bool:
    """Return whether labelled arrays have all functions of a remedy.  They have no axes."""
    math = sys.modules["pytensor.xtensor.math"]
    return "axis" not in text and all(hasattr(math, name) for name in _CALLED(text))


MAX_NAME = 30
"""Length of the longest expression that a sentence on a change repeats."""

Told: TypeAlias = tuple[str, tuple[str, ...]]
"""A remedy as a sentence, with the user's old and new lines in turn."""


def sentence(remedy: Remedy, judge: Judge, cause: Cause) -> Told | None:
    """Return what a report says about a remedy; None if it does not help.

    The number that is quoted is the result of the code that is printed, in the user's module.
    """
    if remedy.loop is not None:
        return _told_edits(remedy, judge, cause.source)
    trial = tried(remedy, remedy.builders, judge)
    if trial is None:
        return None
    if (told := _told_edits(remedy, judge, cause.source)) is not None:
        return told
    if remedy.in_words and not is_known(remedy.text, cause.source):
        return None
    lines: dict[str, list[SourceLine]] = {}
    change: tuple[str, ...] = ()
    for source, marked in () if remedy.in_words else _places(remedy, cause):
        found = _printed(remedy, judge, source, marked)
        if found is None:
            return None
        what, edit, trial = found
        lines.setdefault(what, []).append(source)
        change += edit
    if len(set(change[::2])) < len(change[::2]):  # (two changes of one line)
        change = ()
    near = in_one_file([place for places in lines.values() for place in places], cause.source)
    text = " and ".join(what + on_lines(places, near) for what, places in lines.items())
    text = text or _in_place_of(remedy) or _in_words(remedy, remedy.text)
    if not remedy.changes:
        return (f"With {text} {trial.text}.", change)
    name = remedy.spot.name_of(remedy.x)
    name = name if name and len(name) <= MAX_NAME else "it"
    changes = remedy.changes.replace("{x}", name)
    return (f"This changes the function: with {text} {trial.text}; {changes}.", change)


def _told_edits(remedy: Remedy, judge: Judge, source: SourceLine | None) -> Told | None:
    """Return what a report says about the expressions of a remedy; None if they cannot be written.

    They are run in the user's module.
    """
    made: dict[int, Made] = {}
    lines: dict[tuple, tuple] = {}
    said: dict[tuple, list[str]] = {}
    placed = [(edit, edit.place or source_place(edit.variable)) for edit in remedy.edits]
    backwards = sorted(placed, key=lambda pair: getattr(pair[1], "marked", None) or (0, 0))[::-1]
    for edit, place in backwards:
        if place is None or (found := _written_edit(edit, place)) is None:
            return None
        text, made[id(edit)] = found
        whole = on_one_line(place)
        here = place.file, place.line
        old = lines.get(here, (place, whole.text))[1]
        replacement = Line(old, [whole.marked], _default_module(remedy)).with_marked(text)
        if replacement is None:
            return None
        what, new = replacement
        lines[here] = place, new
        said.setdefault(here, []).insert(0, bare(what))
    builders = _builders_of(remedy, [made[id(edit)] for edit in remedy.edits])
    trial = tried(remedy, builders, judge) if builders else None
    change: tuple[str, ...] = ()
    for _, (place, new) in sorted(lines.items()):
        line = with_import(new, place.file, place.line, on_one_line(place).text)
        if line is None:
            return None
        change += "\n".join(lines_of(place)), line
    if trial is None:
        return None
    near = in_one_file([place for place, _ in lines.values()], source)
    texts = [listed(what) + on_lines([lines[here][0]], near) for here, what in sorted(said.items())]
    if remedy.loop is not None:  # (the lines are printed, and the sentence would repeat them)
        places = [place for _, (place, _) in sorted(lines.items())]
        texts = [f"the state of the loop in logarithms{on_lines(places, near)}"]
    return (f"With {listed(texts)} {trial.text}.", change)


def _builders_of(remedy: Remedy, made: list[Made]) -> Builders:
    """Return what builds the results, from what the code of the edits makes of its operands."""
    if remedy.loop is not None:
        return remedy.loop.builders(made)
    pairs = zip(remedy.edits, made, strict=True)
    return {v: _from_operands(m, o) for edit, m in pairs for v, o in edit.alike.items()}


def _from_operands(made: Made, operands: list[Variable]) -> Callable:
    return lambda new: made.of(*map(new, operands))


def _written_edit(edit: Edit, place: SourceLine) -> tuple[str, Made] | None:
    """Return the code of an expression with the user's names, and what it makes of operands."""
    if module_of(edit.variable) != "pt":
        return None
    names = _names_for(edit)
    names = {k: v and with_modules(v, place.file, place.line) for k, v in names.items()}
    if None in names.values() or not all(map(expression_of, names.values())):
        return None
    for template in spellings(as_template(edit.code, place.file), place.file, place.text):
        made = evaluated(template, edit.operands, place.file)
        if made is not None:
            return filled(template, names), made
    return None


def _names_for(edit: Edit) -> dict[str, Any]:
    """Return how the user writes the operands of an edit, with the axes that broadcast them."""
    names, spot = {}, edit.spot
    for operand, variable in edit.operands.items():
        if variable is edit.variable and edit.place is not None and edit.place.marked:
            names[operand] = edit.place.text[slice(*edit.place.marked)]
            continue
        names[operand] = name = spot.name_in(variable, edit.variable)
        node = variable.owner
        if name and node is not None and isinstance(node.op, DimShuffle):
            (inner,) = node.inputs
            is_named = name == spot.name_in(inner, edit.variable)  # (a view, as its base)
            is_of_call = source_place(inner) == source_place(variable) and inner.owner is not None
            if is_named and not is_of_call:  # (a constant has the line of the call that uses it)
                names[operand] = name + axes_text(node.op.new_order, inner.type.ndim)
    return names


MAX_WRITTEN = 150
"""Largest number of characters of code that a sentence holds."""


def _in_place_of(remedy: Remedy) -> str | None:
    """Return the code of the edits of a remedy, for whom no line has all names; None if long."""
    texts = []
    for edit in remedy.edits:
        old, place = remedy.spot.name_of(edit.variable), source_place(edit.variable)
        names = _names_for(edit)
        if place is None or None in (old, *names.values()):
            return None
        for template in spellings(as_template(edit.code, place.file), place.file, place.text)[:1]:
            texts.append(f"{bare(filled(template, names))} in place of {old}")
    return listed(texts) if texts and len(listed(texts)) <= MAX_WRITTEN else None


def _places(remedy: Remedy, cause: Cause) -> list[tuple[SourceLine, list[Span | None]]]:
    """Return the user's lines that a remedy changes, each with the marked expressions."""
    spot = remedy.spot
    own = [v for v in remedy.builders if not made_by_grad(v.owner)] or remedy.builders
    found = [source_place(v) for v in own]
    if not any(found) and remedy.operand is not None:
        found = [source_place(spot.node.outputs[0])]
    if not any(found) and op_name(spot.node.op) == cause.op:  # (PyMC's copies have no traces)
        recorded = lookup(None, spot.node.outputs[0])
        found = [recorded.source if recorded.own_source else cause.source]
    places = [place for place in found if place is not None]
    by_line: dict[tuple[str, int], list[SourceLine]] = {}
    for place in sorted(places, key=lambda place: (place.file, place.line)):
        by_line.setdefault((place.file, place.line), []).append(place)
    return [(here[0], [p.marked for p in here]) for here in by_line.values()]


def _default_module(remedy: Remedy) -> str:
    return module_of(remedy.spot.node.outputs[0])


def _printed(
    remedy: Remedy, judge: Judge, source: SourceLine, marked: list[Span | None]
) -> tuple[str, tuple[str, ...], Trial] | None:
    """Return what a remedy writes, the user's line before and after it, and the trial of that.

    The result is None if no way to write it runs in the user's module.
    """
    labelled = _default_module(remedy)
    if labelled != "pt":  # (the graph holds tensors, to which its functions do not apply)
        trial = tried(remedy, remedy.builders, judge)
        found = _takes_labels(remedy.text) and _edit(remedy, remedy.text, source, marked, labelled)
        return (*found, trial) if found and trial is not None else None
    for template in spellings(remedy.text, source.file, source.text):
        code = template.replace("{x}", OPERAND)
        made = evaluated(code, {OPERAND: remedy.x}, source.file)
        trial = None if made is None else tried(remedy, _with_printed(remedy, made), judge)
        if made is not None and trial is None:
            trial = tried(remedy, _with_printed(remedy, made.rewritten()), judge)
        if trial is not None:
            found = _edit(remedy, template, source, marked, labelled)
            if found is None and remedy.spot.name_of(remedy.x) is not None:
                found = _in_words(remedy, template), ()
            return None if found is None else (*found, trial)
    return None


def _with_printed(remedy: Remedy, made: Made) -> Builders:
    """Return the builders of a remedy, of which the first runs the printed code."""
    first, *others = remedy.builders

    def build(new: New) -> Variable:
        if remedy.operand is None:
            return through_views(list(remedy.views), made.of(new(remedy.x)), new)
        return with_operand(first.owner, remedy.operand, made.of)(new)

    return {first: build, **{v: remedy.builders[v] for v in others}}


def _edit(
    remedy: Remedy, template: str, source: SourceLine, marked: list[Span | None], module: str
) -> tuple[str, tuple[str, ...]] | None:
    """Return what a remedy writes, with the line before and after it; None if it cannot be."""
    spot, written = remedy.spot, lines_of(source)
    if source.end is not None:
        source = on_one_line(source)
        marked = [source.marked]
    line = Line(source.text, marked, module)
    if remedy.operand is None:
        name = spot.name_in(remedy.x, next(iter(remedy.builders)))
        name = _variance_of(source, marked[0]) or name
        name = name and with_modules(name, source.file, source.line)
        text = template.replace("{x}", _inside(name, template)) if name else ""
        if remedy.views:
            text, name = text + (index := index_of_argument(source.text, marked[0])), name and index
        found = line.with_marked(text) if name else None
    else:
        op = op_name(next(iter(remedy.builders)).owner.op)
        found = (
            line.with_operand(op, remedy.operand, template)
            or line.with_keyword(remedy.keyword)
            or line.with_expression(name_of(unmoved(remedy.x), own=spot.name_of), template)
        )
    if found is None:
        return None
    what, changed = found
    new = with_import(changed, source.file, source.line, line.code)
    return None if new is None else (bare(what), ("\n".join(written), new))


def _variance_of(source: SourceLine, marked: Span | None) -> str | None:
    """Return the variance of which a line takes the root with ``std``, or None."""
    called = called_function(replace(source, marked=marked))
    if called != "std" or marked is None:
        return None
    begin, end = marked
    return re.sub(r"\bstd\(", "var(", source.text[begin:end], count=1)


def _in_words(remedy: Remedy, template: str) -> str:
    """Return what a remedy writes if the user's line cannot be edited."""
    name = None if remedy.x is None else remedy.spot.name_of(remedy.x)
    name = _inside(name or "x", template)
    return template.replace("{x}", name).replace("{pt}", _default_module(remedy))
