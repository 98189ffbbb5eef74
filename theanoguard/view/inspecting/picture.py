"""The picture of a graph: boxes by the user's functions, a part of a large graph at a time."""

import base64
import re
import unicodedata
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Any

from theanoguard._files import write_atomically
from theanoguard._provenance import tracker_of
from theanoguard._pytensor import Function
from theanoguard._text import cut
from theanoguard.view.inspecting import page
from theanoguard.view.inspecting.facts import (
    beside,
    events,
    facts,
    label,
    place,
    short_type,
    user_name,
)
from theanoguard.view.inspecting.groups import MOST, Group, grouped
from theanoguard.view.inspecting.layout import MARGIN, Edge, Key, Point, Tree
from theanoguard.view.inspecting.layout import place as laid_out
from theanoguard.view.inspecting.outline import Outline
from theanoguard.view.model import GraphModel, NodeModel, VariableModel, graph_model

_HERE = Path(__file__).parent


def _alone(style: str) -> str:
    """Return the style of an image, which has no page whose colours it could take.

    What turns SVG into other formats may know neither variables nor ``light-dark``.
    """
    colors = re.findall(r"--tg-(\w+): light-dark\((#\w+), (#\w+)\)", page.STYLE)
    light, dark = style, style
    for name, by_day, by_night in colors:
        light = light.replace(f"var(--tg-{name})", by_day)
        dark = dark.replace(f"var(--tg-{name})", by_night)
    return f"{light}@media (prefers-color-scheme: dark) {{ {dark} }}"


SCRIPT = (_HERE / "picture.js").read_text(encoding="utf-8")
STYLE = (_HERE / "picture.css").read_text(encoding="utf-8")
SVG_STYLE = (_HERE / "svg.css").read_text(encoding="utf-8")
AROUND = 2  # how many steps around a bad node its own view shows

Edges = dict[Edge, tuple[dict[tuple[str, str], None], bool, bool]]
"""Edges, each with names and types of its values, whether overwritten, and whether on the path."""

Frame = tuple[str, float, float, float, float]
Bends = Mapping[Edge, Sequence[Point]]

_LETTERS = 28
_LETTER, _LINE, _MARGIN = 8.2, 17, MARGIN


# --------------------------------------------------------------------------------------
# What there is to draw


@dataclass(eq=False)
class View:
    """The part that is drawn: a group, or the surroundings of a bad node."""

    title: str
    above: "View | None"
    number: int
    svg: str = ""  # the drawing without its style
    size: tuple[float, float] = (0, 0)


@dataclass(eq=False)
class Box:
    """One box of a view."""

    lines: list[str]  # the first is bold
    css: tuple[str, ...]
    hint: str  # what is said when the mouse is on it
    thing: int | None = None  # number of the node or input that it stands for
    opens: View | None = None  # what it opens
    x: float = 0.0
    y: float = 0.0

    @cached_property
    def size(self) -> tuple[float, float]:
        """Width and height."""
        longest = max(_columns(line) for line in self.lines)
        return max(longest * _LETTER, 40) + 2 * _MARGIN, len(self.lines) * _LINE + 10


def _columns(text: str) -> int:
    if text.isascii():
        return len(text)
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


