"""Orders of the things of a graph, whatever they are."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

T = TypeVar("T")


def postorder(things: Iterable[T], before: Callable[[T], Sequence[T]]) -> list[T]:
    """Return some things and all that comes before them, each once, after what comes before it."""
    order: dict[T, None] = {}
    todo = [*things][::-1]
    while todo:
        missing = [other for other in before(todo[-1]) if other not in order]
        if todo[-1] in order or not missing:
            order[todo.pop()] = None
        else:
            todo += reversed(missing)
    return list(order)
