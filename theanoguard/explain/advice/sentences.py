"""Run a change on the failing call, and write it in the user's lines.

The number that a sentence quotes is the result of the code that is printed, in the user's module.
"""

import ast
import itertools
import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np
from pytensor.graph.basic import Variable
from pytensor.tensor.elemwise import DimShuffle

from theanoguard._graph import VIEWS
from theanoguard._provenance import SourceLine, module_of, source_place
from theanoguard._provenance.designating import made_by_grad
from theanoguard._provenance.source import expression_of
from theanoguard.explain.advice.candidates import Remedy
from theanoguard.explain.advice.claims import MAX_NAME
from theanoguard.explain.advice.edits import Edit
from theanoguard.explain.advice.judge import Judge
from theanoguard.explain.advice.logarithms import axes_text
from theanoguard.explain.advice.proof import (
    Index,
    NotShown,
    Shown,
    Use,
    numbers_of,
    same_but_for,
    shown,
    uses_of,
)
from theanoguard.explain.advice.source_edit import (
    bare,
    edited,
    filled,
    is_compound,
    listed,
    operands_of,
)
from theanoguard.explain.advice.trials import Builders, Trial
from theanoguard.explain.advice.written import (
    CHOICES,
    MODULES,
    OPERAND,
    STABLE,
    in_one_file,
    in_theano,
    is_in_theano,
    name_of_theano,
    on_lines,
    run_in_theano,
    spelled,
    with_modules,
)
from theanoguard.explain.facts.records import Cause
from theanoguard.operations.names import op_name
from theanoguard.stable.patterns import rebuild

logger = logging.getLogger("theanoguard")


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


Told: TypeAlias = tuple[str, tuple[str, ...]]
"""A remedy as a sentence, with the user's old and new lines in turn."""


def sentence(remedy: Remedy, judge: Judge, cause: Cause) -> Told | None:
    """Return what a report says about a remedy; None if it does not help.

    A number is quoted, and lines are printed, only if the edit of the file was shown to compute it.
    Otherwise the formula is said in words.
    """
    trial = tried(remedy, remedy.builders, judge)
    if trial is None:
        return None
    try:
        found = _proved(remedy, judge)
    except NotShown as reason:
        logger.debug("an edit could not be shown: %s", reason)
        found = None
    changes = _changes_of(remedy)
    if found is not None:
        what, lines, trial = found
        near = in_one_file([place for place, *_ in lines], cause.source)
        texts = [f"{listed(texts)}{on_lines([p], near)}" for p, texts in what.items()]
        change = tuple(text for _, *pair in lines for text in pair)
        if changes:
            return (
                f"This changes the function: with {listed(texts)} {trial.text}; {changes}.",
                change,
            )
        return f"With {listed(texts)} {trial.text}.", change
    written: tuple[Remedy, Trial] | None
    if cause.source is None or name_of_theano(cause.source.file, cause.source.text) is None:
        written = remedy, trial
    else:
        written = _in_theano(remedy, trial, judge)
    words = None if written is None else _in_words(*written, cause, changes)
    return None if words is None else (words, ())


def _in_theano(remedy: Remedy, trial: Trial, judge: Judge) -> tuple[Remedy, Trial] | None:
    """Return a remedy in the functions of Theano, with the trial of these; None if none helps."""
    codes = [edit.code for edit in remedy.edits] or [remedy.text]
    if not all(map(is_in_theano, codes)):
        return None
    is_named = not any(name in code for code in codes for name in (STABLE, "log1mexp"))
    if is_named or (remedy.in_words and not remedy.edits):
        return remedy, trial
    edits = remedy.edits
    if not edits and len(remedy.builders) == 1:
        (variable,) = remedy.builders
        code = remedy.text.replace("{x}", OPERAND).replace("{pt}", "pt")
        edits = (Edit(variable, code, {OPERAND: remedy.x}, remedy.spot, {variable: [remedy.x]}),)
    for choice in range(CHOICES):
        written = [replace(edit, code=in_theano(edit.code, choice)) for edit in edits]
        builders = {
            v: run_in_theano(edit.code, dict(zip(edit.operands, operands, strict=True)))
            for edit in written
            for v, operands in edit.alike.items()
        }
        is_whole = builders.keys() == remedy.builders.keys()
        if is_whole and (found := tried(remedy, builders, judge)) is not None:
            return replace(remedy, edits=tuple(written)), found
    return None


def _changes_of(remedy: Remedy) -> str:
    if not remedy.changes:
        return ""
    name = remedy.spot.name_of(remedy.x)
    return remedy.changes.replace("{x}", name if name and len(name) <= MAX_NAME else "it")