class _Graph:
    """One graph of a picture, the function's or an inner one."""

    def __init__(
        self,
        drawing: "Drawing",
        model: GraphModel,
        wanted: tuple[str, ...] = (),
        above: View | None = None,
    ) -> None:
        self.drawing = drawing
        self.model = model
        self.clients = model.clients()
        outline = Outline(model, wanted)
        self.bad = {self.box_key(key) for key in outline.bad}
        self.path = {self.box_key(key) for key in outline.path}
        self.above = above
        self.things: dict[str, int] = {}
        self.views: dict[Group, View] = {}
        self.home: dict[str, View] = {}

    def box_key(self, variable: str) -> str:
        """Return the key of what is drawn for a variable: its node, or itself."""
        return self.model.variables[variable].owner or variable

    def is_drawn(self, variable: VariableModel) -> bool:
        """Whether an input is drawn: a constant only if it is marked."""
        return variable.owner is None and (variable.kind != "constant" or variable.key in self.path)

    # -- things: what can be chosen and found

    def number(self, key: str) -> int:
        """Return the number of a node or of an input, and remember it as a thing."""
        if key not in self.things:
            self.things[key] = len(self.drawing.things)
            self.drawing.things.append(None)
            self.drawing.things[self.things[key]] = self._thing(key)
        return self.things[key]

    def _thing(self, key: str) -> dict[str, Any]:
        model = self.model
        node = model.nodes.get(key)
        variable = model.variables[node.outputs[0] if node is not None else key]
        name = user_name(variable) or (variable.label if node is None else "")
        marks = [
            e for k in (node.outputs if node else [key]) for e in events(model, model.variables[k])
        ]
        return {
            "key": key,
            "label": cut(label(model, variable)),
            "name": cut(name),
            "role": cut(beside(model, variable)),
            "line": place(variable) or "",
            "type": short_type(variable),
            "bad": key in self.bad,
            "events": [cut(event) for event in dict.fromkeys(marks)],
            "facts": list(facts(model, variable)),
        }

    def box(self, key: str) -> Box:
        """Return the box of a node or of an input."""
        number = self.number(key)
        thing = self.drawing.things[number]
        node = self.model.nodes.get(key)
        variable = self.model.variables[node.outputs[0] if node is not None else key]
        said = thing["role"] or ("" if node is not None else variable.kind)
        names = (thing["label"], said)
        if node is not None and node.written is None:
            names = (said, thing["label"])
        lines = [cut(line, _LETTERS) for line in names if line]
        lines += [cut(event, _LETTERS) for event in thing["events"][:1]]
        shapes = [short_type(self.model.variables[k]) for k in (node.outputs if node else [key])]
        told = [
            *names[: 1 + (node is not None)],
            ", ".join(shapes),
            thing["line"],
            *thing["events"],
        ]
        hint = "; ".join(dict.fromkeys(text for text in told if text))
        kind = "tg-node" if node is not None else "tg-root"
        return Box(lines, (kind, *self.marks([key])), hint, number)

    def marks(self, keys: Iterable[str]) -> tuple[str, ...]:
        """Return the classes of a box that stands for some nodes."""
        if not self.bad.isdisjoint(keys):
            return ("tg-bad",)
        return () if self.path.isdisjoint(keys) else ("tg-path",)

    def folded(self, group: Group) -> Box:
        """Return the box of a folded group."""
        keys = group.nodes
        bad = " with a bad one" if not self.bad.isdisjoint(keys) else ""
        lines = [cut(group.title, _LETTERS), f"{len(keys)} nodes{bad}"]
        hint = f"{group.title}: {lines[1]}; Enter opens it"
        return Box(lines, ("tg-group", *self.marks(keys)), hint, opens=self.view_of(group))

    # -- views

    def view_of(self, group: Group) -> View:
        """Return the view of a group, which may be drawn later."""
        if group not in self.views:
            above = self.above if group.above is None else self.view_of(group.above)
            self.views[group] = self.drawing.view(group.title, above)
        return self.views[group]

    def draw(self, title: str) -> None:
        """Draw the views of this graph, the one with everything first."""
        whole = grouped(self.model, title)
        todo = deque([whole])
        while todo:
            group = todo.popleft()
            view = self.view_of(group)
            nodes = group.nodes
            folds = len(nodes) > MOST
            for key in nodes if not folds else (i for i in group.items if not isinstance(i, Group)):
                self.home[key] = view
            if folds:
                todo += [item for item in group.items if isinstance(item, Group)]
            self._draw_group(view, group, nodes, folds)
        self.first = self.views[whole]
        bad = next((node.key for node in self.model.in_order() if node.key in self.bad), None)
        if bad is not None and len(self.model.nodes) > MOST:
            self.first = self._draw_around(bad)
        for key in self.bad | self.path:
            if key in self.model.variables:  # (an input that no node reads)
                self.number(key)
        self.chosen = bad or next(iter(self.bad), None)
        for key, number in self.things.items():
            home = self.home.get(key) or self._home_of_root(key)
            if home is not None:
                self.drawing.things[number]["view"] = home.number

    def _home_of_root(self, key: str) -> View:
        readers = [self.home[node.key] for node, _ in self.clients.get(key, ())]
        return readers[0] if readers else self.first

    def _draw_around(self, key: str) -> View:
        """Draw a bad node with what is at most `AROUND` steps away, the nearest first."""
        found, todo = {key: 0}, deque([key])
        while todo and len(found) < MOST:
            at = todo.popleft()
            if found[at] == AROUND:
                continue
            node = self.model.nodes[at]
            near = [self.model.variables[k].owner for k in node.inputs]
            near += [n.key for k in node.outputs for n, _ in self.clients[k]]
            near.sort(key=lambda k: k not in self.path)
            for other in near:
                if other is not None and other not in found:
                    found[other] = found[at] + 1
                    todo.append(other)
        nodes = sorted(found, key=lambda k: self.model.nodes[k].order)[: MOST + 20]
        name = self.drawing.things[self.number(key)]
        view = self.drawing.view(f"around {name['name'] or name['label']}", self.home[key])
        self._draw(view, [(node, None) for node in nodes], nodes)
        return view

    def _draw_group(self, view: View, group: Group, nodes: Sequence[str], folds: bool) -> None:
        items = [(i, None) for i in group.items] if folds else _nested(group)
        self._draw(view, items, nodes, group)

    def _draw(
        self, view: View, items: Tree, nodes: Sequence[str], group: Group | None = None
    ) -> None:
        """Draw a view.

        `items` are pairs of a key or a folded group and the frame that it stands in, or, for a
        frame, of a group and the list of what is in it.
        """
        boxes: dict[Key, Box] = {}
        drawn_as: dict[str, Key] = {}

        def collect(parts: Tree) -> Tree:
            tree: list[tuple[Key, Any]] = []
            for item, inside in parts:
                if isinstance(inside, list):
                    tree.append((item, collect(inside)))
                    continue
                is_group = isinstance(item, Group)
                boxes[item] = self.folded(item) if is_group else self.box(item)
                for key in item.nodes if is_group else (item,):
                    drawn_as[key] = item
                tree.append((item, None))
            return tree

        tree = collect(items)
        edges: Edges = {}
        before: dict[Key, Box] = {}
        after: dict[Key, Box] = {}
        own = set(nodes)

        def edge(a: Key, b: Key, variable: VariableModel, in_place: bool, on_path: bool) -> None:
            types, was_in_place, was_on_path = edges.get((a, b), ({}, False, False))
            types[variable.name or "", short_type(variable)] = None
            edges[a, b] = types, was_in_place or in_place, was_on_path or on_path

        for key in nodes:
            node = self.model.nodes[key]
            spoilt = {i for places in node.destroy_map.values() for i in places}
            for i, below in enumerate(node.inputs):
                variable = self.model.variables[below]
                if variable.owner is None:
                    if not self.is_drawn(variable):
                        continue
                    source: Key | None = below
                    if below not in boxes and below not in before:
                        before[below] = self.box(below)
                elif variable.owner in own:
                    source = drawn_as[variable.owner]
                else:
                    source = self._elsewhere(variable.owner, group, before, "from ")
                if source is not None and source != drawn_as[key]:
                    on_path = self.box_key(below) in self.path and key in self.path
                    edge(source, drawn_as[key], variable, i in spoilt, on_path)
            for made in node.outputs:
                for reader, i in self.clients[made]:
                    if reader.key in own or group is None:
                        continue
                    target = self._elsewhere(reader.key, group, after, "to ")
                    spoils = any(i in places for places in reader.destroy_map.values())
                    edge(
                        drawn_as[key],
                        target,
                        self.model.variables[made],
                        spoils,
                        key in self.path and reader.key in self.path,
                    )
        self._put_together(before, edges)
        if group is not None and group.above is None:
            for variable in (self.model.variables[k] for k in self.model.inputs):
                unread = self.is_drawn(variable) and not self.clients[variable.key]
                if unread and (variable.key in self.path or not nodes):
                    before[variable.key] = self.box(variable.key)
        boxes = {**before, **boxes, **after}
        outside = [key for key in before if not _put_inside(tree, key, edges)]
        tree = [*((k, None) for k in outside), *tree, *((k, None) for k in after)]
        size, frames, bends = _arrange(tree, boxes, edges)
        view.size = size
        view.svg = _svg(boxes, frames, edges, bends)

    def _elsewhere(
        self, key: str, group: Group | None, boxes: dict[Key, Box], word: str
    ) -> Key | None:
        """Return the box that stands for a node outside of a view, None for none."""
        if group is None:
            return None
        inside: Group = group
        above = group.above
        while above is not None:
            for item in above.items:
                if item is inside:
                    continue
                if item == key or (isinstance(item, Group) and key in item.members):
                    place = (word, item)
                    if place not in boxes:
                        if isinstance(item, Group):
                            boxes[place] = self.folded(item)
                        else:
                            boxes[place] = self.box(item)
                        boxes[place].css += ("tg-elsewhere",)
                        boxes[place].hint = f"{word}{boxes[place].hint}"
                    return place
            inside, above = above, above.above
        raise KeyError(key)

    def _put_together(self, before: dict[Key, Box], edges: Edges) -> None:
        """Draw several inputs that the same boxes read as one, and their edges."""
        readers: dict[str, list[Key]] = {}
        for a, b in edges:
            if isinstance(a, str) and a in before:
                readers.setdefault(a, []).append(b)
        alike: dict[frozenset[Key], list[str]] = {}
        for key, several in readers.items():
            if not self.marks([key]):
                alike.setdefault(frozenset(several), []).append(key)
        for read_by, keys in alike.items():
            if len(keys) < 4:
                continue
            names = ", ".join(before[key].lines[0] for key in keys)
            lines = [f"{len(keys)} inputs", cut(names, _LETTERS)]
            one = ("several", keys[0])
            before[one] = Box(lines, ("tg-root",), f"{len(keys)} inputs: {names}")
            for key in keys:
                del before[key]
                for b in read_by:
                    types, in_place, on_path = edges.pop((key, b))
                    old = edges.get((one, b), ({}, False, False))
                    edges[one, b] = old[0] | types, old[1] or in_place, old[2] or on_path


