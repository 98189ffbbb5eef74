"""The nodes of a graph by the functions of the user's that made them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import takewhile
from typing import Union

from theanoguard._provenance import Provenance, SourceLine
from theanoguard.view.inspecting.facts import label
from theanoguard.view.model import GraphModel

MOST = 40  # so many boxes are drawn at a time; of a larger graph, parts are folded


@dataclass(eq=False)
class Group:
    """Nodes that one call of the user's function has made, or a part of too many."""

    title: str
    above: "Group | None" = None
    #: Keys of nodes and groups, in the order of execution.
    items: list[Union[str, "Group"]] = field(default_factory=list)

    @cached_property
    def nodes(self) -> list[str]:
        """The keys of all nodes inside; asked for when the groups are made."""
        found: list[str] = []
        for item in self.items:
            found += item.nodes if isinstance(item, Group) else [item]
        return found

    @cached_property
    def members(self) -> set[str]:
        """The same as a set."""
        return set(self.nodes)


GRADIENT = "gradient"

Call = tuple[str, str, tuple[str, int] | None, tuple[int, int, int] | None]
"""A function, its file or what it is about, the line of its call, and the pass of its loop."""


def grouped(model: GraphModel, title: str) -> Group:
    """Return the group of all nodes of a graph.

    A call of a user's function is a group, and so is what ``grad`` made.  A group of more than
    `MOST` items is divided further, in the order of execution.
    """
    whole = Group(title)
    known: dict[tuple[Call, ...], Group] = {(): whole}
    nodes = model.in_order()
    for node, calls in zip(nodes, _completed([_calls(n.provenance) for n in nodes]), strict=True):
        path: tuple[Call, ...] = ()
        for step in calls:
            above = known[path]
            path = (*path, step)
            if path not in known:
                known[path] = Group(_title(step), above)
                above.items.append(known[path])
        known[path].items.append(node.key)
    _tidy(whole)
    _divide(whole, model)
    return whole


def _calls(provenance: Provenance | None) -> tuple[Call, ...]:
    """Return the calls of user's functions that made a node, outermost first."""
    if provenance is None:
        return ()
    if (backward := provenance.backward) is not None:
        cost = backward.cost or ""
        return ((GRADIENT, cost, None, None), *_frames(backward.forward_source))
    return _frames(provenance.source)


def _completed(paths: Sequence[tuple[Call, ...]]) -> list[tuple[Call, ...]]:
    """Return paths with the outer calls that a place does not keep, if another one has them.

    Calls that all nodes are in, such as of a ``main``, are left out.
    """
    parts = [(p[:1], p[1:]) if p and p[0][0] == GRADIENT else ((), p) for p in paths]
    outer: dict[tuple[str, str], set[tuple[Call, ...]]] = {}
    for _, frames in parts:
        for i, (function, file, line, _) in enumerate(frames):
            if line is not None:
                outer.setdefault((function, file), set()).add(frames[: i + 1])
    whole = []
    for start, frames in parts:
        while frames and frames[0][2] is None:
            candidates = [c for c in outer.get(frames[0][:2], ()) if c[0] not in frames]
            if len(candidates) != 1:
                break
            frames = (*candidates[0], *frames[1:])
        whole.append((start, frames))
    steps = zip(*(frames for start, frames in whole if start or frames), strict=False)
    common = sum(1 for _ in takewhile(lambda alike: len(set(alike)) == 1, steps))
    return [(*start, *frames[common:]) for start, frames in whole]


def _frames(source: SourceLine | None) -> tuple[Call, ...]:
    if source is None:
        return ()
    frames = [source, *source.callers]
    calls: list[Call] = []
    for inner, outer in zip(frames, [*frames[1:], None], strict=True):
        if inner.function != "<module>":
            line = None if outer is None else (outer.file, outer.line)
            loop = None if outer is None else outer.loop
            calls.append((inner.function, inner.file, line, loop))
    return tuple(reversed(calls))


def _title(step: Call) -> str:
    function, about, line, loop = step
    if function == GRADIENT:
        return f"gradient of {about}".removesuffix(" of ")
    title = function
    if line is not None:
        title += f", line {line[1]}"
    if loop is not None:
        title += f", pass {loop[0]} of {loop[1]}"
    return title


def _tidy(group: Group) -> None:
    """Take away groups of one node, and groups that hold only one group."""
    todo = [group]
    order: list[Group] = []
    while todo:
        order.append(todo.pop())
        todo += [item for item in order[-1].items if isinstance(item, Group)]
    for each in reversed(order):
        for i, item in enumerate(each.items):
            if isinstance(item, Group) and len(item.items) == 1:
                [only] = item.items
                each.items[i] = only
                if isinstance(only, Group):
                    only.above = each
                    only.title = f"{item.title}: {only.title}"
    while len(group.items) == 1 and isinstance(only := group.items[0], Group):
        group.items = only.items
        for item in group.items:
            if isinstance(item, Group):
                item.above = group


def _divide(group: Group, model: GraphModel) -> None:
    """Divide a group with too many items into parts of the same size."""
    while len(group.items) > MOST:
        levels = 2
        while MOST**levels < len(group.items):
            levels += 1
        size = max(round(len(group.items) ** ((levels - 1) / levels)), 2)
        parts: list[str | Group] = []
        for start in range(0, len(group.items), size):
            inside = group.items[start : start + size]
            if len(inside) == 1:
                parts += inside
                continue
            part = Group("", group, inside)
            for item in inside:
                if isinstance(item, Group):
                    item.above = part
            ends = [_call(item, model) for item in (inside[0], inside[-1])]
            part.title = " to ".join(dict.fromkeys(ends))
            parts.append(part)
        group.items = parts
    for item in group.items:
        if isinstance(item, Group):
            _divide(item, model)


def _call(item: str | Group, model: GraphModel) -> str:
    """Return what an item is called in the title of a part."""
    if isinstance(item, Group):
        return item.title
    variable = model.variables[model.nodes[item].outputs[0]]
    return model.called(variable) or label(model, variable)
