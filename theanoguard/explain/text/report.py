"""The text that a person reads after a guard error.

The answer comes first: the bad value, the operands, the user's line, and what to do.  The path from
the inputs follows.  The graph is never printed.
"""

import math
import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, pairwise
from typing import Any

import numpy as np

from theanoguard._event import WORDS, GuardEvent, PathStep
from theanoguard._faults import code_of
from theanoguard._naming import LOG_DENSITY, element_text
from theanoguard._provenance import Provenance, SourceLine
from theanoguard._provenance.places import place_text, source_lines, source_text
from theanoguard._provenance.records import user_line
from theanoguard._shown import shown_by
from theanoguard._steps import attempt, failures
from theanoguard._text import (
    USUAL_WIDTH,
    fitted,
    index_text,
    link_to,
    number_text,
    printable,
    shortened,
    text_width,
)
from theanoguard._values import kind_of
from theanoguard.explain.facts.labels import MAX_FORMULA, user_op_name
from theanoguard.explain.facts.records import (
    ROLES,
    Cause,
    Explanation,
    Fate,
    Hint,
    Operand,
    Waypoint,
    called_function,
    leaf_text,
)
from theanoguard.explain.facts.shapes import shape_text
from theanoguard.explain.facts.way import FAR
from theanoguard.explain.text.color import BLUE, BOLD_RED, CODES, DIM, GREEN, RESET
from theanoguard.explain.text.since import since_text
from theanoguard.operations.names import is_written, shown_op

MAX_LINES = 22
MAX_PATH_LINES = 9
MIN_PATH_LINES = 2
MAX_OPERANDS = 4


def _plain(place: str, file: str) -> str:
    return place


@dataclass(frozen=True)
class Painter:
    """Writes the parts of a report, in colours and with links if the terminal has them."""

    color: bool
    link: Callable[[str, str], str] = _plain

    def __call__(self, code: str, text: str) -> str:
        text = printable(text)
        return f"{code}{text}{RESET}" if self.color else text


BAD = {"nan": "NaN", "inf": "infinite", "big": "too big"}


def render_text(
    event: GuardEvent,
    explanation: Explanation | None,
    color: bool = False,
    links: bool = False,
    in_call: bool = True,
) -> str:
    """Return the report of a bad value as plain text.

    It has at most :data:`MAX_LINES` lines, or some more on a narrow terminal.

    Parameters
    ----------
    event : GuardEvent
    explanation : Explanation or None
        None if there is no explanation.  The report then describes only the event.
    color : bool
        Whether to use the terminal's colours.
    links : bool
        Whether to write places as terminal links (OSC 8).
    in_call : bool
        Whether the last line names the call and the outputs.  Set it to False for a function that
        the user has not compiled.

    Returns
    -------
    str
    """
    with failures(() if explanation is None else explanation.failed) as failed:
        paint = Painter(color, link_to if links else _plain)
        blocks = [[paint(BOLD_RED, event.title)]]
        if explanation is not None:
            blocks = _blocks(event, explanation, paint, in_call)
        text = attempt("the form of the report", None, _joined, blocks)
    if text is None:
        text = "\n\n".join("\n".join(block) for block in blocks if block)
    return "\n\n".join([text, *failed_lines(failed)])