def _put_inside(tree: Tree, key: Key, edges: Iterable[Edge]) -> bool:
    """Put an input into the innermost frame that holds all that reads it, if there is one."""
    readers = {b for a, b in edges if a == key}
    for _, within in tree:
        if within is not None and readers <= set(_inside(within)):
            if not _put_inside(within, key, edges):
                within.insert(0, (key, None))
            return True
    return False


def _inside(parts: Tree) -> list[Key]:
    """Return what is drawn in some parts, frames left out."""
    found: list[Key] = []
    for item, within in parts:
        found += [item] if within is None else _inside(within)
    return found


def _nested(group: Group) -> list[tuple[Key, Any]]:
    """Return what is in a group, groups as frames."""
    return [
        (item, _nested(item)) if isinstance(item, Group) else (item, None) for item in group.items
    ]


def _arrange(
    tree: Tree, boxes: Mapping[Key, Box], edges: Collection[Edge]
) -> tuple[tuple[float, float], list[Frame], Bends]:
    """Give every box its place; return the size of all, the frames, and the bends of edges."""
    sizes = {key: box.size for key, box in boxes.items()}
    found = laid_out(sizes, edges, tree, {group: _title_width(group) for group in _frames(tree)})
    for key, (x, y) in found.corners.items():
        boxes[key].x, boxes[key].y = x + _MARGIN, y + _MARGIN
    frames = [
        (group.title, x + _MARGIN, y + _MARGIN, width, height)
        for group, (x, y, width, height) in found.frames.items()
    ]
    bends = {
        edge: [(x + _MARGIN, y + _MARGIN) for x, y in points]
        for edge, points in found.bends.items()
    }
    width, height = found.size
    return (width + 2 * _MARGIN, height + 2 * _MARGIN), frames, bends


