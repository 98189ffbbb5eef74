"""The facts of an explanation as a short text, for the files under ``tests/golden``.

They hold what is true of a call, and none of the words around it.  The files ``report_*`` hold
whole reports.
"""

import re

from theanoguard._naming import element_text
from theanoguard._text import number_text

NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e[+-]?\d+)?(?![\w(])")


def place(source):
    """The file, the line and what is marked of it."""
    if source is None:
        return "no line"
    begin, end = source.marked or (0, None)
    return f"{source.file.rpartition('/')[2]}:{source.line} {source.text[begin:end].strip()}"


def numbers(*texts):
    """The numbers in some sentences."""
    return " ".join(NUMBER.findall(" ".join(texts)))


def cause_facts(cause):
    """Yield lines about the operation that made a bad value."""
    steps = "".join(f", step {step.step}" for step in cause.path if step.step is not None)
    backward = " (gradient)" if cause.backward else ""
    yield f"{cause.kind} {cause.op or cause.role}{backward}{steps}: {cause.expression}"
    yield f"  at {place(cause.source)}"
    yield f"  {element_text(cause.name, cause.index)} = {number_text(cause.value)}"
    low, high = (n if n is None else number_text(n) for n in (cause.minimum, cause.maximum))
    yield f"  {cause.n_bad} of {cause.size} bad, {low} to {high}, {cause.dtype} {cause.shape}"
    for operand in (*cause.operands, *cause.differentiated):
        yield f"  of {element_text(operand.name, operand.index or ())} = {operand.text}"


def told(explanation):
    """Return the facts of an explanation."""
    found = explanation
    lines = list(cause_facts(found.cause))
    if found.deeper is not None:
        lines += ["behind it", *cause_facts(found.deeper)]
    for point in found.waypoints:
        value = f"{element_text(point.name, point.index)} = {number_text(point.value)}"
        where = "" if point.kind == "state" else f", {place(point.source)}"
        lines.append(f"via {point.op or point.kind} {value}{where}")
    if found.meaning is not None:
        in_it = numbers(found.meaning.text, found.meaning.origin)
        lines.append(f"fault: {found.meaning.kind}; {in_it}")
    if found.advice is not None:
        hint = found.advice
        lines.append(f"advice: {hint.key} {hint.grade or '(none)'}; {numbers(hint.text)}")
        lines += [f"  {line}" for line in hint.change]
    lines += [f"notes: {numbers(*found.notes)}"] * bool(found.notes)
    lines.append(f"to: {', '.join(found.feeds)}")
    return "\n".join(lines) + "\n"