def _in_words(remedy: Remedy, trial: Trial, cause: Cause, changes: str) -> str | None:
    """Return the formula of a remedy in words, with the user's expression in quotes.

    None if it reads something that no text can name.
    """
    if remedy.in_words and not remedy.edits:
        text = f"with {remedy.text} {trial.text}"
        return f"This changes the function: {text}; {changes}." if changes else f"W{text[1:]}."
    spot = remedy.spot
    own = [v for v in remedy.builders if not made_by_grad(v.owner)] or list(remedy.builders)
    places = [p for v in own if (p := source_place(v)) is not None]
    place = places[0] if places else None
    places.sort(key=lambda p: (p.file, p.line))
    where = on_lines(places, in_one_file(places, cause.source)) if places else ""
    texts, unnamed = [], ""
    for edit in remedy.edits:
        old = spot.name_of(edit.variable)
        said = {k: _said_name(v, edit.variable, spot) for k, v in edit.operands.items()}
        names = {k: n for k, n in said.items() if n is not None and expression_of(n) is not None}
        if len(names) == len(said):
            text = filled(edit.code, names)
            is_one = len(remedy.edits) == 1
            texts.append(f'"{text}"' if is_one or old is None else f"{text} in place of {old}")
    if remedy.in_words and len(texts) < len(remedy.edits):
        return f"With {remedy.text} {trial.text}." if remedy.text else None
    if not texts:
        name = (None if remedy.x is None else spot.name_of(remedy.x)) or ""
        if expression_of(name) is None:  # (a letter may be another variable's name)
            name, unnamed = "operand", f" (the operand of {op_name(spot.node.op)})"
        inside = f"({name})" if is_compound(name) else name
        module = module_of(spot.node.outputs[0])
        index = _index_of(expression_of(_quoted(place)[1:-1])) if remedy.views else ""
        if remedy.views and not index:
            return None
        texts = [f'"{remedy.text.replace("{x}", inside).replace("{pt}", module)}{index}"']
    if changes:
        return f"This changes the function: with {listed(texts)}{where}{unnamed}, {changes}."
    read = [v for edit in remedy.edits for v in edit.operands.values()] or [remedy.x]
    meant = _meaning_of(read, spot, place) + unnamed
    if remedy.otherwise:
        meant += "; with the other numbers of the line it is another formula"
    if len(texts) > 1:
        return f"Other formulas{where} keep the value: {listed(texts)}{meant}."
    old = _quoted(place)
    if remedy.operand is not None:  # (it is changed inside of the expression)
        name = spot.name_of(spot.node.inputs[remedy.operand])
        old = f'"{name}"' if name else ""
    of = f" for {old}" if old else ""
    return f"Another formula{of}{where} keeps the value: {listed(texts)}{meant}."


def _said_name(variable: Variable, whole: Variable, spot: Any) -> str | None:
    """Return the name of an operand in words, with the axes that were moved behind that name.

    None if a view of another shape has the name of what it shows.
    """
    name: str | None = spot.name_in(variable, whole)
    node = variable.owner
    if name is None or node is None or not isinstance(node.op, VIEWS):
        return name
    inner = node.inputs[0]
    if name != spot.name_in(inner, variable):
        return name
    if not isinstance(node.op, DimShuffle):
        return None if node.inputs[1:] else name
    order, ndim = node.op.new_order, inner.type.ndim
    is_broadcast = not ndim or tuple(order[-ndim:]) == tuple(range(ndim))
    return name if is_broadcast else name + axes_text(order, ndim)


def _quoted(place: SourceLine | None) -> str:
    """Return the marked expression of a place in quotes; empty if it is long or not known."""
    if place is None or place.marked is None or place.end is not None:
        return ""
    text = place.text[slice(*place.marked)]
    return f'"{text}"' if len(text) <= MAX_WRITTEN else ""


def _meaning_of(variables: list[Variable], spot: Any, place: SourceLine | None) -> str:
    """Return on which line the names of a formula are meant, if that is not the line itself."""
    found: dict[int, list[str]] = {}
    for v in dict.fromkeys(variables):
        name = None if v is None else spot.name_of(v)
        readers = [] if v is None else spot.clients.get(v, ())
        lines = [p.line for c in readers if (p := source_place(c.outputs[0])) is not None]
        if name and name.isidentifier() and lines and (place is None or place.line not in lines):
            found.setdefault(lines[0], []).append(f'"{name}"')
    texts = (
        f"{listed(names)} {'are those' if names[1:] else 'is the one'} of line {line}"
        for line, names in found.items()
    )
    return "".join(f", where {text}" for text in texts)


MAX_WRITTEN = 150
"""Largest number of characters of code that a sentence holds."""

Proved: TypeAlias = tuple[dict[SourceLine, list[str]], list[tuple[SourceLine, str, str]], Trial]
"""What is written on which lines, the places with their old and new lines, and the trial."""


