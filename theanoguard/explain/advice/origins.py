"""Follow a number that is outside of a domain to its origin, and say what keeps it inside."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytensor.scalar as ps
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.basic import Alloc, Join, MakeVector
from pytensor.tensor.elemwise import CAReduce, Elemwise
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.shape import Shape, Shape_i

from theanoguard._evaluate import culprit
from theanoguard._evaluate.culprit import Place, Scope
from theanoguard._graph import VIEWS, constant_number, scalar_class, viewed
from theanoguard.explain.facts.labels import role_of
from theanoguard.explain.facts.naming import INDEXING, element_text, number_text, op_name
from theanoguard.explain.records import ROLES

MAX_HOPS = 200
"""Largest number of operations that are followed."""

_SAME_ZERO = (ps.Sqr, ps.Abs, ps.Sqrt, ps.Neg, ps.Cast, ps.Identity)
"""Operations that are 0 only where their operand is 0."""

_CHOOSES = (ps.ScalarMaximum, ps.ScalarMinimum, ps.Clip, ps.Switch)


@dataclass(frozen=True)
class Part:
    """Elements of a variable: one, or a slice of them.

    Parameters
    ----------
    variable : Variable
    index : tuple
        As NumPy takes it.
    value : ndarray
        The elements.
    """

    variable: Variable
    index: tuple
    value: np.ndarray


class Origins:
    """The way of a number upstream, in the graph as built.

    Parameters
    ----------
    spot : Spot
    updated : collection of Variable
        The shared variables that the function updates.
    """

    def __init__(self, spot: Any, updated: Any):
        self.spot = spot
        self.updated = updated
        self.leaf: Part | None = None  # where the way of the last text ended

    def part(self, variable: Variable, index: tuple) -> Part:
        """Return the elements of a variable at an index."""
        array = np.asarray(culprit.dense(self.spot.replay.value(variable)))
        return Part(variable, index, array[index])

    def text(self, place: Place, needs: str = "") -> str:
        """Return where an element came from, and what keeps it inside, as sentences.

        The text is empty if there is nothing more to say than its value.

        Parameters
        ----------
        place : Place
        needs : {"", "positive", "check"}
            What it must be; "check" for any other condition, and an empty text for an argument at
            which only a derivative does not exist.
        """
        part = start = self.part(place.variable, place.index)
        self.leaf, difference = None, ""
        for _ in range(MAX_HOPS):
            node = part.variable.owner
            if node is None:
                self.leaf = part
                is_own = part is start or viewed(start.variable) is part.variable
                return self._of_leaf(part, needs, is_own)
            special = self._special(part)
            if special:
                return special
            difference = difference or self._of_difference(part)
            following = self._before(part)
            if following is None:
                break
            part = following
        return difference

    # -- one step upstream

    def _before(self, part: Part) -> Part | None:
        """Return the part of an operand that explains a part, or None."""
        node = part.variable.owner
        if isinstance(node.op, Join | MakeVector | Alloc) and part.value.size == 1:
            place = Place(Scope(self.spot.replay), part.variable, part.index)
            return self._region(part, culprit.regions_of(place)[0].operand)
        if isinstance(node.op, (*VIEWS, *INDEXING)) or _is_reduction(node):
            return self._region(part, 0)
        kind = scalar_class(part.variable)
        if kind in _SAME_ZERO:
            return self._region(part, 0)
        if kind is ps.Pow and not np.any(part.value):
            return self._region(part, 0)
        others = [i for i, v in enumerate(node.inputs) if constant_number(v) is None]
        if isinstance(node.op, CumOp):
            return self._cumulated(part)
        if isinstance(node.op, Elemwise) and len(others) == 1 and part.value.size == 1:
            return self._region(part, others[0])
        if kind in (ps.Mul, ps.TrueDiv, *_CHOOSES):
            return self._factor(part, kind)
        return None

    def _region(self, part: Part, operand: int) -> Part | None:
        """Return the part of an operand that a part is computed from."""
        node = part.variable.owner
        source = node.inputs[operand]
        if all(isinstance(i, (int, np.integer)) for i in part.index):
            place = Place(Scope(self.spot.replay), part.variable, part.index)
            found = next((r for r in culprit.regions_of(place) if r.operand == operand), None)
            if found is None or any(isinstance(i, np.ndarray) for i in found.index):
                return None
            index = found.index if found.index != (...,) else (slice(None),) * source.type.ndim
            return self.part(source, index)
        shape = np.shape(self.spot.replay.value(source))
        if shape != np.shape(self.spot.replay.value(part.variable)):
            return None
        return self.part(source, part.index)

    def _cumulated(self, part: Part) -> Part | None:
        """Return the first factor of a cumulated product that is 0."""
        node, axis = part.variable.owner, part.variable.owner.op.axis
        if node.op.mode != "mul" or axis is None or part.value.size != 1 or np.any(part.value):
            return None
        index = list(part.index)
        index[axis] = slice(None)
        factors = self.part(node.inputs[0], tuple(index)).value[: part.index[axis] + 1]
        zeros = np.flatnonzero(factors == 0)
        if not len(zeros):
            return None
        index[axis] = int(zeros[0])
        return self.part(node.inputs[0], tuple(index))

    def _factor(self, part: Part, kind: type | None) -> Part | None:
        """Return the factor that makes a product 0 or negative; the operand that a choice took."""
        node = part.variable.owner
        first = 1 if kind is ps.Switch else 0
        n = 1 if kind is ps.TrueDiv else len(node.inputs)
        for i in range(first, n):
            found = self._region(part, i)
            if found is None or found.value.dtype.kind not in "fiu":
                continue
            is_negative = np.all(part.value < 0) and np.all(found.value < 0)
            decides = is_negative or not np.any(found.value)
            if np.array_equal(found.value, part.value) if kind in _CHOOSES else decides:
                return found
        return None

    # -- sentences

    def _special(self, part: Part) -> str:
        """Return a sentence on a reduction over nothing, or over equal numbers."""
        node = part.variable.owner
        empty = None
        if isinstance(node.op, Shape | Shape_i) and not np.any(part.value):
            empty = self.part(node.inputs[0], ())
        elif _is_reduction(node):
            empty = self._region(part, 0)
        if empty is not None and empty.value.size == 0:
            return f"{self._name(empty)} has no elements: the selection is empty."
        if scalar_class(part.variable) is ps.Sub and not np.any(part.value) and part.value.size:
            taken = self._region(part, 0)
            many = taken is not None and any(isinstance(i, slice) for i in taken.index)
            if taken is not None and many and np.ptp(taken.value) == 0:
                number = number_text(np.ravel(taken.value)[0])
                what = "is constant" if taken.value.size > 1 else "has a single element"
                return f"{self._name(taken)} {what}: {number}. So its spread is 0."
        return ""

    def _of_leaf(self, part: Part, needs: str, is_own: bool) -> str:
        """Return the value of an input, and what to do; `is_own`: it is the operand itself."""
        leaf = part.variable
        if isinstance(leaf, Constant) and (not leaf.type.ndim or not self.spot.name_of(leaf)):
            return ""
        name = self._name(part)
        if part.value.size == 0:
            return f"{name} has no elements."
        if part.value.size > 1 and np.any(part.value):
            return ""
        value = _value_text(part.value)
        if self.spot.body is not None:
            return f"{name} is {value} in this step." if is_own else ""
        if not needs:
            return self.known(part)
        known = self.known(part)
        if leaf not in self.updated:
            if isinstance(leaf, Constant):
                return f"{known} Correct it before you build the graph."
            if leaf.type.ndim:
                is_one = part.value.size == 1
                these, them = ("this element", "it") if is_one else ("these elements", "them")
                return f"{known} Correct {these} before the call, or leave {them} out."
            if is_own and needs == "positive":
                return (
                    f"{known} If an optimizer or a sampler sets it, let it set the logarithm:"
                    f" {name} = exp(log_{name})."
                )
            return f"{known} Check it before the call."
        moved = f"{name} is {value}, and the updates of this function change {leaf.name or 'it'}."
        if needs != "positive":
            return moved
        own = leaf.name or "it"
        return (
            f"{moved} To keep it positive, update its logarithm: {own} = exp(log_{own}). Or use"
            " softplus, or constrain the optimizer."
        )

    def known(self, part: Part) -> str:
        """Return the value of an input as a sentence."""
        role = ROLES[role_of(part.variable)]
        return f"{self._name(part)} is {_value_text(part.value)} ({role})."

    def _of_difference(self, part: Part) -> str:
        """Return which operand of a difference is too large."""
        if scalar_class(part.variable) is not ps.Sub or part.value.size != 1:
            return ""
        left, right = (self._behind(self._region(part, i)) for i in (0, 1))
        if left is None or right is None or left.value.size != 1 or right.value.size != 1:
            return ""
        a, b = float(left.value.item()), float(right.value.item())
        texts = [self._with_value(p) for p in (left, right)]
        if a == b:
            return f"Both operands of the difference are equal: {' and '.join(texts)}."
        text = f"{texts[1]} is above {texts[0]}." if b > a else ""
        moved = next((p for p in (right, left) if self._parameters(p.variable)), None)
        if moved is not None and text:
            names = " and ".join(
                v.name or "a shared variable" for v in self._parameters(moved.variable)
            )
            text += f" The updates of this function change {names}."
        return text

    def _behind(self, part: Part | None) -> Part | None:
        """Return the part that a view without a name shows."""
        while part is not None and part.variable.owner is not None:
            is_view = isinstance(part.variable.owner.op, VIEWS)
            shown = self._region(part, 0) if is_view else None
            if shown is None:
                break
            own = self.spot.name_of(part.variable)
            if own not in (None, self.spot.name_of(shown.variable), shown.variable.name):
                break
            part = shown
        return part

    def _parameters(self, variable: Variable) -> list[Variable]:
        return [v for v in ancestors([variable]) if v in self.updated]

    def _with_value(self, part: Part) -> str:
        name, value = self._name(part), _value_text(part.value)
        return value if name == value else f"{name} = {value}"

    def _name(self, part: Part) -> str:
        """Return the user's name of a part; the operation, if it has none."""
        number = constant_number(part.variable)
        if number is not None:
            return number_text(number)
        variable = viewed(part.variable)
        same = np.shape(self.spot.replay.value(variable)) == np.shape(
            self.spot.replay.value(part.variable)
        )
        variable = variable if same else part.variable
        name = self.spot.name_of(variable) or variable.name
        name = name or (op_name(variable.owner.op) if variable.owner is not None else "an input")
        return element_text(name, part.index)


def _value_text(value: np.ndarray) -> str:
    """Return the value of a part."""
    return number_text(value.item()) if value.size == 1 else "0 throughout"


def _is_reduction(node: Any) -> bool:
    return isinstance(node.op, CAReduce) and op_name(node.op) in (
        "sum",
        "mean",
        "max",
        "min",
        "prod",
    )