def _blocks(
    event: GuardEvent, explanation: Explanation, paint: Painter, in_call: bool
) -> list[list[str]]:
    cause = explanation.cause
    head = [paint(BOLD_RED, attempt("the first line", event.title, title, cause))]

    def place(callers: bool = True) -> list[str]:
        known = cause if callers else _without_callers(cause)
        return [
            *head,
            *attempt("the text of the place", _bare_place(cause), _lines_of, known, paint),
        ]

    def deeper(brief: bool = False) -> list[str]:
        return attempt("the text of the deeper cause", [], _deeper, explanation, paint, brief)

    def facts(most: int = MAX_OPERANDS) -> list[str]:
        return attempt("the text of the operands", [], _facts, explanation, most)

    def advice(signs: str = "-+") -> list[str]:
        return attempt("the text of the advice", [], _advice, explanation, paint, signs)

    def since() -> list[str]:
        return attempt("the text of the history", [], _since, explanation)

    nothing: list[str] = []
    last = attempt("the last line", nothing, _footer, event, explanation, in_call, paint)
    blocks = [place(), facts(), deeper(), advice(), [], since(), last]
    least = MIN_PATH_LINES + 2 if len(explanation.waypoints) > 1 else 0
    # (what a report without room leaves out first; the sentence says the change as well)
    for i, shorter, for_path in (
        (2, lambda: deeper(brief=True), True),
        (0, lambda: place(callers=False), True),
        (1, lambda: facts(MAX_OPERANDS // 2), True),
        (3, lambda: advice(signs="+"), True),
        (1, lambda: facts(0), True),
        (3, lambda: advice(signs=""), False),
    ):
        if blocks[i] and _lines_in(blocks) + for_path * least > MAX_LINES + 1:
            blocks[i] = shorter()
    room = MAX_LINES - _lines_in(blocks)
    blocks[4] = attempt("the text of the path", nothing, _way, explanation, paint, room)
    if text_width() < USUAL_WIDTH:
        blocks[1] = [part for line in blocks[1] for part in fitted(line)]
    return blocks


def _lines_in(blocks: list[list[str]]) -> int:
    """Return the number of lines of blocks, with an empty line after each."""
    return sum(len(block) + 1 for block in blocks if block)


def _without_callers(cause: Cause) -> Cause:
    """Return a cause whose line is shown without the lines that called it."""
    provenance = cause.provenance
    backward = provenance.backward
    if backward is not None and backward.forward_source is not None:
        line = replace(backward.forward_source, callers=())
        backward = replace(backward, forward_source=line)
    own = provenance.source and replace(provenance.source, callers=())
    return replace(cause, provenance=replace(provenance, source=own, backward=backward))


def _bare_place(cause: Cause) -> list[str]:
    return [] if cause.source is None else [f"  {cause.source.file}:{cause.source.line}"]


def failed_lines(failed: Sequence[str]) -> list[str]:
    """Return a paragraph on what could not be computed, and how to report it."""
    if not failed:
        return []
    what = "; ".join(dict.fromkeys(failed))
    return [
        f"Left out because of a fault in theanoguard: {printable(what)}.\n"
        "Please report it with this text and the output of `theanoguard doctor`."
    ]


def render_failure(failure: Any, color: bool = False) -> str:
    """Return the report of an exception that a node raised, as plain text.

    Parameters
    ----------
    failure : Failure
    color : bool

    Returns
    -------
    str
    """
    paint = Painter(color)
    head = f"{failure.error} in {shown_op(failure.op)}: {failure.misfit or failure.message}"
    blocks = [
        [
            paint(BOLD_RED, head),
            *_source_lines(failure.provenance, failure.path, paint, failure.around),
        ],
        _held_lines("  operand", failure.operands),
        _memory_lines(failure),
    ]
    if failure.hint is not None:
        blocks.append([paint(GREEN, line) for line in _wrapped(failure.hint)])
        blocks.append([paint(DIM, line) for line in _code_line(failure.hint)])
    return _joined(blocks)


def _code_line(hint: Hint | None) -> list[str]:
    """Return the line that refers to the page about a fault; none for a user's own hint."""
    code = code_of(hint.key) if hint is not None else None
    return [f"More: theanoguard explain {code}"] if code else []


def _held_lines(word: str, held: Sequence[Any]) -> list[str]:
    rows = [(shortened(printable(h.name), 40), _held_text(h)) for h in held[:MAX_PATH_LINES]]
    width = max((len(name) for name, _ in rows), default=0)
    more = [f"  ... and {len(held) - len(rows)} more"] if len(held) > len(rows) else []
    return [f"{word} {name:<{width}}  {text}" for name, text in rows] + more


def _held_text(held: Any) -> str:
    if held.shape is None:
        return f"{held.dtype}, value no longer at hand"
    if held.text:
        return f"= {held.text}, {held.dtype}"
    return f"shape {shape_text(held.shape)}, {held.dtype}"


def _memory_lines(failure: Any) -> list[str]:
    if failure.error != "MemoryError":
        return []
    lines = []
    if failure.needed is not None:
        lines.append(f"The result needs {bytes_text(failure.needed)}.")
    total = sum(h.nbytes for h in failure.alive)
    lines.append(f"Alive in this call: {bytes_text(total)}, the largest:")
    for h in failure.alive[:5]:
        lines.append(
            f"  {bytes_text(h.nbytes):>10}  {shortened(printable(h.name), 40)}, {_held_text(h)}"
        )
    return lines


def bytes_text(n: int) -> str:
    """Return a number of bytes for a person.

    Examples
    --------
    >>> bytes_text(512), bytes_text(3 << 20)
    ('512 B', '3.0 MiB')
    """
    power = min(max(int(n).bit_length() - 1, 0) // 10, 4)
    unit = ("B", "KiB", "MiB", "GiB", "TiB")[power]
    return f"{n} {unit}" if power == 0 else f"{n / 1024**power:.1f} {unit}"


def _wrapped(hint: Hint) -> list[str]:
    return textwrap.wrap(f"What to do: {hint.text}", text_width())


_NO_TEXT = re.compile(rf"{'|'.join(map(re.escape, CODES))}|\x1b\]8;;[!-\[\]-~]*\x1b\\|[^\n -~]")


def _joined(blocks: list[list[str]]) -> str:
    """Join blocks of lines.  Control characters other than our colours are replaced."""
    text = "\n\n".join("\n".join(block) for block in blocks if block)
    return _NO_TEXT.sub(lambda m: m[0] if len(m[0]) > 1 else printable(m[0]), text)


def title(cause: Cause) -> str:
    """Return the first line: what happened, with which values, at which element."""
    word = WORDS[cause.kind]
    at = f" at element {_element(cause.index, cause.shape)}" if cause.index else ""
    if cause.role != "node":
        value = f" ({number_text(cause.value)})" if cause.kind == "big" else ""
        holder = leaf_text(cause.role, cause.name, "the ")
        return f"{word}{value} came in with {holder}{at}"
    value = "" if cause.kind == "nan" else f" = {number_text(cause.value)}"
    backward = " of the gradient" if cause.backward else ""
    called, is_cause = _called(cause)
    own = called is None or is_cause
    where = f"in {_word(cause)}{backward}" if own else f"inside {called}"
    return f"{word} {where}: {_expression(cause)}{value}{at}"


def _called(cause: Cause) -> tuple[str | None, bool]:
    """Return the function that the user's code calls, and whether that is the cause itself."""
    certain = cause.provenance.own_source and not cause.backward
    called = called_function(cause.source) if certain else None
    names = (cause.op or "", shown_op(cause.op or ""))
    return called, called is not None and any(is_written(called, name) for name in names)


def _word(cause: Cause) -> str:
    """Return the name of the operation of a cause: the user's, as in ``where`` for ``switch``."""
    (called, is_cause), shown = _called(cause), shown_op(cause.op or "")
    return called if called and is_cause and cause.expression.startswith(f"{shown}(") else shown


def _expression(cause: Cause) -> str:
    shown, text = f"{shown_op(cause.op or '')}(", cause.expression
    return f"{_word(cause)}({text.removeprefix(shown)}" if text.startswith(shown) else text


def _element(index: Sequence[Any], shape: Sequence[Any]) -> str:
    return "[" + ", ".join(str(i) for i in index) + "]" if shape else "(scalar)"


def _place_lines(source: SourceLine, paint: Painter, before: str = "") -> list[str]:
    """Return the lines of a place, indented: file and line, then its text and its callers."""
    first, *others = source_lines(source, text_width() - 2, paint.link)
    shown = [f"{BLUE}{before}{first}{RESET}" if paint.color else before + first]
    return ["  " + line for line in (*shown, *(paint(BLUE, line) for line in others))]


def _lines_of(cause: Cause, paint: Painter) -> list[str]:
    if cause.role == "node":
        return _source_lines(cause.provenance, cause.path, paint, cause.around)
    return [] if cause.source is None else _place_lines(cause.source, paint)


_LOOP = re.compile(
    r"Scan\b\{?(?P<name>[^,}]*)|(for|do_while)(\{|all_inplace,).*?(?P<of_theano>[^,{}]*)\}$"
)
"""The text of a Scan: PyTensor's, and Theano's, as ``for{cpu,scan_fn}``."""


def inside_text(path: Sequence[PathStep]) -> str:
    """Return a text for the inner graphs entered, such as ``step 3 of scan``, or an empty text."""
    inner = []
    for part in reversed(path):
        if part.forward is not None:
            inner.append(f"the gradient of step {part.forward} of the loop")
            continue
        name = part.op.partition("{")[0]
        name = "a branch of ifelse" if name == "LazyIfElse" else name
        if (loop := _LOOP.match(part.op)) is not None:
            own = loop["name"] or loop["of_theano"]
            name = "scan" if own in (None, "", "scan_fn") else f"scan {own}"
        inner.append(name if part.step is None else f"step {part.step} of {name}")
    return ", inside ".join(inner)


def _source_lines(
    provenance: Provenance,
    path: Sequence[PathStep],
    paint: Painter,
    around: SourceLine | None = None,
) -> list[str]:
    lines = [f"  inside {shortened(printable(inside_text(path)), 80)}"] if path else []
    source = user_line(provenance)
    before = "" if provenance.own_source else "near "
    if source is None:
        source, before = around, "somewhere in "
    if source is None:
        return [*lines, "  (the line of your code that made it is not known)"]
    # (Candidates may differ only in the column.)
    candidates = list(dict.fromkeys(map(source_text, provenance.candidates)))
    backward = provenance.backward
    if len(candidates) > 1 and (backward is None or backward.forward_source is None):
        lines.append("  on one of these lines:")
        lines += ["    " + paint(BLUE, line) for line in candidates[:3]]
        more = len(candidates) - 3
        lines += [f"    or on one of {more} more"] if more > 0 else []
    else:
        lines += _place_lines(source, paint, before)
        if path and path[-1].step is None and around is not None and around != source:
            lines.append(f"  applied at {place_text(around)}")
    if backward is not None:
        what = f"of {shown_op(user_op_name(backward.forward))}" if backward.forward else "pass"
        cost = f" of {_cost_text(backward.cost)}" if backward.cost else ""
        line = f"  backward {what}, in the gradient{cost}"
        grad = backward.grad_source
        if grad is not None and grad != source:
            line += f", taken at {place_text(grad, column=False)}"
        lines.append(line)
    return lines


def _cost_text(cost: str) -> str:
    """Return the name of a cost, or its operation if it has no name."""
    if cost.startswith(LOG_DENSITY):
        return "the log-density"
    return shown_op(user_op_name(cost)) if "{" in cost or cost[:1].isupper() else cost


def _facts(explanation: Explanation, most: int = MAX_OPERANDS) -> list[str]:
    cause = explanation.cause
    meaning = explanation.meaning.text if explanation.meaning is not None else ""
    told = (meaning, *explanation.notes)
    lines = [line for note in told for line in textwrap.wrap(printable(note), text_width())]
    named = [o for o in cause.operands if not o.constant and _is_named(o)]
    if cause.backward:
        forward = [o for o in cause.differentiated if not o.constant and _is_named(o)]
        named = [o for o in forward or named if not _is_long_formula(o)]
    given = [_operand_line(o) for o in named]
    given = list(dict.fromkeys(given))[:most]
    lines += [("  where  " if i == 0 else "         ") + line for i, line in enumerate(given)]
    whose = f" of {cause.name}" if cause.own_name and cause.role == "node" else ""
    if cause.size > 1:
        bad = BAD[kind_of(cause.value)]
        line = f"{cause.n_bad} of {cause.size} elements{whose} {_are(cause)} {bad}"
        if cause.minimum is not None and cause.n_bad < cause.size - 1 and cause.kind != "big":
            line += f"; the finite ones lie {_between(cause)}"
        lines.append(f"{line} ({cause.dtype}, shape {shape_text(cause.shape)}).")
    if explanation.fate is not None:
        lines.append(_fate_line(explanation.fate))
    return lines


MAX_IN_GRADIENT = 40
"""Length of the longest formula of a gradient that is shown.  The user has not written it."""


def _is_long_formula(operand: Operand) -> bool:
    return operand.computed and len(operand.name) > MAX_IN_GRADIENT


def _is_named(operand: Operand) -> bool:
    """Whether the name of an operand has a word of the user, not numbers alone.

    Examples
    --------
    >>> from theanoguard.explain.facts.records import Operand
    >>> [_is_named(Operand(n, 1.0, (), (), "float64")) for n in ("p", "True * 1.0", "2.0 + 1e-05")]
    [True, False, False]
    """
    return any(
        word not in ("True", "False") for word in re.findall(r"(?<![\w.])[^\W\d]\w*", operand.name)
    )


def _are(cause: Cause) -> str:
    return "is" if cause.n_bad == 1 else "are"


def _operand_line(operand: Operand) -> str:
    name = element_text(shortened(printable(operand.name), MAX_FORMULA), operand.index)
    if operand.computed:
        value = number_text(operand.value)
        given = "" if operand.given in ("", name, value) else f", from {operand.given}"
        return f"{name} = {value}{given}"
    if operand.value is not None:
        return f"{name} = {number_text(operand.value)}"
    if operand.index == (...,) and operand.minimum is None:
        return f"{name} ({operand.dtype}, shape {shape_text(operand.shape)})"
    if operand.minimum is not None:
        line = f"{name}: finite values {_between(operand)} ({operand.dtype})"
    elif operand.dtype.startswith("float"):
        return f"{name}: no finite value"
    else:  # (complex numbers have no order)
        line = f"{name} ({operand.dtype})"
    if operand.telling is None:
        return line
    index, value = operand.telling
    return f"{line}, {index_text(index)} = {number_text(value)}"


def _between(thing: Cause | Operand) -> str:
    low, high = number_text(thing.minimum), number_text(thing.maximum)
    return f"at {low}" if low == high else f"between {low} and {high}"


def _fate_line(fate: Fate) -> str:
    if fate.survives:
        return f"It reaches {len(fate.outputs)} of the function's outputs."
    by = f" by {', '.join(fate.masked_by[:3])}" if fate.masked_by else ""
    return f"It is masked later{by}: no output of the function is bad."


def _deeper(explanation: Explanation, paint: Painter, brief: bool = False) -> list[str]:
    deeper = explanation.deeper
    if deeper is None:
        return []
    value = number_text(deeper.value)
    if deeper.role == "node":
        where = f" at element {_element(deeper.index, deeper.shape)}" if deeper.index else ""
        lines = [f"The {value} came from {shortened(printable(_expression(deeper)), 60)}{where}:"]
    else:
        name = "" if deeper.name == value else shortened(printable(deeper.name), 40)
        lines = [f"The {value} came in with {leaf_text(deeper.role, name, 'the ').rstrip()}:"]
    if deeper.source is None:
        lines[-1] = lines[-1].rstrip(":") + "."
    elif brief:
        text = f"{lines[-1].rstrip(':')}, {place_text(deeper.source)}."
        lines = textwrap.wrap(printable(text), text_width())
    else:
        lines += _place_lines(replace(deeper.source, callers=()), paint)
    return lines


def _advice(explanation: Explanation, paint: Painter, signs: str) -> list[str]:
    """Return the advice, with those lines of the change that have one of some signs."""
    hint = explanation.advice
    if hint is None or not hint.text:
        return []
    signed = zip(cycle("-+"), hint.change, strict=False)
    shown = [(sign, text) for sign, text in signed if sign in signs]
    change = [f"  {sign} {line}" for sign, text in shown for line in text.splitlines()]
    return [paint(GREEN, line) for line in [*_wrapped(hint), *change]]


def _since(explanation: Explanation) -> list[str]:
    since = explanation.since
    return [] if since is None else textwrap.wrap(printable(since_text(since)), text_width())


def _way(explanation: Explanation, paint: Painter, room: int) -> list[str]:
    points = explanation.waypoints
    if len(points) < 2:  # a path of one step only repeats the operands
        return []
    deeper = explanation.deeper
    most = min(MAX_PATH_LINES, room - 1)
    if most < MIN_PATH_LINES:
        return []
    cause = deeper if deeper is not None and deeper.role == "node" else explanation.cause
    rows = [_point_row(point) for point in points]
    rows.append(
        (f"{shortened(printable(_expression(cause)), 60)} = {number_text(cause.value)}", "<- here")
    )
    kept = sorted([*_by_importance(points)[: most - 1], len(points)])
    gaps = {i for before, i in pairwise([-1, *kept]) if i > before + 1}
    if explanation.left_out:
        gaps.add(next(i for i in kept if i >= FAR))
    shown = [
        (f"... {left}" if i in gaps else left, right) for i in kept for left, right in [rows[i]]
    ]
    width = max((len(left) for left, right in shown if right), default=0)
    lines = [f"  {left:<{width}}  {paint(DIM, right)}".rstrip() for left, right in shown]
    return ["From the inputs to there:", *map(str, lines)]


JUMP = 1e6  # by how much a number grows or shrinks in a step of a path that is always shown


def _by_importance(points: Sequence[Waypoint]) -> list[int]:
    """Return the positions of the stops on a path, those that a short path shows first.

    These are the loops, the input, and where a value turns critical: where a number became the 0
    or the negative number that arrives, and the first jump.
    """
    pairs = [(i, *(points[k].value for k in (i - 1, i))) for i in range(1, len(points))]
    pairs = [(i, a, b) for i, a, b in pairs if np.isrealobj(a) and np.isrealobj(b)]
    critical, last = [], points[-1].value
    with np.errstate(all="ignore"):
        if last == 0:
            critical += [i for i, a, b in pairs if b == 0 != a][-1:]
        elif np.isrealobj(last) and last < 0:
            critical += [i for i, a, b in pairs if b < 0 <= a][-1:]
        critical += [i for i, a, b in pairs if a and b and not 1 / JUMP < abs(b / a) < JUMP][:1]
    loops = [i for i, point in enumerate(points) if point.kind == "loop"]
    backwards = range(len(points) - 1, -1, -1)
    named = [i for i in backwards if points[i].name.isidentifier()]
    before = [i - 1 for i in critical]
    return list(dict.fromkeys([*loops, 0, *critical, *before, *backwards[:1], *named, *backwards]))


def _point_row(point: Waypoint) -> tuple[str, str]:
    value = number_text(point.value)
    name = element_text(printable(point.name), point.index)
    left = value if point.name == value else f"{name} = {value}"
    if point.kind == "loop":
        return f"{name}: {steps_text(point.steps)}", ""
    if point.kind == "state":
        return left, f"the state that step {point.path[-1].step} begins with"
    if point.kind != "node":
        return left, f"{ROLES[point.kind]}, shape {shape_text(point.shape)}"
    if point.source is None:
        return left, ""
    return left, place_text(point.source, column=False)


STEPS_SHOWN = 4  # how many steps of a loop the path shows


def steps_text(steps: Sequence[tuple[int, Any]]) -> str:
    """Return the state before some steps of a loop, and its constant growth factor if any.

    Where it became 0, changed its sign or jumped is always shown.

    Examples
    --------
    >>> steps_text([(k, 3.0 * 2.0**k) for k in range(18)])
    '3 before step 0, 192 before 6, 6144 before 11, 3.9322e+05 before 17 (x2 per step)'
    >>> steps_text([(k, max(8 - 2 * k, 0)) for k in range(80)])
    '8 before step 0, 6 before 1, 2 before 3, 0 before 4'
    >>> steps_text([(k, 1.0 if k < 30 else -2.0) for k in range(40)])
    '1 before step 0, 1 before 13, -2 before 30, -2 before 39'
    """
    values = [value for _, value in steps]
    if values[-1] == 0:  # show when it became 0
        end = max((i for i, value in enumerate(values) if value != 0), default=-1) + 2
        steps, values = steps[:end], values[:end]
    last = len(steps) - 1
    turns = [i for i in range(1, last) if _turns(values[i - 1], values[i])]
    thirds = [round(last / 3), round(2 * last / 3)]
    shown = list(dict.fromkeys([0, last, *turns[:1], *thirds]))[:STEPS_SHOWN]
    text = ", ".join(f"{values[i]:.5g} before {steps[i][0]}" for i in sorted(shown))
    text = text.replace("before", "before step", 1)
    sizes = [abs(value) for value in values]
    if last < 2 or not all(0 < a < b < float("inf") for a, b in pairwise(sizes)):
        return text
    factor = (sizes[-1] / sizes[0]) ** (1 / (steps[-1][0] - steps[0][0]))
    is_constant = all(1 / 2 < b / a / factor < 2 for a, b in pairwise(sizes))
    return f"{text} (x{factor:.3g} per step)" if is_constant else text


def _turns(one: Any, other: Any) -> bool:
    """Whether a number changes its sign, or jumps."""
    if one == 0 or other == 0 or (one < 0) != (other < 0):
        return one != other
    if not (math.isfinite(one) and math.isfinite(other)):
        return math.isfinite(one) or math.isfinite(other)
    return not 1 / JUMP < other / one < JUMP


def _footer(
    event: GuardEvent, explanation: Explanation, in_call: bool, paint: Painter
) -> list[str]:
    cause, parts = explanation.cause, []
    if in_call:
        name = f" of {shortened(printable(event.function), 40)}" if event.function else ""
        parts.append(f"call {event.call}{name}")
    if cause.role == "node":
        parts.append(f"{'backward' if cause.backward else 'forward'} pass")
        if in_call and explanation.feeds:
            parts.append(f"on the way to {_listed(explanation.feeds)}")
    text = ", ".join(parts)
    sentences = [f"{text[0].upper()}{text[1:]}."] if text else []
    lines = textwrap.wrap(" ".join([*sentences, *_code_line(cause.hint)]), text_width())
    return [paint(DIM, line) for line in lines]


def _listed(things: Sequence[str], most: int = 3) -> str:
    """Return names as a list in a sentence.  Only the first are named; the rest are counted.

    Examples
    --------
    >>> _listed(["output 0"]), _listed(["a", "b", "c"]), _listed(["a", "b", "c", "d", "e"])
    ('output 0', 'a, b and c', 'a, b and 3 more')
    """
    shown = [shortened(printable(thing), 30) for thing in things]
    if len(shown) > most:
        shown[most - 1 :] = [f"{len(shown) - most + 1} more"]
    return " and ".join([", ".join(shown[:-1]), shown[-1]]) if len(shown) > 1 else shown[0]


shown_by(Explanation, lambda explanation: render_text(explanation.event, explanation))
