"""The records that hold what is known of an operation, and the tables that the families fill.

A fact that nobody has stated is the safe one: the operation may make a NaN and an Inf, shows
nothing of its operands, raises no exception flag, and every element depends on all operands.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Flag
from functools import cache
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.op import Op
from pytensor.scalar.basic import ScalarOp
from pytensor.typed_list import MakeList

from theanoguard._values import arrays_in
from theanoguard.operations.regions import ANYTHING, Dependence

COMPLEX = ("complex64", "complex128")
INEXACT = ("float16", "float32", "float64", *COMPLEX)


class Kind(Flag):
    """Kinds of bad values that no finite number is."""

    NONE = 0
    NAN = 1
    INF = 2
    BOTH = 3


def is_float(variable: Variable) -> bool:
    """Return whether a variable holds real floating-point numbers."""
    return getattr(variable.type, "dtype", "") in ("float16", "float32", "float64")


def holds_nonfinite(variable: Variable) -> bool:
    """Return whether a variable's type has NaN and Inf: real or complex floating point."""
    return getattr(variable.type, "dtype", "") in INEXACT


def constant_kinds(variable: Variable) -> Kind:
    """Return the kinds of bad elements in a constant, or in those of a list; else none."""
    found = Kind.NONE
    if variable.owner is not None and isinstance(variable.owner.op, MakeList):
        return chosen_kinds(variable.owner.inputs, Kind.BOTH)
    if not isinstance(variable, Constant) or not holds_nonfinite(variable):
        return found
    for data in arrays_in(variable.data):
        found |= Kind.NAN if np.isnan(data).any() else Kind.NONE
        found |= Kind.INF if np.isinf(data).any() else Kind.NONE
    return found


def is_literal(variable: Variable) -> bool:
    """Whether a variable is a constant, or a list that has one."""
    node = variable.owner
    if node is not None and isinstance(node.op, MakeList):
        return any(map(is_literal, node.inputs))
    return isinstance(variable, Constant)


def chosen_kinds(variables: Sequence[Variable], literals: Kind) -> Kind:
    """Return the kinds in constants that a node makes by choosing them."""
    kinds = Kind.NONE
    for variable in variables:
        kinds |= constant_kinds(variable) & literals
    return kinds


def widens(source: str, target: str) -> bool:
    """Return whether a cast from dtype `source` to `target` makes nothing bad of a good number.

    Examples
    --------
    >>> widens("float32", "float64"), widens("float64", "float32")
    (True, False)
    """
    order = ("bool", "int8", "float16", "float32", "float64")
    return source in order and target in order[2:] and order.index(source) <= order.index(target)


def is_nonzero(variable: Variable) -> bool:
    """Whether a variable is a constant without zeros."""
    return isinstance(variable, Constant) and bool(np.all(np.asarray(variable.data) != 0))


@dataclass(frozen=True, kw_only=True)
class Domain:
    """The numbers for which an operation has a value.

    Examples
    --------
    >>> [domain.words for domain in (Domain(above=0), Domain(at_least=-1, at_most=1))]
    ['be positive', 'lie between -1 and 1']
    >>> Domain(above=0).holds(0.0, 2.0, zero=False), Domain(above=0).holds(-1.0, 2.0, zero=True)
    (True, False)
    """

    above: float = -math.inf  # `above`, `below`: ends that do not belong to it
    below: float = math.inf
    at_least: float = -math.inf  # `at_least`, `at_most`: ends that do
    at_most: float = math.inf
    nonzero: bool = False  # whether 0 does not belong to it
    operand: int = 0  # the operand that has to lie in it

    def holds(self, lo: float, hi: float, zero: bool) -> bool:
        """Whether all numbers from `lo` to `hi` belong to it; `zero` says whether 0 is one."""
        if self.nonzero and zero:
            return False
        over = lo > self.above or self.above == -math.inf or (lo == self.above == 0 and not zero)
        under = hi < self.below or self.below == math.inf or (hi == self.below == 0 and not zero)
        return over and under and lo >= self.at_least and hi <= self.at_most

    @property
    def inside(self) -> "Domain":
        """The domain without its ends."""
        above, below = self.ends
        return replace(self, above=above, below=below)

    @property
    def ends(self) -> tuple[float, float]:
        """The smallest and the largest number, which may not belong to it themselves."""
        return max(self.above, self.at_least), min(self.below, self.at_most)

    @property
    def words(self) -> str:
        """What an operand must do, as the end of a sentence."""
        lower, upper = self.ends
        is_open = self.above == lower
        if self.nonzero:
            return "not be 0"
        if lower == -math.inf:
            return f"be {'below' if self.below == upper else 'at most'} {upper:g}"
        if upper < math.inf:
            words = "lie inside {:g} to {:g}" if is_open else "lie between {:g} and {:g}"
            return words.format(lower, upper)
        if lower == 0:
            return "be positive" if is_open else "not be negative"
        return f"{'exceed' if is_open else 'be at least'} {lower:g}"