def _frames(tree: Tree) -> Iterator[Group]:
    """Yield the groups that have frames."""
    for item, within in tree:
        if within is not None:
            yield item
            yield from _frames(within)


def _title_width(group: Group) -> float:
    return _columns(cut(group.title, 60)) * _LETTER


def _svg(boxes: Mapping[Key, Box], frames: Iterable[Frame], edges: Edges, bends: Bends) -> str:
    """Return the inside of a drawing."""
    parts = []
    ends: dict[Key, list[Key]] = {}
    for a, b in edges:
        ends.setdefault(b, []).append(a)
    for sources in ends.values():
        sources.sort(key=lambda a: boxes[a].x + boxes[a].size[0] / 2)
    for (a, b), (types, in_place, on_path) in edges.items():
        (width, height), (to_width, _) = boxes[a].size, boxes[b].size
        share = (ends[b].index(a) + 1) / (len(ends[b]) + 1)
        points = [
            (boxes[a].x + width / 2, boxes[a].y + height),
            *bends.get((a, b), ()),
            (boxes[b].x + to_width * share, boxes[b].y - 6),
        ]
        css = f"tg-edge{' tg-path' if on_path else ''}{' tg-inplace' if in_place else ''}"
        said = ", ".join(f"{name} {shape}".strip() for name, shape in list(types)[:5])
        said += ", overwritten" if in_place else ""
        x, y = points[-1]
        parts.append(
            f'<g class="{css}"><title>{page.text(said)}</title><path d="{_curve(points)}"/>'
            f'<path class="tg-head" d="M{x - 4:.0f} {y - 2:.0f}h8l-4 8z"/></g>'
        )
    for title, x, y, width, height in frames:
        parts.append(
            f'<g class="tg-frame"><rect x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" '
            f'height="{height:.0f}" rx="6"/><text x="{x + 8:.0f}" y="{y + 16:.0f}">'
            f"{page.text(cut(title, 60))}</text></g>"
        )
    for box in boxes.values():
        parts.append(_box_svg(box))
    return "".join(parts)


