"""Checks the arguments of public functions by their annotations.

Without it, a wrong argument ends in an error from deep inside, or in none.  An error of this module
begins with the function, the argument and its value, and says what is expected.
"""

import difflib
import inspect
import numbers
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, wraps
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from theanoguard._backends import BackendName

F = TypeVar("F", bound=Callable)

MANY = (Sequence, Iterable, Collection, list, tuple)

MOST = 40  # characters of an argument that an error shows


@dataclass(frozen=True)
class Within:
    """In an ``Annotated`` number: the range in which it must lie."""

    low: float = -float("inf")
    high: float = float("inf")
    is_open: bool = False  # whether the ends themselves are refused

    def holds(self, value: Any) -> bool:
        """Whether a number lies in the range; NaN lies in none."""
        if self.is_open:
            return bool(self.low < value) and (self.high == float("inf") or value < self.high)
        return bool(self.low <= value <= self.high)

    def __str__(self) -> str:
        if self.high != float("inf"):
            return f"{'between' if self.is_open else 'from'} {self.low:g} " + (
                f"and {self.high:g}" if self.is_open else f"to {self.high:g}"
            )
        if self.is_open:
            return "positive" if self.low == 0 else f"above {self.low:g}"
        return f"at least {self.low:g}"


Positive: TypeAlias = Annotated[float, Within(0, is_open=True)]
NotNegative: TypeAlias = Annotated[float, Within(0)]
Count: TypeAlias = Annotated[int, Within(1)]
Natural: TypeAlias = Annotated[int, Within(0)]


def checked(function: F) -> F:
    """Decorate a function so that each call checks its arguments.

    A single value is accepted where a sequence or an iterable of such values is expected.

    - `function`: all parameters that are annotated with types, unions, literals, sequences,
      iterables, mappings or callables are checked, and the ranges of numbers (:class:`Within`).
    - Raises ``TypeError``: when it is called with an argument of another type, or with unknown
      arguments.
    - Raises ``ValueError``: when it is called with a value that a ``Literal`` does not have, or a
      number out of range.

    Examples
    --------
    >>> from collections.abc import Sequence
    >>> @checked
    ... def total(numbers: Sequence[float], rounding: Literal["up", "down"] = "up"):
    ...     return sum(numbers)
    >>> total(3), total([1, 2])
    (3, 3)
    >>> total([1, "2"])
    Traceback (most recent call last):
    TypeError: total(numbers=[1, '2']): numbers[1] must be a number, not str '2'
    >>> total([1], rounding="upp")
    Traceback (most recent call last):
    ValueError: total(rounding='upp'): rounding must be 'up' or 'down'; did you mean 'up'?
    """

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        signature, hints = _of(function)
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{_name(function)}: {error}{_near(error, signature)}") from None
        for name, value in bound.arguments.items():
            kind = signature.parameters[name].kind
            if name in hints and kind not in (
                inspect.Parameter.VAR_POSITIONAL,
                inspect.Parameter.VAR_KEYWORD,
            ):
                bound.arguments[name] = _checked(function, name, value, hints[name])
        return function(*bound.args, **bound.kwargs)

    return call  # type: ignore[return-value]


class NeedsCall(property):
    """The ``function_maker`` of a mode, which says what is wrong if the class is used as a mode."""

    def __get__(self, mode: Any, kind: type | None = None) -> Any:
        if mode is not None:
            return super().__get__(mode, kind)

        def refused(*args: Any, **kwargs: Any) -> Any:
            name = getattr(kind, "__name__", "the class")
            raise TypeError(f"mode={name} is a class.\nWrite mode={name}(), with parentheses.")

        return refused


def refuse(
    function: str,
    argument: str,
    value: Any,
    expected: str,
    error: type[Exception] = ValueError,
) -> Exception:
    """Return the error for a value that an annotation cannot rule out.

    Examples
    --------
    >>> str(refuse("assert_in_range", "low", 3, "low must be at most high, which is 1"))
    'assert_in_range(low=3): low must be at most high, which is 1'
    """
    return error(f"{function}({argument}={shown(value)}): {expected}")