@dataclass(frozen=True, kw_only=True)
class Scalar:
    """What is known of a scalar operation, which ``Elemwise`` applies to each element."""

    #: Which kinds of bad values the result shows for certain, by operand; one entry stands for all
    #: operands.  A NaN shows as a NaN, an Inf as an Inf or a NaN.
    carries: tuple[Kind, ...] = ()
    #: Which kinds it may make from finite numbers.  It chooses constants without making them.
    makes: Kind = Kind.BOTH
    makes_nan: bool = True  # whether it may make a NaN from numbers that are finite or infinite
    #: tuple of {"c", "numba"}.  On which backends the processor raises an exception flag whenever a
    #: NaN or an Inf is made.
    signals: tuple[str, ...] = ()
    selects: slice | None = None  # the operands of which the result is one, or its magnitude
    #: Between which numbers the result lies, for finite operands.
    range: tuple[float, float] | None = None
    #: The largest magnitude of the result for real operands that are not infinite; follows from
    #: `range` where there is one.
    bound: float | None = None
    hides: tuple[int, ...] = ()  # operands whose NaN may not show in a floating-point result
    #: Whether Numba may compute it in float32 from an estimate of 1 / sqrt(x), which raises no
    #: flag.  Half of the bits of a float32 are enough for that, and LLVM prefers it to a division
    #: where it may take reciprocals (``numba__fastmath``).
    estimated: bool = False
    #: One of "", "always", "with its sign".  Whether the result of one operand never decreases with
    #: it, and has its sign.
    increasing: str = ""
    domain: Domain | None = None  # where it has a value
    name: str | None = None  # as a user writes it; None for the name that PyTensor gives it
    #: ``formula(op, *operands)`` returns the same value in other operations of PyTensor.
    formula: Callable[..., Variable] | None = None

    def __post_init__(self) -> None:
        if self.range is not None and self.bound is None:
            object.__setattr__(self, "bound", max(-self.range[0], self.range[1]))

    def carries_from(self, operand: int) -> Kind:
        """Return the kinds that the result shows of one operand."""
        return self.carries[operand if len(self.carries) > 1 else 0] if self.carries else Kind.NONE


@dataclass(frozen=True, kw_only=True)
class Operation:
    """What is known of an operation on arrays, beside what its base classes state."""

    depends: Dependence = ANYTHING  # which elements of the operands decide an element of an output
    #: ``moves(node)`` returns the operands whose elements the outputs consist of, beside zeros and
    #: ones; None if the node computes.
    moves: Callable[[Apply], list[Variable] | None] = lambda node: None
    #: Which kinds of bad values it may make from finite numbers, unless it only moves them.
    makes: Kind = Kind.BOTH
    #: ``carries(node, operand)`` returns the kinds that the first output shows for certain.
    carries: Callable[[Apply, int], Kind] = lambda node, operand: Kind.NONE
    #: ``signals(node, on_c)`` returns whether the processor raises an exception flag whenever a NaN
    #: or an Inf is made, in PyTensor's C code or in Numba's.
    signals: Callable[[Apply, bool], bool] = lambda node, on_c: False
    bound: float = math.nan  # the largest magnitude of the outputs for finite operands
    #: ``keeps_size(node)`` returns whether no output exceeds the largest operand.
    keeps_size: Callable[[Apply], bool] = lambda node: False
    never_empty: bool = False  # whether no output is empty where an operand that it carries is not
    #: Whether a NaN among its operands does no harm: it returns, and stays within its memory.  Many
    #: routines of linear algebra and random draws hang or crash.
    steady: bool = False
    #: Whether it calculates with integers.  Others take them for sizes or indices.
    counts: bool = False
    #: tuple of {"c", "numba"}.  On which backends its code leaves the flags that have been raised
    #: before it, and raises none but by its own arithmetic.  Code that may run in Python does not:
    #: NumPy clears them.
    keeps_flags: tuple[str, ...] = ()
    #: Whether it may leave out elements of its operands, so that a NaN among them is right as long
    #: as it is not chosen.
    chooses: bool = False
    domain: Domain | None = None  # where it has a value
    name: str | None = None  # as a user writes it; None for the name of its class
    #: ``formula(op, *operands)`` returns the same value in other operations of PyTensor.
    formula: Callable[..., Variable] | None = None


EVERYWHERE = ("c", "numba")  # the backends on which exception flags are read

NOTHING_KNOWN = Scalar()

SCALARS: dict[type[ScalarOp], Scalar] = {}
STATED: dict[type[Op], dict[str, Any]] = {}


def register(*classes: type[Op], **facts: Any) -> None:
    """State facts about operations, beside those that have been stated before."""
    Operation(**facts)  # (refuses facts that there are not)
    for cls in classes:
        STATED[cls] = {**STATED.get(cls, {}), **facts}
    _known.cache_clear()


@cache
def _known(cls: Any) -> Operation:
    facts: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        facts |= STATED.get(base, {})
    return Operation(**facts)


def facts_of(op: Op) -> Operation:
    """Return what is known of an operation; each fact from its nearest base class."""
    cls: Any = type(op)
    return _known(cls)


def stated_name(class_name: str) -> str | None:
    """Return the name that a user writes for a class of operations, where it has been stated."""
    scalars = ((cls, known.name) for cls, known in SCALARS.items())
    others = ((cls, known.get("name")) for cls, known in STATED.items())
    return next((name for cls, name in (*scalars, *others) if cls.__name__ == class_name), None)


def scalar_facts(op: ScalarOp) -> Scalar:
    """Return what is known of a scalar operation.  Nothing is inherited."""
    return SCALARS.get(type(op), NOTHING_KNOWN)


def all_of(*operands: int) -> Callable[[Apply, int], Kind]:
    """Return a rule for ``carries``: every element of these operands is kept, or computed with."""
    return lambda node, operand: Kind.BOTH if operand in operands else Kind.NONE
