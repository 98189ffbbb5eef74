"""A graph as HTML: nested ``<details>`` for everybody, a tree with a panel where scripts run."""

import base64
import html
import json
import re
import secrets
import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from theanoguard._shown import MOST
from theanoguard._text import cut, printable
from theanoguard.explain.text.color import BLUE, BOLD_RED, DIM, GREEN
from theanoguard.view.inspecting.facts import (
    beside,
    events,
    facts,
    label,
    place,
    rewrites,
    short_type,
    user_name,
)
from theanoguard.view.inspecting.outline import Outline
from theanoguard.view.model import GraphModel

_HERE = Path(__file__).parent
COMMON = (_HERE / "common.js").read_text(encoding="utf-8")
SCRIPT = (_HERE / "tree.js").read_text(encoding="utf-8")
STYLE = (_HERE / "tree.css").read_text(encoding="utf-8")

PLAIN_SIZE = 210_000
"""Bytes of the part that needs no script; what matters less is left to the script beyond them."""

MOST_PACKED = 200_000
"""Bytes of the packed rows of a graph that a notebook stores; 2,000 nodes have about 50,000."""

MAX_DEPTH = 40  # how deep the part without a script is nested; what lies deeper follows below

_LABEL, _REWRITES = 60, 120


def text(value: object) -> str:
    """Return text that HTML shows as it is."""
    shown = str(value)
    return html.escape(shown if shown.isprintable() else printable(shown), quote=True)


def block(value: object) -> str:
    """Return HTML that shows text as it is, with its lines."""
    return "<pre>" + "\n".join(text(line) for line in str(value).split("\n")) + "</pre>"


def tree(outline: Outline, title: str, stored: bool = False) -> str:
    """Return the HTML of a graph.

    `stored`: whether a notebook stores it.  Then the rows that need no script are at most `MOST`
    bytes, and a graph whose packed rows exceed `MOST_PACKED` has no other rows.

    Returns: one ``<div>``, with its style and script inside.
    """
    inside = pack(outline)
    name = unique("tg")
    shown, plain = plain_tree(outline, MOST if stored else PLAIN_SIZE)
    total = len(outline.up)
    said = counts(outline.model)
    if shown < total:
        said += f"; {shown} of {total} rows are shown, those around what matters"
    script_of = script(SCRIPT, name, title, inside)
    if stored and len(inside) > MOST_PACKED:
        said += ". inspect_graph(...).save(path) writes all of them as a page"
        script_of = ""
    return (
        f'<div class="tg-tree" id="{name}" data-lm-suppress-shortcuts="true">'
        f"<style>{STYLE}</style>"
        f'<div class="tg-plain"><p><b>{text(title)}</b>: {said}</p>{plain}</div>'
        f"{script_of}</div>"
    )


def counts(model: GraphModel) -> str:
    """Return how many nodes, inputs and marked ones a graph has, as text."""
    kinds = [variable.kind for variable in model.variables.values()]
    marked = sum(bool(node.events) for node in model.nodes.values())
    marked += sum(bool(variable.events) for variable in model.variables.values())
    told = (
        (len(model.nodes), "node"),
        (kinds.count("input"), "input"),
        (kinds.count("shared"), "shared variable"),
        (marked, "marked"),
    )
    return ", ".join(
        f"{n} {word}{'s' if n != 1 and word != 'marked' else ''}"
        for n, word in told
        if n or word == "node"
    )


def unique(kind: str) -> str:
    """Return a name for an element that no other element of a document has."""
    return f"{kind}-{secrets.token_hex(6)}"


def script(function: str, name: str, title: str, inside: str) -> str:
    """Return the element that runs a function of the browser's on packed data.

    - `function`: JavaScript: a function of the host element, its title and the data.
    - `name`, `title`, `inside`: the name of the host element, its title, and the packed data.
    """
    return (
        f"<script>{{\n{COMMON}\nstart({function.strip()}, {json.dumps(name)}, "
        f'{json.dumps(title_json(title))}, "{inside}");\n}}</script>'
    )


def title_json(title: str) -> str:
    """Return a title that cannot end the script that it stands in."""
    return re.sub(r"[^\w .,:()-]", "?", printable(title))