def _curve(points: Sequence[Point]) -> str:
    d = [f"M{points[0][0]:.0f} {points[0][1]:.0f}"]
    for (x0, y0), (x1, y1) in pairwise(points):
        if x0 == x1:
            d.append(f"V{y1:.0f}")
            continue
        half = max((y1 - y0) / 2, 8)
        d.append(f"C{x0:.0f} {y0 + half:.0f} {x1:.0f} {y1 - half:.0f} {x1:.0f} {y1:.0f}")
    return "".join(d)


def _box_svg(box: Box) -> str:
    width, height = box.size
    about = "" if box.thing is None else f' data-n="{box.thing}"'
    if box.opens is not None:
        about += f' data-opens="{box.opens.number}"'
    x = box.x + width / 2
    lines = "".join(
        f'<text x="{x:.0f}" y="{box.y + 18 + i * _LINE:.0f}" '
        f'class="{"tg-first" if i == 0 else "tg-more"}">{page.text(line)}</text>'
        for i, line in enumerate(box.lines)
    )
    radius = height / 2 if "tg-root" in box.css else 4
    rect = (
        f'<rect x="{box.x:.0f}" y="{box.y:.0f}" width="{width:.0f}" height="{height:.0f}" '
        f'rx="{radius:.0f}"/>'
    )
    behind = rect.replace("<rect ", '<rect class="tg-behind" ') if box.opens is not None else ""
    css = " ".join(("tg-box", *box.css))
    return f'<g class="{css}"{about}><title>{page.text(box.hint)}</title>{behind}{rect}{lines}</g>'


# --------------------------------------------------------------------------------------
# A picture


