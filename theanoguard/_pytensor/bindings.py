"""What the names near a line of the user's meant when the line built a node of a graph.

A record keeps no object of the user's alive: of a variable it holds the type and the number of its
trace, of a function or an operation a weak reference, and of other objects only their numbers, by
attribute and by index, as the code reads them (``self.shift``, ``cfg["eps"]``).  Nothing of the
user's is run: a property is not asked for.
"""

import dis
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from operator import is_
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, ModuleType
from typing import Any, TypeAlias

import numpy as np
from pytensor.graph.basic import Variable
from pytensor.graph.op import Op

Path: TypeAlias = tuple[Any, ...]
"""A name, and the attributes (``".shift"``) and indices (``("eps",)``) that follow it."""

LINES_BEFORE, LINES_BEHIND = 30, 8  # how far from the line the names stand that are recorded

MAX_ELEMENTS = 1_000  # largest size of an array that is recorded


@dataclass(frozen=True, eq=False)
class Ref:
    """A variable: its type, its name and the number of its trace."""

    type: Any
    name: str | None
    serial: int


@dataclass(frozen=True, eq=False)
class Bindings:
    """The values of some paths."""

    code: CodeType  # the function that was running
    paths: tuple[Path, ...]
    #: A :class:`Ref`, a number, a text, a small array, a module, or a weak reference to a function
    #: or an operation; :data:`UNKNOWN` for everything else.
    values: tuple[Any, ...]

    def known(self) -> dict[Path, Any]:
        """Return the values that are known."""
        return {
            path: value
            for path, value in zip(self.paths, self.values, strict=True)
            if value is not UNKNOWN
        }


class _Unknown:
    def __repr__(self) -> str:
        return "<unknown>"


UNKNOWN = _Unknown()
_MISSING = object()

_PLAIN = frozenset(
    (int, float, complex, bool, str, type(None), type(Ellipsis), slice, ModuleType)
    + (BuiltinFunctionType, type, np.ufunc, np.bool_)
    + tuple(np.dtype(code).type for code in np.typecodes["AllFloat"] + np.typecodes["AllInteger"])
)


class Bound:
    """Records :class:`Bindings`; equal ones in a row are the same object."""

    def __init__(self) -> None:
        self._read: dict[int, tuple[CodeType, dict[int, list[Path]]]] = {}
        self._last: dict[int, tuple[Any, Bindings]] = {}

    def of(self, frame: FrameType, entry: Any) -> Bindings:
        """Return what the names near the line of a frame mean now.

        `entry`: the entry of the frame, which keeps the paths.
        """
        paths = entry.reads
        if paths is None:
            paths = entry.reads = self._near(entry.code, entry[1])
        own, outer = frame.f_locals, frame.f_globals
        values: list[Any] = []
        roots: dict[str, Any] = {}
        for path in paths:
            name = path[0]
            if len(path) == 1:
                value = own.get(name, _MISSING)
                if value is _MISSING:
                    value = outer.get(name, UNKNOWN)
                roots[name] = value
            else:
                value = _followed(roots[name], path)
            kind = type(value)
            if kind not in _PLAIN and value is not UNKNOWN:
                value = _token(value, kind)
            values.append(value)
        last = self._last.get(id(paths))
        if last is not None and all(map(is_, last[1].values, values)):
            return last[1]
        found = Bindings(entry.code, paths, tuple(values))
        if len(self._last) > 10_000:
            self._last.clear()
        self._last[id(paths)] = (paths, found)
        return found

    def _near(self, code: CodeType, line: int) -> tuple[Path, ...]:
        if len(self._read) > 10_000:
            self._read.clear()
        if id(code) not in self._read:
            by_line: dict[int, list[Path]] = {}
            for number, path in _paths(code):
                by_line.setdefault(number, []).append(path)
            self._read[id(code)] = (code, by_line)
        by_line = self._read[id(code)][1]
        count = code.co_argcount + code.co_kwonlyargcount
        paths: dict[Path, None] = dict.fromkeys((name,) for name in code.co_varnames[:count])
        for number in range(line - LINES_BEFORE, line + LINES_BEHIND):
            for path in by_line.get(number, ()):
                paths[path[:1]] = None
                paths[path] = None
        return tuple(paths)


def _paths(code: CodeType) -> Iterator[tuple[int, Path]]:
    """Yield the names that a code reads or binds, with the attributes and indices behind them."""
    path: Path = ()
    key: Any = _MISSING
    number = 0
    for instruction in dis.get_instructions(code):
        name = instruction.opname
        position = instruction.positions
        here = (position.lineno if position is not None else None) or number
        if path and name == "LOAD_ATTR" and not _calls(instruction):
            path = (*path, f".{instruction.argval}")
        elif path and key is not _MISSING and name == "BINARY_SUBSCR":
            path, key = (*path, (key,)), _MISSING
        elif path and name == "LOAD_CONST" and isinstance(instruction.argval, str | int):
            key = instruction.argval
            continue
        elif name in ("CACHE", "EXTENDED_ARG", "PRECALL"):
            continue
        else:
            if path:
                yield number, path
            path, number = (), here
            if name.startswith(("LOAD_", "STORE_")) and name.partition("_")[2].startswith(
                ("FAST", "NAME", "GLOBAL", "DEREF", "CLASSDEREF")
            ):
                names = instruction.argval
                names = names if isinstance(names, tuple) else (names,)
                for other in names[:-1]:
                    yield here, (other,)
                path = (names[-1],)
        key = _MISSING
    if path:
        yield number, path


def _calls(instruction: Any) -> bool:
    """Return whether an instruction loads a method to call it (Python 3.12)."""
    return "NULL|self" in instruction.argrepr


def _followed(value: Any, path: Path) -> Any:
    """Return what a path leads to; nothing of the user's is run for it."""
    for step in path[1:]:
        kind = type(value)
        if isinstance(step, tuple):
            if kind not in (dict, list, tuple):
                return UNKNOWN
            try:
                value = value[step[0]]
            except (LookupError, TypeError):
                return UNKNOWN
            continue
        name = step[1:]
        if kind is ModuleType:
            value = vars(value).get(name, UNKNOWN)
            continue
        found = _MISSING
        for owner in kind.__mro__ if kind is not type else value.__mro__:
            if name in vars(owner):
                found = vars(owner)[name]
                break
        if found is not _MISSING and kind is not type and hasattr(type(found), "__set__"):
            return UNKNOWN  # (a property)
        own = getattr(value, "__dict__", None) if kind is not type else None
        value = own[name] if type(own) is dict and name in own else found
        if value is _MISSING or (value is found and hasattr(type(found), "__get__")):
            return UNKNOWN
    return value


def trace_of(variable: Variable) -> Any:
    """Return the trace that was recorded of a variable, or None."""
    # (a class of the user's may build a graph before its variable has a tag)
    traces = getattr(getattr(variable, "tag", None), "trace", None)
    found = traces[0] if traces else None
    return found if hasattr(found, "serial") else None


def _token(value: Any, kind: type) -> Any:
    """Return what is recorded of a value."""
    if isinstance(value, Variable):
        trace = trace_of(value)
        if trace is None:
            return UNKNOWN
        if trace.ref is None:
            trace.ref = Ref(value.type, value.name, trace.serial)
        return trace.ref
    if kind is FunctionType or isinstance(value, Op):
        return weakref.ref(value)
    if kind is np.ndarray:
        return value if value.size <= MAX_ELEMENTS and value.dtype.kind in "fiubc" else UNKNOWN
    if kind is tuple and all(type(v) in _PLAIN for v in value):
        return value
    return UNKNOWN