def _proved(remedy: Remedy, judge: Judge) -> Proved | None:
    """Return the edits of a remedy after they were shown; None if it is not an edit.

    Raises
    ------
    NotShown
    """
    if remedy.in_words and not remedy.edits:
        return None  # (its text is no code)
    index = Index(judge.built, remedy.spot.replay.value)
    expressions: dict[int, list[Use]] = {}
    covered: set[Variable] = set()
    own = [edit.variable for edit in remedy.edits] or list(remedy.builders)
    for variable in own:
        if variable not in covered and not made_by_grad(judge.built.original_of(variable)):
            uses = uses_of(index, variable)
            expressions[id(uses[0])] = uses
            covered |= {use.variable for use in uses}
    if not expressions:
        return None
    rest = {v: b for v, b in remedy.builders.items() if v not in covered}
    if any(not made_by_grad(judge.built.original_of(v)) for v in rest):
        raise NotShown("the change is on other lines as well")
    reason = NotShown("the edited lines do not help")
    for choice in range(CHOICES):
        try:
            parts = [_shown_part(remedy, uses, judge, choice) for uses in expressions.values()]
        except NotShown as error:
            reason = reason if choice else error
            continue
        builders = dict(rest)
        for part in parts:
            builders.update(part.shown.builders)
        trial = tried(remedy, builders, judge)
        if trial is not None:
            return _as_lines(parts, trial)
    raise reason


def _same_at_all_uses(remedy: Remedy, found: Shown, judge: Judge) -> None:
    """Show that an edit is the same function wherever the line has run."""
    done: list[Variable] = []
    for use in found.uses:
        variable, operands = use.variable, found.operands[use.variable]
        if any(same_but_for(v, found.operands[v], variable, operands) for v in done):
            continue
        done.append(variable)
        if judge.built.body_of(variable) is not remedy.spot.body or remedy.around:
            continue  # (the trial compares its results)
        real = [v for v in operands if v.type.dtype[:5] == "float"]
        signed = real if remedy.one_sign or ".log(" in found.text else []
        if not judge.holds_around(variable, found.builders[variable], real, signed):
            raise NotShown("where the line has run it is another function")


@dataclass(frozen=True)
class _Part:
    """An expression of the user's, and the text that was shown for it."""

    node: Any
    text: str
    said: str
    shown: Shown


MAX_TEXTS = 12
"""Number of texts for an expression that are tried: with other names, or of other modules."""


def _shown_part(remedy: Remedy, uses: list[Use], judge: Judge, choice: int) -> _Part:
    """Return the first way to write a remedy in place of an expression that can be shown.

    Raises
    ------
    NotShown
    """
    last = NotShown("no text can be written on the line")
    codes = _codes(remedy, uses[0], choice)
    texts = (text for code in codes for text in _written(remedy, uses[0], code))
    left = MAX_TEXTS
    while left:
        left -= 1
        try:
            whole, node, text = next(texts)
            found = shown(uses, whole, remedy.spot.replay.kernels)
            if not remedy.changes:
                _same_at_all_uses(remedy, found, judge)
            return _Part(node, text, bare(text), found)
        except StopIteration:
            break
        except NotShown as reason:
            last = reason
    raise last


def _codes(remedy: Remedy, use: Use, choice: int) -> Iterator[str]:
    """Yield the code of a remedy with the modules that its line knows, the operands as names."""
    edit = next((e for e in remedy.edits if e.variable is use.variable), None)
    if edit is None and remedy.edits:
        edit = next((e for e in remedy.edits if use.variable in e.alike), None)
    code = edit.code if edit is not None else remedy.text.replace("{x}", OPERAND)
    modules = [
        path[0]
        for path, value in use.reader.known.items()
        if len(path) == 1 and isinstance(value, ModuleType) and value.__name__ in MODULES
    ]
    numpy = [path[0] for path, value in use.reader.known.items() if len(path) == 1 and value is np]
    yield from spelled(code, use.reader.file, modules, numpy, choice)


