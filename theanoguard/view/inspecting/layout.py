"""Where the boxes of a picture are: in layers from the inputs down to the outputs.

All frames share the layers of the whole picture, so that edges lead down, also into frames and out
of them.  Frames with layers in common, such as a forward pass and its gradient, are beside each
other.  An edge that passes layers runs straight down between their boxes.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from typing import Any

GAP_X, GAP_Y = 18, 34
MARGIN, TITLE = 10, 20  # space inside of a frame, and the height of its title
_RAIL = 4
_SWEEPS = 6

Key = Any  # what names a box or a frame
Edge = tuple[Key, Key]
Tree = Sequence[tuple[Key, Any]]
"""Boxes, each with None, and frames, each with the tree of what is in it."""
Point = tuple[float, float]


@dataclass
class Layout:
    """The places of boxes, frames and edges."""

    corners: dict[Key, Point]  # the upper left corner of each box; none is negative
    #: The corner, the width and the height of each frame, outer ones first.
    frames: dict[Key, tuple[float, float, float, float]]
    bends: dict[Edge, list[Point]]  # points between the ends of an edge, from its first box on
    size: tuple[float, float]  # of all together


def in_order(boxes: Sequence[Key], edges: Iterable[Edge]) -> list[Key]:
    """Return boxes in an order with few edges against it: none, if no edges form a circle."""
    number = {box: i for i, box in enumerate(boxes)}
    before: dict[Key, set[Key]] = {box: set() for box in boxes}
    after = defaultdict(list)
    for a, b in dict.fromkeys(edges):
        before[b].add(a)
        after[a].append(b)
    order: dict[Key, None] = {}
    while len(order) < len(boxes):
        left = [box for box in boxes if box not in order]
        ready = [box for box in left if not before[box]]
        for box in ready or [min(left, key=lambda box: (len(before[box]), number[box]))]:
            order[box] = None
            for b in after[box]:
                before[b].discard(box)
    return list(order)


def layers_of(boxes: Sequence[Key], edges: Iterable[Edge]) -> list[list[Key]]:
    """Return the boxes of each layer; an edge leads to a later layer.

    An edge of a circle may lead back.
    """
    edges = list(dict.fromkeys(edges))
    order = in_order(boxes, edges)
    number = {box: i for i, box in enumerate(order)}
    before, after = defaultdict(list), defaultdict(list)
    for a, b in edges:
        if number[a] < number[b]:
            before[b].append(a)
            after[a].append(b)
    depth: dict[Key, int] = {}
    for box in order:
        depth[box] = max((depth[a] + 1 for a in before[box]), default=0)
    # What would make no edge longer is right above its first reader.
    for box in reversed(order):
        if after[box] and len(before[box]) <= len(after[box]):
            depth[box] = min(depth[b] for b in after[box]) - 1
    first = min(depth.values(), default=0)
    layers: list[list[Key]] = [[] for _ in range(max(depth.values(), default=-1) + 1 - first)]
    for box in order:
        layers[depth[box] - first].append(box)
    return layers


@dataclass(eq=False)
class _Unit:
    """What has one place across some layers: a box, a frame, or the long part of an edge."""

    first: int
    last: int
    width: float
    middles: dict[Key, float]  # of all that is in it, from its left side
    x: float = 0.0
    name: Key = None
    units: "list[_Unit]" = field(default_factory=list)

    @property
    def is_frame(self) -> bool:
        return bool(self.units)

    def depth(self, end: Callable[["_Unit"], int]) -> int:
        """Return how many frames have a border at the first or last layer of this one."""
        inside = [unit.depth(end) for unit in self.units if end(unit) == end(self)]
        return self.is_frame + max(inside, default=0)

    def walk(self, x: float = 0.0) -> "Iterator[tuple[_Unit, float]]":
        """Yield this and all that is in it, each with its left side."""
        yield self, x + self.x
        for unit in self.units:
            yield from unit.walk(x + self.x + MARGIN)


def place(
    sizes: Mapping[Key, tuple[float, float]],
    edges: Collection[Edge],
    tree: Tree | None = None,
    titles: Mapping[Key, float] | None = None,
) -> Layout:
    """Return where boxes and frames are, and where the edges between boxes bend.

    `sizes`: width and height of each box.
    `tree`: which boxes are in which frames; None for no frames.
    `titles`: the width of the title of each frame.
    """
    layers = layers_of(list(sizes), edges)
    level = {box: i for i, layer in enumerate(layers) for box in layer}
    tree = [(box, None) for box in sizes] if tree is None else tree
    work = _Arranging(sizes, list(dict.fromkeys(edges)), level, titles or {})
    whole = work.arranged(tree, "all")
    return _with_heights(whole, layers, sizes, work.edges)


@dataclass
class _Arranging:
    sizes: Mapping[Key, tuple[float, float]]
    edges: list[Edge]
    level: Mapping[Key, int]
    titles: Mapping[Key, float]

    def arranged(self, tree: Tree, name: Key) -> _Unit:
        """Return a frame with its boxes, frames and edges beside each other."""
        units = [
            self._box(key) if inside is None else self.arranged(inside, key) for key, inside in tree
        ]
        home = {key: unit for unit in units for key in unit.middles}
        pairs: list[tuple[Key, Key]] = []
        for edge in self.edges:
            a, b = edge
            if a not in home or b not in home or home[a] is home[b]:
                continue
            steps: tuple[Key, ...] = (a, b)
            if (rail := self._rail(edge)) is not None:
                units.append(rail)
                home[edge] = rail
                steps = (a, edge, b)
            pairs += pairwise(steps)
        near = defaultdict(list)
        for a, b in pairs:
            near[home[a]].append((a, b))
            near[home[b]].append((b, a))
        _spread_out(units, near, home)
        left = min((unit.x for unit in units), default=0)
        right = max((unit.x + unit.width for unit in units), default=0)
        width = max(right - left, self.titles.get(name, 0))
        for unit in units:
            unit.x -= left - (width - right + left) / 2
        first = min((unit.first for unit in units), default=0)
        last = max((unit.last for unit in units), default=0)
        middles = {
            key: unit.x + middle + MARGIN for unit in units for key, middle in unit.middles.items()
        }
        return _Unit(first, last, width + 2 * MARGIN, middles, name=name, units=units)

    def _box(self, key: Key) -> _Unit:
        width = self.sizes[key][0]
        return _Unit(self.level[key], self.level[key], width, {key: width / 2}, name=key)

    def _rail(self, edge: Edge) -> _Unit | None:
        """Return the part of an edge that passes layers; None if it passes none."""
        a, b = self.level[edge[0]], self.level[edge[1]]
        first, last = (a + 1, b - 1) if a < b else (b, a)
        return _Unit(first, last, _RAIL, {edge: _RAIL / 2}, name=edge) if first <= last else None


def _spread_out(
    units: Sequence[_Unit],
    near: Mapping[_Unit, Sequence[tuple[Key, Key]]],
    home: Mapping[Key, _Unit],
) -> None:
    """Place units beside each other: few crossings, each as near as can be to its neighbours."""

    def wish(unit: _Unit, pairs: Iterable[tuple[Key, Key]]) -> float:
        wishes = [
            home[other].x + home[other].middles[other] - unit.middles[own] for own, other in pairs
        ]
        return sum(wishes) / len(wishes) if wishes else unit.x

    def is_above(unit: _Unit, other: Key) -> bool:
        return home[other].last <= unit.first

    order = sorted(units, key=lambda unit: unit.first)
    _pack(order, dict.fromkeys(order, 0.0))
    for sweep in range(_SWEEPS):
        wishes = {}
        for unit in sorted(units, key=lambda unit: unit.first, reverse=sweep % 2 == 1):
            pairs = near.get(unit, ())
            side = [pair for pair in pairs if is_above(unit, pair[1]) == (sweep % 2 == 0)]
            unit.x = wishes[unit] = wish(unit, side or pairs)
        order = sorted(units, key=lambda unit: wishes[unit] + unit.width / 2)
        _pack(order, wishes)
    before, after = _neighbours(order)
    for sweep in range(4 * _SWEEPS):
        for unit in order if sweep % 2 == 0 else reversed(order):
            least = max((other.x + other.width + GAP_X for other in before[unit]), default=-inf)
            most = min((other.x - unit.width - GAP_X for other in after[unit]), default=inf)
            unit.x = max(least, min(most, wish(unit, near.get(unit, ()))))


def _neighbours(order: Sequence[_Unit]) -> tuple[dict[_Unit, set[_Unit]], dict[_Unit, set[_Unit]]]:
    """Return the units directly to the left of each, and those to the right."""
    before: dict[_Unit, set[_Unit]] = {unit: set() for unit in order}
    after: dict[_Unit, set[_Unit]] = {unit: set() for unit in order}
    last: dict[int, _Unit] = {}
    for unit in order:
        for i in range(unit.first, unit.last + 1):
            if i in last:
                before[unit].add(last[i])
                after[last[i]].add(unit)
            last[i] = unit
    return before, after


def _pack(order: Sequence[_Unit], wishes: Mapping[_Unit, float]) -> None:
    """Keep the order of units, and put them where they are wanted as far as there is room."""

    def packed(order: Iterable[_Unit], sign: int) -> dict[_Unit, float]:
        edge: dict[int, float] = {}
        found = {}
        for unit in order:
            near, far = (0.0, unit.width) if sign > 0 else (unit.width, 0.0)
            least = [edge[i] for i in range(unit.first, unit.last + 1) if i in edge]
            x = max([sign * (wishes[unit] + near), *(n + GAP_X for n in least)])
            found[unit] = sign * x - near
            for i in range(unit.first, unit.last + 1):
                edge[i] = sign * (found[unit] + far)
        return found

    from_left, from_right = packed(order, 1), packed(reversed(order), -1)
    for unit in order:
        unit.x = (from_left[unit] + from_right[unit]) / 2


def _with_heights(
    whole: _Unit,
    layers: Sequence[Sequence[Key]],
    sizes: Mapping[Key, tuple[float, float]],
    edges: Iterable[Edge],
) -> Layout:
    """Return the layout with the height of each layer, and room for the titles of frames."""
    level = {box: i for i, layer in enumerate(layers) for box in layer}
    placed = [pair for child in whole.units for pair in child.walk()]
    framed = [(unit, x) for unit, x in placed if unit.is_frame]
    starts: dict[int, int] = defaultdict(int)
    ends: dict[int, int] = defaultdict(int)
    for unit, _ in framed:
        starts[unit.first] = max(starts[unit.first], unit.depth(lambda u: u.first))
        ends[unit.last] = max(ends[unit.last], unit.depth(lambda u: u.last))
    top, bottom, y = [], [], 0.0
    for i, layer in enumerate(layers):
        y += starts[i] * (MARGIN + TITLE)
        top.append(y)
        y += max((sizes[box][1] for box in layer), default=0)
        bottom.append(y)
        y += ends[i] * MARGIN + GAP_Y
    corners: dict[Key, Point] = {}
    frames: dict[Key, tuple[float, float, float, float]] = {}
    bends: dict[Edge, list[Point]] = {edge: [] for edge in edges}
    for unit, x in placed:
        i, j = unit.first, unit.last
        if unit.is_frame:
            up = top[i] - unit.depth(lambda u: u.first) * (MARGIN + TITLE)
            down = bottom[j] + unit.depth(lambda u: u.last) * MARGIN
            frames[unit.name] = x, up, unit.width, down - up
        elif unit.name in sizes:
            corners[unit.name] = x, (top[i] + bottom[i] - sizes[unit.name][1]) / 2
        else:
            ends_at = [(x + _RAIL / 2, top[i]), (x + _RAIL / 2, bottom[j])]
            leads_back = level[unit.name[0]] >= level[unit.name[1]]
            bends[unit.name] = ends_at[::-1] if leads_back else ends_at
    return Layout(corners, frames, bends, (whole.width - 2 * MARGIN, max(y - GAP_Y, 0)))
