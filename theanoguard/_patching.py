"""Replaces attributes of other packages for a while; no other module does this.

Several features may wrap the same method, and end in any order.  So the original is kept once, and
after each change the method is the original with all wrappers that are left around it, the latest
outermost.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

Wrapped = Callable[..., Any]  # a function, and what a patch puts in its place


@dataclass(frozen=True)
class Patch:
    """The value of an attribute while the patch is applied."""

    owner: Any  # a class, a module or an instance
    name: str  # the attribute
    #: ``wrap(original)`` returns what takes its place.  In a class, `original` is what stands in
    #: the class, such as a ``classmethod`` object, or else what is inherited; None where the
    #: attribute is new.
    wrap: Callable[[Any], Any]


@dataclass
class _Attribute:
    """An attribute that is patched: what was there, and its patches in order."""

    is_own: bool  # whether the owner had it, or inherited it
    original: Any
    #: How often each has been applied and not taken back.
    users: dict[Patch, int] = field(default_factory=dict)


_lock = threading.RLock()
_patched: dict[tuple[int, str], _Attribute] = {}


def _add(patch: Patch) -> None:
    key = id(patch.owner), patch.name
    if key not in _patched:
        own = vars(patch.owner)
        is_own = patch.name in own
        original = own[patch.name] if is_own else getattr(patch.owner, patch.name, None)
        _patched[key] = _Attribute(is_own, original)
    users = _patched[key].users
    users[patch] = users.get(patch, 0) + 1
    if users[patch] == 1:
        _compose(patch)


def _remove(patch: Patch) -> None:
    users = _patched[id(patch.owner), patch.name].users
    users[patch] -= 1
    if not users[patch]:
        del users[patch]
        _compose(patch)


def _compose(patch: Patch) -> None:
    owner, name = patch.owner, patch.name
    attribute = _patched[id(owner), name]
    if not attribute.users:
        del _patched[id(owner), name]
        if not attribute.is_own:
            delattr(owner, name)
            return
    value = attribute.original
    for each in attribute.users:
        value = each.wrap(value)
    setattr(owner, name, value)


def apply(patches: Iterable[Patch]) -> Callable[[], None]:
    """Apply patches, and return a function that takes them back.

    A second call of that function does nothing.

    `patches`: equal patches are applied once, however often they are asked for.

    Examples
    --------
    >>> import math
    >>> undo = apply([Patch(math, "tau", lambda tau: -tau)])
    >>> again = apply([Patch(math, "pi", lambda pi: 3)])
    >>> undo()
    >>> math.tau > 0, math.pi
    (True, 3)
    >>> again()
    >>> math.pi > 3
    True
    """
    applied = []
    with _lock:
        for patch in patches:
            _add(patch)
            applied.append(patch)

    def undo() -> None:
        with _lock:
            while applied:
                _remove(applied.pop())

    return undo


@contextmanager
def applied(patches: Iterable[Patch]) -> Iterator[None]:
    """Apply patches inside a block, in every thread."""
    undo = apply(patches)
    try:
        yield
    finally:
        undo()