def pairs_of(function: str, updates: Any) -> dict[Any, Any]:
    """Return updates, a mapping or pairs, as a dictionary.

    Raises ``ValueError``: if a variable has two updates.

    Examples
    --------
    >>> pairs_of("guarded_updates", [("w", 1), ("w", 2)])
    Traceback (most recent call last):
      ...
    ValueError: guarded_updates(updates=...): w has two updates: 1, and 2
    """
    pairs = list(updates.items() if isinstance(updates, Mapping) else updates)
    found: dict[Any, Any] = {}
    for variable, new in pairs:
        if variable in found:
            problem = f"{variable} has two updates: {found[variable]}, and {new}"
            raise ValueError(f"{function}(updates=...): {problem}")
        found[variable] = new
    return found


def filtered(function: str, argument: str, variable: Any, value: Any, **how: Any) -> Any:
    """Return a value as a variable holds it.

    Raises ``TypeError``, ``ValueError``: if the variable cannot hold it.  The error names function,
    argument and variable.
    """
    try:
        return variable.type.filter(value, **how)
    except (TypeError, ValueError) as error:
        problem = f"{variable} cannot be {shown(value)}: {error}"
        raise type(error)(f"{function}({argument}=...): {problem}") from None


def check_optimizer(function: str, optimizer: Any, known: Iterable[str | None]) -> None:
    """Refuse the name of an optimizer that is not known.

    Examples
    --------
    >>> check_optimizer("GuardMode", "fast_rum", ["fast_compile", "fast_run"])
    Traceback (most recent call last):
      ...
    ValueError: GuardMode(optimizer='fast_rum'): no such optimizer; did you mean 'fast_run'?
    """
    names = ["default", *filter(None, known)]
    if isinstance(optimizer, str) and optimizer not in names:
        near = did_you_mean(optimizer, names) or f"; name one of {', '.join(names)}"
        raise refuse(function, "optimizer", optimizer, f"no such optimizer{near}")


def check_mode(function: str, mode: Any, known: Iterable[str]) -> None:
    """Refuse the name of a mode that is not known.

    Examples
    --------
    >>> check_mode("lint", "fast_rum", ["FAST_RUN"])
    Traceback (most recent call last):
      ...
    ValueError: lint(mode='fast_rum'): no such mode; did you mean 'FAST_RUN'?
    """
    names = [*known, "FAST_RUN", "Mode", "DebugMode", "NanGuardMode", "DEBUG_MODE"]
    if isinstance(mode, str) and mode.upper() not in map(str.upper, names):
        near = did_you_mean(mode.upper(), names) or f"; name one of {', '.join(names)}"
        raise refuse(function, "mode", mode, f"no such mode{near}")