class Drawing:
    """All views of a graph and of its inner graphs.

    - `wanted`: names of inputs, as for an :class:`Outline`.
    - `things`: the nodes and inputs, as the script wants them.
    - `first`: what is shown at first: the surroundings of the bad node, or everything.
    - `chosen`: the thing that is chosen at first.
    """

    def __init__(
        self, model: GraphModel, wanted: tuple[str, ...] = (), title: str = "graph"
    ) -> None:
        self.title = title
        self.n_nodes = len(model.nodes)
        self.things: list[Any] = []
        self.views: list[View] = []
        self.chosen: int | None = None
        todo: deque[tuple[GraphModel, str, tuple[_Graph, NodeModel] | None]]
        todo = deque([(model, title, None)])
        while todo:
            model, title, holder = todo.popleft()
            above = None if holder is None else holder[0].home[holder[1].key]
            graph = _Graph(self, model, wanted, above)
            graph.draw(title)
            wanted = ()  # (the inputs of inner graphs have no names)
            if holder is not None:
                outer, node = holder
                inside = self.things[outer.things[node.key]].setdefault("inside", [])
                inside.append([title, graph.first.number])
            if holder is None or (self.chosen is None and graph.chosen is not None):
                self.first = graph.first
                self.chosen = graph.things.get(graph.chosen or "")
            for node in model.in_order():
                for name, inner in node.inner.items():
                    called = f"{page.inner_name(name)} of {cut(node.op, _LETTERS)}"
                    todo.append((inner, called, (graph, node)))

    def view(self, title: str, above: View | None) -> View:
        """Make a view that is yet to be drawn."""
        self.views.append(View(title, above, len(self.views)))
        return self.views[-1]

    def svg(self, view: View | None = None) -> str:
        """Return a view, by default the first, as an SVG document of its own."""
        view = self.first if view is None else view
        width, height = max(view.size[0], _LEGEND_WIDTH), view.size[1] + 30
        legend = f'<g transform="translate(0 {view.size[1]:.0f})">{LEGEND}</g>'
        back = '<rect class="tg-ground" width="100%" height="100%"/>'
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="tg-graph" role="img" '
            f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}">'
            f"<title>{page.text(self.title)}: {page.text(view.title)}</title>"
            f"<style>{_alone(SVG_STYLE)}</style>{back}{view.svg}{legend}</svg>"
        )

    def data(self, linked: Mapping[str, Sequence[str]] | None = None) -> dict[str, Any]:
        """Return what the script needs as plain data."""
        return {
            "title": self.title,
            "things": self.things,
            "views": [
                {
                    "title": view.title,
                    "above": -1 if view.above is None else view.above.number,
                    "size": [round(n) for n in view.size],
                    "svg": view.svg,
                }
                for view in self.views
            ],
            "first": self.first.number,
            "chosen": -1 if self.chosen is None else self.chosen,
            "linked": linked or {},
        }


_KEYS = (
    ("tg-box tg-node", "operation"),
    ("tg-box tg-root", "input"),
    ("tg-box tg-group", "folded: Enter opens"),
    ("tg-box tg-bad tg-node", "bad"),
    ("tg-box tg-path tg-node", "on the path"),
    ("tg-edge tg-inplace", "overwritten in place"),
)


def _key(css: str, x: int = 2) -> str:
    """Return the sample of one line of the legend."""
    if "tg-edge" in css:
        return f'<g class="{css}"><path d="M{x} 14h26"/></g>'
    radius = 8 if "tg-root" in css else 3
    return f'<g class="{css}"><rect x="{x}" y="6" width="24" height="16" rx="{radius}"/></g>'


def _legend() -> tuple[str, int]:
    """Return the inside of the legend of an image, and its width."""
    x, parts = _MARGIN, []
    for css, word in _KEYS:
        parts.append(f'{_key(css, x)}<text class="tg-key-text" x="{x + 30}" y="18">{word}</text>')
        x += round(48 + len(word) * 6.6)
    return "".join(parts), x


LEGEND, _LEGEND_WIDTH = _legend()
PAGE_LEGEND = "".join(
    f'<span><svg class="tg-graph" aria-hidden="true" viewBox="0 0 30 28">{_key(css)}</svg> '
    f"{word}</span>"
    for css, word in _KEYS
)


