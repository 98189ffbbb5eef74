"""Exact numbers that NumPy computes with, for operations that are a few lines of NumPy.

NumPy calls the operators and the methods (``exp``, ``log``) of the elements of an object array.  A
:class:`Number` refuses to become a float, so an operation that needs floats raises an error.
"""

import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytensor.scalar as ps
from flint import arb
from pytensor.graph.basic import Apply

from theanoguard._exact.balls import array_of, is_balls, is_floats, mapped, to_balls
from theanoguard._exact.rules import is_real
from theanoguard._exact.scalars import COMPARISONS, RULES, SUMMING, of_elements


class Number:
    """An exact number with the operators of Python and the functions of NumPy.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.array([Number(arb(0)), Number(arb(2))], dtype=object)
    >>> np.exp(x)[0].ball, (x * 3 - 1)[1].ball, bool(x[0] < x[1])
    (1.00000000000000, 5.00000000000000, True)
    """

    __slots__ = ("ball",)

    def __init__(self, ball: arb) -> None:
        self.ball = ball

    def __float__(self) -> float:
        raise TypeError("an exact number does not become a float")

    def __hash__(self) -> int:
        return id(self)


def _ball_of(value: Any) -> arb:
    return value.ball if isinstance(value, Number) else arb(value)


def _method(op: Any, backwards: bool = False) -> Callable[..., Any]:
    """A method of :class:`Number` that computes a scalar operation."""
    rule = RULES.get(type(op)) or SUMMING[type(op)]

    def method(*operands: Any) -> Any:
        if not all(isinstance(x, Number | int | float | np.generic) for x in operands):
            return NotImplemented
        balls = [_ball_of(x.item() if isinstance(x, np.generic) else x) for x in operands]
        return Number(of_elements(rule, op, tuple(balls[::-1] if backwards else balls)))

    return method


def _comparison(kind: type) -> Callable[..., Any]:
    certain, of_middles = COMPARISONS[kind]

    def method(one: Any, other: Any) -> bool:
        x, y = _ball_of(one), _ball_of(other)
        answer = certain(x, y)
        return of_middles(x.mid(), y.mid()) if answer is None else answer

    return method


_OPERATORS = {"add": ps.add, "sub": ps.sub, "mul": ps.mul, "truediv": ps.true_div, "pow": ps.pow}
_FUNCTIONS = "exp log log1p expm1 sqrt sin cos tan tanh sinh cosh log2 log10 floor ceil".split()
for _name, _op in _OPERATORS.items():
    setattr(Number, f"__{_name}__", _method(_op))
    setattr(Number, f"__r{_name}__", _method(_op, backwards=True))
for _name, _op in {"neg": ps.neg, "abs": ps.abs}.items():
    setattr(Number, f"__{_name}__", _method(_op))
for _name in _FUNCTIONS:
    setattr(Number, _name, _method(getattr(ps, _name)))
for _name, _kind in {"lt": ps.LT, "gt": ps.GT, "le": ps.LE, "ge": ps.GE, "eq": ps.EQ}.items():
    setattr(Number, f"__{_name}__", _comparison(_kind))
Number.__ne__ = _comparison(ps.NEQ)  # type: ignore[method-assign]


def _of_objects(node: Apply) -> Any:
    """Return a stand-in for a node, whose real results are arrays of objects."""
    outputs = []
    for variable in node.outputs:
        kind = variable.type
        dtype = "object" if is_real(variable) else kind.dtype
        known = {"dtype": dtype, "ndim": kind.ndim, "broadcastable": kind.broadcastable}
        outputs.append(SimpleNamespace(type=SimpleNamespace(**known), **known))
    return SimpleNamespace(op=node.op, inputs=node.inputs, outputs=outputs, tag=SimpleNamespace())


def of_element(op: Any, arrays: list[np.ndarray]) -> np.ndarray | None:
    """Return what a scalar operation written in Python computes, None if it needs floats.

    `arrays`: balls.
    """

    def compute(*balls: arb) -> arb:
        return _ball_of(op.impl(*map(Number, balls)))

    try:
        return mapped(compute, arrays)
    except _NEEDS_FLOATS:
        return None


# (IndexError: of SciPy's BLAS for a number of no dimensions that is no float)
_NEEDS_FLOATS = (TypeError, ValueError, AttributeError, NotImplementedError, IndexError)


def _as_balls(value: Any) -> np.ndarray:
    array = np.asarray(value)
    if array.dtype != object:
        return array
    return array_of([_ball_of(x) for x in array.ravel().tolist()], array.shape)


def in_numpy(node: Apply, values: list[Any]) -> list[Any] | None:
    """Return what an operation computes in NumPy from exact numbers, None if it needs floats.

    `values`: what the inputs hold.
    """
    given = [
        array_of([Number(x) for x in to_balls(v).ravel().tolist()], np.shape(v))
        if is_balls(v) or is_floats(v)
        else v
        for v in values
    ]
    cells: list[list[Any]] = [[None] for _ in node.outputs]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of functions that do not take objects
            node.op.perform(_of_objects(node), given, cells)
        return [_as_balls(cell[0]) for cell in cells]
    except _NEEDS_FLOATS:
        return None