def colored(report: str) -> str:
    """Return the HTML of a report that has the terminal's colours."""
    classes = {BOLD_RED: "tg-bad", BLUE: "tg-line", GREEN: "tg-hint", DIM: "tg-dim"}
    parts = re.split(r"(\x1b\[[\d;]*m)", report)
    pieces = [html.escape(parts[0])]
    for code, piece in zip(parts[1::2], parts[2::2], strict=True):
        piece = html.escape(piece)
        name = classes.get(code)
        pieces.append(f'<span class="{name}">{piece}</span>' if name and piece else piece)
    return f'<pre class="tg-report">{"".join(pieces)}</pre>'


def fold(summary: str, inside: str, css: str = "tg-fold") -> str:
    """Return HTML that is closed until its summary is clicked."""
    return f'<details class="{css}"><summary>{text(summary)}</summary>{inside}</details>'


def document(body: str, title: str) -> str:
    """Return a whole HTML document."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{text(title)}</title>\n</head>\n<body>\n<main>\n"
        f'<h1 style="font: 600 1.2em system-ui, sans-serif">{text(title)}</h1>\n'
        f"{body}\n</main>\n</body>\n</html>\n"
    )


# --------------------------------------------------------------------------------------
# Without a script


Rows = dict[tuple[int, str | None], str]
"""The HTML of rows, by the id of their outline and their key."""

Level = tuple[Outline, Sequence[str], str | None]
"""Rows of an outline, and the row that they stand under."""


def plain_tree(outline: Outline, most: int = PLAIN_SIZE) -> tuple[int, str]:
    """Return how many rows of a graph fit into `most` bytes, and their HTML."""
    rows: Rows = {}
    size = 0
    weighed = ((part, key) for part in outline.walk() for key in part.by_weight())
    for part, key in weighed:
        row = _plain_row(part, key)
        below = part.inputs(key) if part.has_rows_below(key) else ()
        elsewhere = [_short(part, k) for k in below if part.up.get(k) != key]
        size += len(row.encode()) + (_AROUND if below else _REFERENCE)
        size += sum(len(name.encode()) + _REFERENCE for name in elsewhere)
        if size > most and rows:
            break
        rows[id(part), key] = row
    parts = []
    later: deque[tuple[str, Level]] = deque([("", (outline, outline.roots, None))])
    while later:
        heading, level = later.popleft()
        parts.append(heading)
        parts.append(_nested(level, rows, later))
    return len(rows), "".join(parts)


_AROUND = len("<li><details><summary></summary><ul></ul></details></li>")
_REFERENCE = len("<li>, shown elsewhere</li>")


def _nested(top: Level, rows: Rows, later: deque[tuple[str, Level]]) -> str:
    """Return nested lists of rows; what is too deep is appended to `later`."""
    parts = ["<ul>"]
    levels = [_items(*top)]
    below: Level
    hidden = [0]
    while levels:
        item = next(levels[-1], None)
        if item is None:
            levels.pop()
            if missing := hidden.pop():
                parts.append(f"<li>{missing} more, not shown here</li>")
            parts.append("</ul></details></li>" if levels else "</ul>")
            continue
        name, part, key, is_home = item
        row = rows.get((id(part), key))
        if key is None:
            summary, below = text(name), (part, part.roots, None)
        elif row is None:
            hidden[-1] += 1
            continue
        elif not (is_home and part.has_rows_below(key)):
            is_leaf = part.model.variables[key].owner is None
            again = _short(part, key) + ("" if is_leaf else ", shown elsewhere")
            parts.append(f"<li>{row if is_leaf and is_home else again}</li>")
            continue
        elif len(levels) > MAX_DEPTH:
            heading = f"<p>Below {_short(part, key)}:</p>"
            later.append((heading, (part, part.inputs(key), key)))
            parts.append(f"<li>{row}, continued below</li>")
            continue
        else:
            summary, below = row, (part, part.inputs(key), key)
        mark = " open" if key in part.opened else ""
        parts.append(f"<li><details{mark}><summary>{summary}</summary><ul>")
        levels.append(_items(*below))
        hidden.append(0)
    return "".join(parts)


def _items(
    outline: Outline, keys: Iterable[str], above: str | None
) -> Iterator[tuple[str | None, Outline, str | None, bool]]:
    """Yield what stands on one level: (name, outline, key, whether it is the row's own place)."""
    for key in keys:
        yield None, outline, key, outline.up.get(key) == above
    if above is not None:
        for name, graph in outline.graphs(above):
            yield inner_name(name), graph, None, True


def inner_name(name: str) -> str:
    """Return what an inner graph is called."""
    return f"inner graph {name}".rstrip()


def _plain_row(outline: Outline, key: str) -> str:
    model = outline.model
    variable = model.variables[key]
    parts = [f"<mark>{text(cut(event))}</mark>" for event in events(model, variable)]
    parts.append(f"<b>{text(cut(label(model, variable), _LABEL))}</b>")
    if said := beside(model, variable):
        parts.append(f"<i>{text(cut(said, _LABEL))}</i>")
    parts.append(f"<small>{key} {text(cut(short_type(variable), _LABEL))}</small>")
    if line := place(variable):
        parts.append(f"<code>{text(cut(line, _LABEL))}</code>")
    if variable.statistics is not None:
        parts.append(f"<small>{text(variable.statistics)}</small>")
    if history := ", ".join(rewrites(variable.provenance)):
        parts.append(f"<small>from {text(cut(history, _REWRITES))}</small>")
    return " ".join(parts)


def _short(outline: Outline, key: str) -> str:
    name = cut(label(outline.model, outline.model.variables[key]), _LABEL)
    return f"{text(name)} <small>{key}</small>"


# --------------------------------------------------------------------------------------
# For the script


def pack(outline: Outline) -> str:
    """Return what the script needs, as deflated JSON in base 64."""
    parts = list(outline.walk())
    number = {id(part): i for i, part in enumerate(parts)}
    places = {id(part): {key: i for i, key in enumerate(part.up)} for part in parts}
    words: dict[str, int] = {}
    data = {
        "graphs": [_graph_data(part, number, places, words) for part in parts],
        "words": list(words),
        "counts": counts(outline.model),
    }
    return packed(data)


def packed(data: Any) -> str:
    """Return plain data as deflated JSON in base 64."""
    raw = json.dumps(data, separators=(",", ":"))
    return base64.b64encode(zlib.compress(raw.encode(), 9)).decode()


def _graph_data(
    part: Outline,
    number: Mapping[int, int],
    places: Mapping[int, Mapping[str, int]],
    words: dict[str, int],
) -> dict[str, Any]:
    """Return one graph; a row is named by its place, a text by its place among `words`."""

    def word(value: str | None) -> int:
        return words.setdefault(value or "", len(words))

    def row(key: str | None) -> int:
        return -1 if key is None else at.get(key, -1)

    at = places[id(part)]
    rows = []
    for key, above in part.up.items():
        variable = part.model.variables[key]
        readers = (part.row_of.get(node.key) for node, _ in part.clients[key])
        rows.append(
            {
                "key": key,
                "label": word(cut(label(part.model, variable))),
                "name": word(cut(user_name(variable))),
                "role": word(cut(beside(part.model, variable))),
                "type": word(cut(short_type(variable))),
                "line": word(place(variable)),
                "value": str(variable.statistics or ""),
                "events": [cut(event) for event in events(part.model, variable)],
                "up": row(above),
                "home": row(part.row_of.get(variable.owner or "")),
                "inputs": [at[k] for k in part.inputs(key) if k in at],
                "clients": [at[k] for k in dict.fromkeys(readers) if k is not None],
                "inner": [
                    [inner_name(name), number[id(graph)]] for name, graph in part.graphs(key)
                ],
                "facts": [[word(name), word(value)] for name, value in facts(part.model, variable)],
            }
        )
    found: dict[str, Any] = {
        "rows": rows,
        "roots": [at[key] for key in part.roots],
        "bad": [at[key] for key in part.bad if key in at],
        "path": [at[key] for key in part.path if key in at],
        "above": None,
    }
    if part.above is not None:
        outer, node = part.above
        found["above"] = [number[id(outer)], places[id(outer)][outer.row_of[node]]]
    return found