class Picture:
    """The picture of a graph, or of two beside each other; a notebook displays it.

    Parameters
    ----------
    drawings : dict of str to Drawing
        By a heading, empty for a single one.
    links : dict of str to dict
        For each heading, which nodes of the other drawing each of its nodes stands for.

    Examples
    --------
    >>> from theanoguard import inspect_graph
    >>> import pytensor.tensor as pt
    >>> picture = inspect_graph(pt.log(pt.dvector("x"))).picture()
    >>> picture
    <Picture of graph: 1 node>
    >>> picture.svg()[:4]
    '<svg'
    """

    def __init__(
        self,
        drawings: Mapping[str, Drawing],
        links: Mapping[str, Mapping[str, list[str]]] | None = None,
    ) -> None:
        self._drawings = drawings
        self._links = links or {}

    def __repr__(self) -> str:
        parts = []
        for heading, drawing in self._drawings.items():
            count = f"{drawing.n_nodes} node{'s' if drawing.n_nodes != 1 else ''}"
            parts.append(f"{heading} {count}".strip())
        title = next(iter(self._drawings.values())).title
        return f"<Picture of {title}: {', '.join(parts)}>"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        # (a front end shows the HTML if it can; without it, the image of the first view)
        shown = {"text/plain": repr(self), "text/html": self.html(), "image/svg+xml": self.svg()}
        if len(shown["text/html"]) > page.MOST_PACKED:
            del shown["text/html"]
            shown["text/plain"] += "\nOnly its first view is shown: save(path) writes all of it."
        return shown

    def html(self) -> str:
        """Return the picture as HTML.

        Returns
        -------
        str
            One element that needs nothing else: no network, no installed extension.  Where
            scripts are not run it is the image of the first view.
        """
        legend = f'<template><div class="tg-legend">{PAGE_LEGEND}</div></template>'
        parts = []
        for heading, drawing in self._drawings.items():
            packed = page.packed(drawing.data(self._links.get(heading)))
            name = page.unique("tg")
            image = base64.b64encode(drawing.svg().encode()).decode()
            title = f"{drawing.title}, {heading}".removesuffix(", ")
            said = page.text(f"Graph of {title}: {drawing.first.title}")
            head = f"<p><b>{page.text(heading)}</b></p>" if heading else ""
            parts.append(
                f'<div class="tg-tree tg-picture" id="{name}" data-lm-suppress-shortcuts="true">'
                f'{head}<div class="tg-plain"><img alt="{said}" style="max-width:100%" '
                f'src="data:image/svg+xml;base64,{image}"></div>'
                f"{legend}{page.script(SCRIPT, name, title, packed)}</div>"
            )
        style = f"<style>{page.STYLE}{STYLE}{SVG_STYLE}</style>"
        return f'<div class="tg-pictures">{style}{"".join(parts)}</div>'

    def svg(self) -> str:
        """Return the first view as an image.

        Returns
        -------
        str
            An SVG document; of two pictures the one after rewriting.
        """
        return list(self._drawings.values())[-1].svg()

    def save(self, path: str | PathLike[str]) -> None:
        """Write the picture into a file: the first view as ``.svg``, else an HTML page.

        Parameters
        ----------
        path : str or path-like
        """
        path = Path(path)
        title = next(iter(self._drawings.values())).title
        alone = path.suffix.lower() == ".svg"
        text = self.svg() if alone else page.document(self.html(), title)
        write_atomically(path, text.encode())


def picture(model: GraphModel, wanted: tuple[str, ...], title: str) -> Picture:
    """Return the picture of one graph.

    `wanted`: names of inputs, as for an :class:`Outline`.
    """
    return Picture({"": Drawing(model, wanted, title)})


def pictures(
    function: Function | None, model: GraphModel, wanted: tuple[str, ...], title: str
) -> Picture:
    """Return the pictures of a function's graph before and after rewriting, side by side.

    `model`, `wanted` and `title` are those of :func:`picture`, for the graph after.

    Raises
    ------
    ValueError
        If no rewriting was recorded.
    """
    before, links = before_rewriting(function, model)
    models = {"before rewriting": before, "after rewriting": model}
    drawings = {word: Drawing(graph, wanted, title) for word, graph in models.items()}
    return Picture(drawings, dict(zip(drawings, (links["before"], links["after"]), strict=True)))


def before_rewriting(
    function: Function | None, model: GraphModel
) -> tuple[GraphModel, dict[str, dict[str, list[str]]]]:
    """Return the graph before rewriting, and which of its nodes became which.

    `model`: describes its graph, with live objects.

    Returns
    -------
    before : GraphModel
    links : dict of str to dict of str to list of str
        Under ``"after"``, for each node the keys of those that it was rewritten from; under
        ``"before"`` the same the other way round.

    Raises ``ValueError``: if it was not recorded.
    """
    tracker = None if function is None else tracker_of(function.maker.fgraph)
    if tracker is None:
        raise ValueError(
            "nothing is known of the graph before it was rewritten.\n"
            "Compile the function under a guard, or inside theanoguard.track_provenance()."
        )
    outputs, copies = tracker.before()
    before = graph_model(outputs)
    keys = {thing: key for key, thing in before.objects.items()}
    links: dict[str, dict[str, list[str]]] = {"before": {}, "after": {}}
    for key in model.nodes:
        for node in tracker.replaced_by(model.objects[key]):
            if (old := keys.get(copies[node])) is not None:
                links["after"].setdefault(key, []).append(old)
                links["before"].setdefault(old, []).append(key)
    return before, links
