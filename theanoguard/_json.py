"""Turns records into plain data for JSON, and back by the types of their fields.

What JSON has no form for is an object with one key: ``{"float": "nan"}`` (also ``"inf"`` and
``"-inf"``), ``{"complex": [real, imaginary]}``, for a NumPy scalar ``{"numpy": [dtype, value]}``,
and in an index ``{"slice": [start, stop, step]}`` and ``{"ellipsis": true}``.
"""

import dataclasses
import reprlib
import types
from collections.abc import Mapping
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np


def to_plain(value: Any) -> Any:
    """Return a record, or what may stand in one, as dictionaries, lists, strings and numbers.

    The result is what :func:`json.dumps` takes; :func:`from_plain` restores it.

    - `value`: a dataclass, a mapping, a list or tuple, a string, a number, None, or an index.  A
      field whose metadata has ``json=False`` is left out.
    - Raises ``TypeError``: if it has no plain form.

    Examples
    --------
    >>> to_plain((1, float("nan"), np.float32(0.5), slice(2)))
    [1, {'float': 'nan'}, {'numpy': ['<f4', 0.5]}, {'slice': [None, 2, None]}]
    """
    if dataclasses.is_dataclass(value):
        kind: Any = type(value)
        return {f.name: to_plain(getattr(value, f.name)) for f in _fields(kind)}
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    if isinstance(value, np.ndarray):
        return {"numpy": [value.dtype.str, to_plain(value.tolist())]}
    if isinstance(value, np.generic):
        return {"numpy": [value.dtype.str, to_plain(value.item())]}
    if isinstance(value, complex):
        return {"complex": [to_plain(value.real), to_plain(value.imag)]}
    if isinstance(value, float) and not np.isfinite(value):
        return {"float": repr(value)}
    if isinstance(value, slice):
        return {"slice": [to_plain(part) for part in (value.start, value.stop, value.step)]}
    if value is ...:
        return {"ellipsis": True}
    if value is None or isinstance(value, str | int | float):
        return value
    raise TypeError(f"{value!r} has no plain form")


def from_plain(kind: Any, data: Any) -> Any:
    """Return the record that :func:`to_plain` was given.

    - `kind`: a dataclass, whose fields tell what stands in them; a union with None; ``tuple``,
      ``list`` or ``dict`` of such; for anything else what stands there itself decides.
    - Raises ``ValueError``: if a field is missing or unknown, or holds something of another type.

    Examples
    --------
    >>> from_plain(tuple[int, ...], [1, 2]), from_plain(Any, {"float": "-inf"})
    ((1, 2), -inf)
    """
    origin, inner = get_origin(kind) or kind, get_args(kind)
    if origin in (Union, types.UnionType):
        [kind] = [k for k in inner if k is not type(None)]
        return None if data is None else from_plain(kind, data)
    if kind is float and isinstance(data, dict):  # of no JSON number
        data = from_plain(Any, data)
    if data is None and dataclasses.is_dataclass(kind):
        return None  # it stands elsewhere in the file
    if not isinstance(data, _plain_form(origin)):
        raise ValueError(f"{reprlib.repr(data)} in the place of {getattr(kind, '__name__', kind)}")
    if dataclasses.is_dataclass(kind):
        return _record(kind, data)
    if origin is tuple and inner and inner[-1] is not ...:
        return tuple(from_plain(k, item) for k, item in zip(inner, data, strict=True))
    if origin in (tuple, list):
        return origin(from_plain(inner[0] if inner else Any, item) for item in data)
    if origin is dict:
        return {inner[0](key): from_plain(inner[1], item) for key, item in data.items()}
    if not isinstance(data, dict):
        return data
    [(name, parts)] = data.items()
    return _SPECIAL[name](parts)


def _plain_form(origin: Any) -> Any:
    """Return the types in JSON of what has a type."""
    if dataclasses.is_dataclass(origin) or origin is dict:
        return dict
    return {float: (int, float), tuple: (list, tuple), list: list}.get(
        origin, origin if origin in (str, int, bool) else object
    )


_SPECIAL = {
    "float": float,
    "complex": lambda parts: complex(*(from_plain(Any, part) for part in parts)),
    "numpy": lambda pair: np.dtype(pair[0]).type(from_plain(Any, pair[1])),
    "slice": lambda parts: slice(*(from_plain(Any, part) for part in parts)),
    "ellipsis": lambda _: ...,
}


def _record(kind: Any, data: Mapping[str, Any]) -> Any:
    hints = _hints(kind)
    known = {f.name for f in _fields(kind)}
    missing = {f.name for f in _fields(kind) if _is_required(f)} - data.keys()
    for word, names in (("unknown", data.keys() - known), ("missing", missing)):
        if names:
            raise ValueError(f"{word} in a {kind.__name__}: {', '.join(sorted(names))}")
    return kind(**{name: from_plain(hints[name], value) for name, value in data.items()})


def _is_required(f: dataclasses.Field) -> bool:
    return f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


@cache
def _fields(kind: type) -> tuple[dataclasses.Field, ...]:
    return tuple(f for f in dataclasses.fields(kind) if f.metadata.get("json", True))