def check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    """Check that an argument is one of the words that it takes."""
    if value not in choices:
        raise ValueError(f"{name} is {value!r}.\nUse one of {', '.join(map(repr, choices))}.")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the end of an error about a name: the nearest known one, or nothing.

    Examples
    --------
    >>> did_you_mean("numbaa", ["c", "numba"])
    "; did you mean 'numba'?"
    """
    near = difflib.get_close_matches(str(name), list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


@cache
def _of(function: Callable) -> tuple[inspect.Signature, dict[str, Any]]:
    hints = get_type_hints(function, include_extras=True)
    hints.pop("return", None)
    return inspect.signature(function), hints


def _name(function: Callable) -> str:
    owner, _, own = function.__qualname__.rpartition(".")
    owner = owner.rpartition(".")[2]
    if own in ("__init__", "__call__"):
        return owner
    return own if owner in ("", "<locals>") else f"{owner}.{own}"


def _near(error: TypeError, signature: inspect.Signature) -> str:
    wrong = str(error).partition("keyword argument '")[2].rstrip("'")
    return did_you_mean(wrong, signature.parameters) if wrong else ""


def shown(value: Any) -> str:
    """Return an argument as an error shows it: in one line, without an address."""
    text = re.sub(r" at 0x[0-9a-fA-F]+", "", " ".join(repr(value).split()))
    return text if len(text) <= MOST else f"{text[: MOST - 3]}..."


def _checked(function: Callable, name: str, value: Any, hint: Any) -> Any:
    problem = _problem(value, hint, name)
    if problem is None:
        return value
    if _is_single(value, hint):
        return [value]
    error = ValueError if _has_the_type(value, hint) else TypeError
    raise error(f"{_name(function)}({name}={shown(value)}): {problem}")


def _has_the_type(value: Any, hint: Any) -> bool:
    """Whether a value is wrong although its type is right."""
    if get_origin(hint) in (Union, UnionType):
        return any(_has_the_type(value, one) for one in get_args(hint))
    if get_origin(hint) is Annotated:
        return _problem(value, get_args(hint)[0], "") is None
    return get_origin(hint) is Literal and isinstance(value, str)


def _is_single(value: Any, hint: Any) -> bool:
    """Whether a value is one of the elements of what is expected."""
    if get_origin(hint) in (Union, UnionType):
        return any(_is_single(value, one) for one in get_args(hint))
    is_many = get_origin(hint) in (Sequence, Iterable, Collection) and get_args(hint)[0] is not Any
    return is_many and _problem(value, get_args(hint)[0], "") is None


def _problem(value: Any, hint: Any, name: str) -> str | None:
    """Return what is wrong with a value; None if it is as expected."""
    origin, arguments = get_origin(hint) or hint, get_args(hint)
    if hint is Any or isinstance(hint, TypeVar | str):
        return None
    if origin is Annotated:
        problem = _problem(value, arguments[0], name)
        broken = [r for r in arguments[1:] if isinstance(r, Within) and problem is None]
        if any(not r.holds(value) for r in broken):
            return f"{name} must be {' and '.join(map(str, broken))}, not {shown(value)}"
        return problem
    if origin in (Union, UnionType):
        problems = [_problem(value, one, name) for one in arguments]
        if None in problems:
            return None
        deep = [
            p
            for p, one in zip(problems, arguments, strict=True)
            if _goes_inside(value, one)
            or (get_origin(one) is Annotated and _has_the_type(value, one))
        ]
        words = [w for one in arguments if get_origin(one) is Literal for w in get_args(one)]
        if not deep and isinstance(value, str) and words:
            return f"{name} must be {_words(hint)}{did_you_mean(value, map(str, words))}"
        return deep[0] if deep else _other(name, hint, value)
    if hint == BackendName and isinstance(value, str):
        return None  # (the mode knows the folders, each of which is a backend)
    if origin is Literal:
        if any(value is one or (type(value) is type(one) and value == one) for one in arguments):
            return None
        near = did_you_mean(value, map(str, arguments)) if isinstance(value, str) else ""
        return f"{name} must be {_words(hint)}{near}"
    if origin is type:
        return None if isinstance(value, type) else _other(name, hint, value)
    if origin is tuple and arguments and arguments[-1] is not ...:
        if not _is_pair(value, len(arguments)):
            return _other(name, hint, value)
        parts = enumerate(zip(value, arguments, strict=True))
        return next(filter(None, (_problem(v, one, f"{name}[{i}]") for i, (v, one) in parts)), None)
    if origin in MANY:
        return _problem_of_many(value, hint, name)
    if origin in (Mapping, dict):
        if not isinstance(value, Mapping):
            return _other(name, hint, value)
        key = arguments[0] if arguments else Any
        of_values = arguments[1] if len(arguments) > 1 else Any
        for k, v in value.items():
            problem = _problem(k, key, f"the key {shown(k)} of {name}")
            if problem := problem or _problem(v, of_values, f"{name}[{shown(k)}]"):
                return problem
        return None
    if origin is Callable:
        return None if callable(value) else _other(name, hint, value)
    return None if _is_a(value, origin) else _other(name, hint, value)


def _goes_inside(value: Any, hint: Any) -> bool:
    """Whether a value has the right outer type, so that one of its elements is wrong."""
    many = get_origin(hint) in (Sequence, Iterable, Collection, list)
    return (many and isinstance(value, list | tuple | set)) or (
        get_origin(hint) in (Mapping, dict) and isinstance(value, Mapping)
    )


def _problem_of_many(value: Any, hint: Any, name: str) -> str | None:
    element = get_args(hint)[0] if get_args(hint) else Any
    if isinstance(value, Mapping):
        return f"{_other(name, hint, value)}; pass a list, such as list({name}.values())"
    is_unordered = isinstance(value, set | frozenset) and (get_origin(hint) or hint) is Sequence
    if is_unordered or isinstance(value, str | bytes) or not _is_iterable(value):
        return _other(name, hint, value)
    if not isinstance(value, list | tuple | set | frozenset):
        return None  # (an iterator is read once, by the function itself)
    for i, one in enumerate(value):
        problem = _problem(one, element, f"{name}[{i}]")
        if problem is not None:
            return problem
    return None


def _is_pair(value: Any, length: int) -> bool:
    return isinstance(value, list | tuple) and len(value) == length


def _is_iterable(value: Any) -> bool:
    # (A variable has __iter__, which fails where its length is not known.)
    return isinstance(value, Iterable) and not hasattr(value, "owner")


def _is_a(value: Any, kind: type) -> bool:
    if kind is float:
        return isinstance(value, numbers.Real) and not isinstance(value, bool)
    if kind is int:
        return isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if kind is bool:
        return isinstance(value, bool) or type(value).__name__ in ("bool_", "bool")
    return isinstance(value, kind) and not isinstance(value, type)


def _other(name: str, hint: Any, value: Any) -> str:
    got = "None" if value is None else f"{type(value).__name__} {shown(value)}"
    if isinstance(value, type):
        got = f"the class {value.__name__}; write {value.__name__}(), with parentheses"
    return f"{name} must be {_words(hint)}, not {got}"


_WORDS = {
    str: "a text",
    int: "an integer",
    float: "a number",
    bool: "True or False",
    NoneType: "None",
    "Function": "a compiled function",
    "Variable": "a variable",
    "SharedVariable": "a shared variable",
    "PathLike": "a path",
    "Callable": "a function",
    "FunctionGraph": "a FunctionGraph",
    "Mapping": "a dictionary",
    "Sequence": "a list",
    "ndarray": "an array",
    "Mode": "a mode",
    "Measures": "a MeasuredCalls",
    "Op": "an operation",
    "type": "a class",
}


def _words(hint: Any) -> str:
    """Return what an annotation means, as a user would say it."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _words(arguments[0])
    if origin in (Union, UnionType):
        parts = list(dict.fromkeys(map(_words, arguments)))
        return " or ".join([", ".join(parts[:-1]), parts[-1]]) if len(parts) > 1 else parts[0]
    if origin is Literal:
        shown = [repr(known) for known in arguments]
        return " or ".join([", ".join(shown[:-1]), shown[-1]]) if len(shown) > 1 else shown[0]
    if origin is tuple and arguments[-1] is not ...:
        return "a pair" if len(arguments) == 2 else f"a tuple of {len(arguments)}"
    if origin in MANY:
        of = _words(arguments[0]) if arguments and arguments[0] is not Any else "values"
        return f"a list of {of.removeprefix('a ').removeprefix('an ')}s".replace("ss", "s")
    if origin in (Mapping, dict):
        key = _words(arguments[0]) if arguments and arguments[0] is not Any else ""
        return f"a dictionary by {key}" if key else "a dictionary"
    kind = origin or hint
    name = getattr(kind, "__name__", str(kind))
    return _WORDS.get(kind) or _WORDS.get(name) or f"{'an' if name[0] in 'AEIOU' else 'a'} {name}"