def _written(remedy: Remedy, use: Use, code: str) -> Iterator[tuple[str, Any, str]]:
    """Yield the whole new expression, the part of the old one that changes, and its new text.

    Raises
    ------
    NotShown
    """
    spot, node = remedy.spot, use.reader.node
    tree = ast.parse(code, mode="eval").body
    if remedy.operand is not None:
        written = operands_of(node, op_name(use.variable.owner.op))
        if written is None or remedy.operand >= len(written):
            return
        old = written[remedy.operand]
        text = filled(code, {OPERAND: ast.unparse(old)})
        changed = _With(old, ast.parse(text, mode="eval").body).visit(_copy(node))
        yield ast.unparse(changed), old, text
        return
    edit = next((e for e in remedy.edits if e.variable is use.variable), None)
    operands = {OPERAND: remedy.x} if edit is None else edit.operands
    used = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
    try:
        numbers = numbers_of(use, list(operands.values()))
    except NotShown:
        return
    tree = _Numbers(numbers).visit(tree)
    names = {k: list(_names_for(use, v, spot)) for k, v in operands.items() if k in used}
    for chosen in itertools.product(*names.values()):
        text = filled(ast.unparse(tree), dict(zip(names, chosen, strict=True)))
        index = _index_of(node) if edit is None and remedy.views else ""
        # (where a name is computed from another operand, the formula holds of the operands alone)
        for known in dict.fromkeys((filled(use.with_names(text), {}), text)):
            yield known + index, node, known + index


def _copy(node: ast.AST) -> ast.AST:
    return ast.parse(ast.unparse(node), mode="eval").body


class _With(ast.NodeTransformer):
    """Puts a tree in the place of another one that reads the same."""

    def __init__(self, old: ast.expr, new: ast.expr):
        self.old, self.new = ast.dump(old), new

    def visit(self, node: ast.AST) -> ast.AST:
        return self.new if ast.dump(node) == self.old else self.generic_visit(node)


class _Numbers(ast.NodeTransformer):
    """Writes numbers by the names that the user has for them."""

    def __init__(self, numbers: dict[str, Any]):
        self.names: dict[float, list[str]] = {}
        for text, value in numbers.items():
            if isinstance(value, int | float | np.integer | np.floating):
                for number in {float(value), float(str(value))}:  # (a float32 has few digits)
                    self.names.setdefault(number, []).append(text)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        cast = ast.unparse(node.func).rpartition(".")[2]
        if cast in ("float16", "float32") and isinstance(node.args[0], ast.Constant):
            number = float(np.dtype(cast).type(node.args[0].value))
            if len(found := self.names.get(number, [])) == 1:
                return ast.parse(found[0], mode="eval").body
        return self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        if isinstance(node.value, bool) or not isinstance(node.value, int | float):
            return node
        found = self.names.get(float(node.value), [])
        return ast.parse(found[0], mode="eval").body if len(found) == 1 else node


def _index_of(node: Any) -> str:
    """Return the index that a call applies to its argument; empty if there is none."""
    argument = node.args[0] if isinstance(node, ast.Call) and node.args else None
    if not isinstance(argument, ast.Subscript):
        return ""
    text = ast.unparse(argument.slice)
    return f"[{text[1:-1] if isinstance(argument.slice, ast.Tuple) else text}]"


def _names_for(use: Use, variable: Variable, spot: Any) -> Iterator[str]:
    """Yield the ways in which a line can write a variable."""
    if variable is use.variable:
        yield ast.unparse(use.reader.node)
        return
    for name in dict.fromkeys(_possible_names(use, variable, spot)):
        if expression_of(name) is not None and use.means(name, variable):
            yield name


def _possible_names(use: Use, variable: Variable, spot: Any) -> Iterator[str]:
    yield from use.names.get(variable, ())
    written = ast.unparse(use.reader.node)
    if re.search(r"\bstd\(", written):  # (the variance, of which it takes the root)
        yield re.sub(r"\bstd\(", "var(", written, count=1)
    node = variable.owner
    if node is not None and isinstance(node.op, DimShuffle):
        (inner,) = node.inputs
        for name in use.names.get(inner, ()):
            yield name + axes_text(node.op.new_order, inner.type.ndim)
    if name := spot.name_in(variable, use.variable):
        yield name
        yield with_modules(name, use.reader.file, use.reader.node.lineno)


def _as_lines(parts: list[_Part], trial: Trial) -> Proved:
    """Return the lines of the shown edits.

    Raises
    ------
    NotShown
        If a line cannot be edited.
    """
    what: dict[SourceLine, list[str]] = {}
    lines = []
    files = list(dict.fromkeys(part.shown.uses[0].reader.file for part in parts))
    for file in files:
        own = [p for p in parts if p.shown.uses[0].reader.file == file]
        found = edited(file, [(p.node, p.text) for p in own])
        if found is None:
            raise NotShown("the lines cannot be edited")
        for lines_of_edit in found:
            last = lines_of_edit.first + len(lines_of_edit.old) - 1
            here = [p for p in own if lines_of_edit.first <= p.node.lineno <= last]
            place = source_place(here[0].shown.uses[0].variable)
            assert place is not None
            imports = list(dict.fromkeys(i for p in here for i in p.shown.imports))
            lines.append((place, *lines_of_edit.shown(imports)))
            what[place] = [p.said for p in here]
    return what, lines, trial
