"""Follow a number that is outside of a domain to its origin, and say what keeps it inside."""

from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np
import pytensor.scalar as ps
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors, toposort
from pytensor.tensor.basic import Alloc, Join, MakeVector
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.shape import Shape, Shape_i

from theanoguard._evaluate import culprit
from theanoguard._evaluate.culprit import Place, Scope
from theanoguard._exact.integers import is_arithmetic, wrapping_of
from theanoguard._graph import VIEWS, constant_number, reduction_of, role_of, scalar_class, viewed
from theanoguard._naming import INDEXING, element_text, name_of
from theanoguard._steps import ForeignError
from theanoguard._text import number_text
from theanoguard.explain.advice.judge import Judge
from theanoguard.explain.advice.ranges import link_text, range_of, range_text
from theanoguard.explain.advice.source_edit import listed
from theanoguard.explain.advice.trials import leaf_values
from theanoguard.explain.facts.records import ROLES, Condition, Range
from theanoguard.operations.facts import Domain
from theanoguard.operations.names import op_name

MAX_NUMBERS = 4  # largest number of inputs that are named together

MAX_HOPS = 200  # largest number of operations that are followed

_SAME_ZERO = (ps.Sqr, ps.Abs, ps.Sqrt, ps.Neg, ps.Cast, ps.Identity)
"""Operations that are 0 only where their operand is 0."""

_CHOOSES = (ps.ScalarMaximum, ps.ScalarMinimum, ps.Clip, ps.Switch)


@dataclass(frozen=True)
class Part:
    """Elements of a variable: one, or a slice of them."""

    scope: Scope  # the execution of the graph of the variable
    variable: Variable
    index: tuple  # as NumPy takes it

    @property
    def value(self) -> np.ndarray:
        """The elements."""
        return np.asarray(culprit.dense(self.scope.replay.value(self.variable)))[self.index]

    @property
    def place(self) -> Place | None:
        """The element, if it is one."""
        is_one = all(isinstance(i, int | np.integer) for i in self.index)
        return Place(self.scope, self.variable, self.index) if is_one else None


@dataclass(frozen=True)
class End:
    """Where the way of a number ends."""

    #: The input, shared variable or constant; None if the way ends at an operation.
    leaf: Part | None
    text: str = ""  # a sentence on what was found on the way; empty if there is nothing to say
    kept: str = ""  # what to do about it
    general: bool = True  # as for :class:`~theanoguard.explain.facts.records.Meaning`
    settled: bool = False  # as there
    condition: Condition | None = None  # as there
    #: The inputs among the operands of a difference that decides the number.
    parts: tuple[Part, ...] = ()


class Origins:
    """The way of a number upstream, in the graph as built.

    `updated`: the shared variables that the function updates.
    """

    def __init__(self, judge: Judge, updated: Collection[Variable]):
        self.built = judge.built
        self.spot = judge.spot
        self.updated = updated
        self.leaf: Part | None = None  # where the last way ended
        self._names = {self.spot.scope: self.spot.name_of}
        self._domain: Domain | None = None
        self._passed: list[tuple[Part, Part | None]] = []  # where it enters a graph, from where

    def of(self, place: Place, domain: Domain | None = None) -> End:
        """Return where an element came from, and what keeps it inside.

        `domain`: where it has to lie; None for an argument at which only a derivative does not
        exist.
        """
        start = Part(self.spot.scope, place.variable, place.index)
        self._domain = domain
        ends = self._ends(start, MAX_HOPS)
        self.leaf = ends[0].leaf if len(ends) == 1 else None
        if len(ends) > 1:
            leaves = [end.leaf for end in ends if end.leaf is not None]
            is_whole = len(leaves) == len(ends)
            return End(None, self._of_leaves(leaves) if is_whole or len(leaves) > 1 else "")
        (end,) = ends
        if end == End(None) and domain is not None:
            return End(None, self._computed_from(start))
        if end.leaf is None and end.parts and domain is not None:
            found = (self._condition(place, domain, part) for part in end.parts)
            return replace(end, condition=next((c for c in found if c.range is not None), None))
        if end.leaf is None or not (known := self.known(end.leaf)):
            return end
        if domain is None:
            return replace(end, text=known)
        condition = self._condition(place, domain, end.leaf)
        kept = self._kept(end.leaf, condition.range)
        return replace(end, text=known, kept=kept, general=False, condition=condition)

    def _computed_from(self, part: Part) -> str:
        """Return the numbers that a number is computed from, element by element."""
        value = part.scope.replay.value
        leaves = list(leaf_values([part.variable], value))[::-1]
        nodes = toposort([part.variable])
        if not 1 < len(leaves) <= MAX_NUMBERS or not all(
            isinstance(node.op, Elemwise | DimShuffle) for node in nodes
        ):
            return ""
        texts = []
        for leaf in leaves:
            index = part.index if np.shape(value(leaf)) == np.shape(value(part.variable)) else ()
            if len(index) != leaf.type.ndim or not leaf.name:
                return ""
            texts.append(self._with_value(Part(part.scope, leaf, index)))
        return f"It is computed from {listed(texts)}."

    def _condition(self, place: Place, domain: Domain, leaf: Part) -> Condition:
        """Return the condition on a number, and for which values of a leaf it holds."""
        start = Part(self.spot.scope, place.variable, place.index)
        is_own = leaf == start or viewed(place.variable) is leaf.variable
        is_near = leaf.scope is self.spot.scope and leaf.value.size == 1
        name = self._name_of(start) or start.variable.name or ""
        found = None
        if is_near:
            found = range_of(place, domain, leaf.variable, leaf.index, self.built, self.updated)
        at = leaf.value.item() if leaf.place is not None else None
        return Condition(
            name,
            place.element,
            domain,
            leaf.variable.name or "",
            role_of(leaf.variable),
            () if leaf.place is None else tuple(map(int, leaf.index)),
            at,
            is_own,
            found,
        )

    def name_at(self, place: Place) -> str:
        """Return the user's name of an element, or its formula."""
        part = Part(place.scope, place.variable, place.index)
        formula = name_of(place.variable, own=lambda v: self._name_of(part, v))
        return element_text(self._name_of(part) or formula, place.index)

    def _ends(self, part: Part, hops: int) -> list[End]:
        """Return where the way of a part ends; several ends for a sum of zeros."""
        difference = End(None)
        self._passed = [(part, None)]
        for hop in range(hops):
            node = part.variable.owner
            if node is None:
                left = self._left(part)
                if left is None:
                    return [replace(difference, leaf=part)]
                self._passed.append((left, part))
                part = left
                continue
            special = self._special(part)
            if special is not None:
                return [special]
            entered = self._entered(part)
            if entered is not None:
                self._passed.append((entered, part))
                part = entered
                continue
            difference = self._of_difference(part) or difference
            terms = self._zero_terms(part)
            if terms:
                return [end for term in terms for end in self._ends(term, hops - hop - 1)]
            following = self._before(part)
            if following is None:
                break
            part = following
        return [difference]

    # -- one step upstream

    @staticmethod
    def _left(part: Part) -> Part | None:
        """Return the part outside of a loop that an input of its graph is."""
        place = part.place
        if place is None or part.scope.parent is None or isinstance(part.variable, Constant):
            return None
        outside = culprit.leave(place)
        return None if outside is None else Part(outside.scope, outside.variable, outside.index)

    @staticmethod
    def _entered(part: Part) -> Part | None:
        """Return the part in the graph of a loop that computes an element."""
        inside = culprit.enter(part.variable.owner.op, part.place) if part.place else None
        return None if inside is None else Part(inside.scope, inside.variable, inside.index)

    def _before(self, part: Part) -> Part | None:
        """Return the part of an operand that explains a part, or None."""
        node = part.variable.owner
        if isinstance(node.op, Join | MakeVector | Alloc) and part.place is not None:
            return self._region(part, culprit.regions_of(part.place)[0].operand)
        if isinstance(node.op, (*VIEWS, *INDEXING)) or _is_reduction(part.variable):
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
        return self._negative_term(part) if kind is ps.Add else None

    def _region(self, part: Part, operand: int) -> Part | None:
        """Return the part of an operand that a part is computed from."""
        source = part.variable.owner.inputs[operand]
        if part.place is not None:
            found = next((r for r in culprit.regions_of(part.place) if r.operand == operand), None)
            if found is None or any(isinstance(i, np.ndarray) for i in found.index):
                return None
            index = found.index if found.index != (...,) else (slice(None),) * source.type.ndim
            return Part(part.scope, source, index)
        value = part.scope.replay.value
        if np.shape(value(source)) != np.shape(value(part.variable)):
            return None
        return Part(part.scope, source, part.index)

    def _operands(self, part: Part) -> list[Part]:
        """Return the parts of all operands that are numbers."""
        found = [self._region(part, i) for i in range(len(part.variable.owner.inputs))]
        return [p for p in found if p is not None and p.value.dtype.kind in "fiu"]

    def _cumulated(self, part: Part) -> Part | None:
        """Return the first factor of a cumulated product that is 0."""
        node, axis = part.variable.owner, part.variable.owner.op.axis
        if node.op.mode != "mul" or axis is None or part.value.size != 1 or np.any(part.value):
            return None
        index = list(part.index)
        index[axis] = slice(None)
        factors = Part(part.scope, node.inputs[0], tuple(index))
        zeros = np.flatnonzero(factors.value[: part.index[axis] + 1] == 0)
        if not len(zeros):
            return None
        index[axis] = int(zeros[0])
        return replace(factors, index=tuple(index))

    def _factor(self, part: Part, kind: type | None) -> Part | None:
        """Return the factor that makes a product 0 or negative; the operand that a choice took."""
        for found in self._operands(part)[1 if kind is ps.Switch else 0 :]:
            if kind in _CHOOSES:
                decides = np.array_equal(found.value, part.value)
            else:
                is_negative = bool(np.all(part.value < 0) and np.all(found.value < 0))
                decides = is_negative or not np.any(found.value)
            if decides:
                return found
        return None

    def _negative_term(self, part: Part) -> Part | None:
        """Return the only negative term of a negative sum."""
        negative = [p for p in self._operands(part) if p.value.size == 1 and p.value < 0]
        return negative[0] if len(negative) == 1 and np.all(part.value < 0) else None

    def _zero_terms(self, part: Part) -> list[Part]:
        """Return the terms of a sum of zeros; nothing if it is not one."""
        if scalar_class(part.variable) is not ps.Add or np.any(part.value):
            return []
        terms = self._operands(part)
        return [] if any(np.any(p.value) for p in terms) else terms

    # -- sentences

    def _special(self, part: Part) -> End | None:
        """Return what is said of a reduction over nothing, of equal numbers, and of wrapping."""
        node = part.variable.owner
        empty = None
        if isinstance(node.op, Shape | Shape_i) and not np.any(part.value):
            empty = Part(part.scope, node.inputs[0], ())
        elif _is_reduction(part.variable):
            empty = self._region(part, 0)
        if empty is not None and empty.value.size == 0:
            text = f"{self._name(empty)} has no elements: the selection is empty."
            return End(None, text, general=False)
        if scalar_class(part.variable) is ps.Sub and not np.any(part.value) and part.value.size:
            taken = self._region(part, 0)
            reduced = _reduced_in(node.inputs[1])
            if (
                taken is not None
                and any(isinstance(i, slice) for i in taken.index)
                and np.ptp(taken.value) == 0
                and viewed(taken.variable) in reduced
            ):
                number = number_text(np.ravel(taken.value)[0])
                what = "is constant" if taken.value.size > 1 else "has a single element"
                text = f"{self._name(taken)} {what}: {number}. So its spread is 0."
                return End(None, text, general=False)
        if is_arithmetic(node):
            wrapping = wrapping_of(node, [part.scope.replay.value(v) for v in node.inputs])
            if wrapping is not None:
                name = self._name(replace(part, index=()))
                kept = "Cast to float64 before it. For factorials use gammaln."
                return End(None, f"{name} {wrapping}.", kept, general=False, settled=True)
        return None

    def known(self, part: Part) -> str:
        """Return the value of an input as a sentence; empty if it has no name, or says nothing."""
        leaf = part.variable
        if isinstance(leaf, Constant) and (not leaf.type.ndim or not self._name_of(part)):
            return ""
        if part.value.size == 0:
            return f"{self._name(part)} has no elements."
        if part.value.size > 1 and np.any(part.value):
            return ""
        value = f"{self._name(part)} is {_value_text(part.value)}"
        if leaf in self.updated:
            changed = f"{value}, and the updates of this function change {leaf.name or 'it'}."
            return f"{changed}{_wrapped(part)}"
        return f"{value} ({ROLES[role_of(leaf)]})."

    def _kept(self, part: Part, inside: Range | None) -> str:
        """Return what to do about an input, of which some numbers are inside."""
        leaf = part.variable
        if isinstance(leaf, Constant):
            return "Correct it before you build the graph."
        free = "" if inside is None or not leaf.name else link_text(inside, leaf.name)
        if leaf in self.updated:
            if inside is None or not free:
                return ""
            return f"To keep it {range_text(inside)}, update a free number: {free}."
        if hasattr(leaf, "get_value"):
            fitted = f" If it is fitted, compute it from a free parameter: {free}."
            return f"Set it to another value.{fitted if free else ''}"
        if leaf.type.ndim:
            is_one = part.value.size == 1
            these, them = ("this element", "it") if is_one else ("these elements", "them")
            return f"Correct {these} before the call, or leave {them} out."
        if free:
            return f"If an optimizer or a sampler sets it, let it set a free number: {free}."
        return "Check it before the call."

    def _of_leaves(self, leaves: list[Part]) -> str:
        """Return a sentence on several inputs that are 0."""
        names = list(dict.fromkeys(self._name(p) for p in leaves))
        if any(np.any(p.value) for p in leaves) or len(names) < 2:
            return self.known(leaves[0]) if len(names) == 1 else ""
        throughout = " throughout" if any(p.value.size > 1 for p in leaves) else ""
        return f"{listed(names)} are 0{throughout}."

    def _of_difference(self, part: Part) -> End | None:
        """Return which operand of a difference is too large, or which term of a sum too small."""
        kind = scalar_class(part.variable)
        if kind not in (ps.Sub, ps.Add) or part.value.size != 1 or part.value > 0:
            return None
        found = [self._behind(p) for p in self._operands(part)]
        if len(found) != 2 or any(p.value.size != 1 for p in found):
            return None
        numbers = [float(p.value.item()) for p in found]
        if kind is ps.Add:
            if not min(numbers) < 0 < max(numbers):
                return None
            found = found if numbers[0] > 0 else found[::-1]
        left, right = found
        texts = [self._formula(p) for p in found]
        if kind is ps.Sub and numbers[0] == numbers[1]:
            return End(None, f"Both operands of the difference are equal: {' and '.join(texts)}.")
        if part.value == 0 or np.isnan(part.value) or not self._decides(part):
            return None
        is_said = ("is above", "be below") if kind is ps.Sub else ("outweighs", "not")
        text = f"{texts[1]} {is_said[0]} {texts[0]}{self._when(part)}, and must {is_said[1]}."
        moved = next((p for p in (right, left) if self._parameters(p.variable)), None)
        if moved is not None:
            names = [v.name or self._name_of(moved, v) for v in self._parameters(moved.variable)]
            known = [name for name in names if name]
            if (unnamed := len(names) - len(known)) > 0:
                several = f"{unnamed} shared variables" if unnamed > 1 else "a shared variable"
                known.append(f"{several} without a name")
            text += f" The updates of this function change {listed(known)}."
        kept = self._rejected(left, right) * (kind is ps.Sub)
        inputs = tuple(p for p in (right, left) if p.variable.owner is None)
        return End(None, text, kept, general=False, parts=inputs)

    def _decides(self, part: Part) -> bool:
        """Return whether the sign of a difference decides that the number is outside.

        It does if the condition fails for a small negative difference, and holds for a small
        positive one, and if the difference was positive where this call and an earlier one were
        sound.
        """
        if self._domain is None:
            return True
        size = 1e-6 * max(abs(float(p.value.item())) for p in self._operands(part))
        try:
            if [self._is_inside(part, number) for number in (-size, size)] != [False, True]:
                return False
        except ForeignError:
            return False
        same = [part.variable, self.spot.node.outputs[0]]
        calls = [[part.scope.replay.value(part.variable), self.spot.replay.value(same[1])]]
        if self.spot.body is None:
            calls.append(self.built.in_earlier_call(same) or [])
        for difference, result in filter(None, calls):
            sound = np.isfinite(np.asarray(culprit.dense(result)))
            difference = np.asarray(culprit.dense(difference))
            if sound.shape == difference.shape and np.any(difference[sound] < 0):
                return False
        return True

    def _is_inside(self, part: Part, number: float) -> bool:
        """Return whether the number is inside of its domain if a part of its way is `number`."""
        here: Part | None = part
        for first, before in reversed(self._passed):
            assert here is not None  # (only the first part has none before it)
            replay = here.scope.replay
            array = np.array(culprit.dense(replay.value(here.variable)))
            array[here.index] = number
            given = {**leaf_values([first.variable], replay.value), here.variable: array}
            moved = culprit.dense(self.built.again(given, replay).value(first.variable))
            number, here = float(np.ravel(moved[first.index])[0]), before
        domain = self._domain
        return domain is not None and domain.holds(number, number, zero=number == 0)

    def _rejected(self, left: Part, right: Part) -> str:
        """Return how a log-density rejects a parameter that makes a difference negative."""
        found = (left, right)
        large, small = (self._name(replace(p, index=())) for p in found)
        proposed = [p for p in found if _is_number_given(p.variable)]
        fixed = left.scope.parent is not None or {p.variable for p in found} & set(self.updated)
        unnamed = any(isinstance(p.variable, Constant) and not self._name_of(p) for p in found)
        if not proposed or fixed or unnamed:
            return ""
        valid = f"{small} < {large}"
        inside = f"{op_name(self.spot.node.op)}(switch({valid}, {large} - {small}, 1))"
        return f"A log-density rejects such a proposal: switch({valid}, {inside}, -inf)."

    def _when(self, part: Part) -> str:
        """Return the step of a loop, if it is not the step of the operation."""
        step = part.scope.step
        return "" if step is None or part.scope is self.spot.scope else f" in step {step}"

    def _behind(self, part: Part) -> Part:
        """Return the part that a view without a name shows."""
        while part.variable.owner is not None and isinstance(part.variable.owner.op, VIEWS):
            shown = self._region(part, 0)
            if shown is None:
                break
            own = self._name_of(part)
            is_squeezed = part.variable.type.ndim < shown.variable.type.ndim  # (as in `x @ w`)
            is_same = own in (self._name_of(shown), shown.variable.name)
            if own is not None and (is_squeezed or not is_same):
                break
            part = shown
        return part

    def _parameters(self, variable: Variable) -> list[Variable]:
        return [v for v in ancestors([variable]) if v in self.updated]

    def _with_value(self, part: Part) -> str:
        name, value = self._name(part), _value_text(part.value)
        return value if name == value else f"{name} = {value}"

    def _formula(self, part: Part) -> str:
        """Return the name of a part, or the formula of one without a name, and its value."""
        if self._name_of(part) or part.variable.name or part.variable.owner is None:
            return self._with_value(part)
        formula = name_of(part.variable, own=lambda v: self._name_of(part, v))
        is_alone = np.size(part.scope.replay.value(part.variable)) == 1
        text = formula if is_alone else element_text(formula, part.index)
        return f"{text} = {_value_text(part.value)}"

    def _name_of(self, part: Part, variable: Variable | None = None) -> str | None:
        """Return the user's name of a variable, or None."""
        if part.scope not in self._names:
            self._names[part.scope] = self.built.name_in(part.scope)
        return self._names[part.scope](part.variable if variable is None else variable)

    def _name(self, part: Part) -> str:
        """Return the user's name of a part; the operation, if it has none."""
        number = constant_number(part.variable)
        if number is not None:
            return number_text(number)
        variable, value = viewed(part.variable), part.scope.replay.value
        same = np.shape(value(variable)) == np.shape(value(part.variable))
        variable = variable if same else part.variable
        name = self._name_of(part, variable) or variable.name
        if name is None and isinstance(variable, Constant) and part.value.size == 1:
            return number_text(part.value.item())
        name = name or (op_name(variable.owner.op) if variable.owner is not None else "an input")
        return element_text(name, part.index)


def _is_number_given(variable: Variable) -> bool:
    """Return whether a variable is a number that each call gives, such as a parameter."""
    is_shared = hasattr(variable, "get_value") or isinstance(variable, Constant)
    is_input = variable.owner is None and not is_shared
    return is_input and variable.type.ndim == 0 and variable.type.dtype.startswith("float")


def _wrapped(part: Part) -> str:
    """Return that a counter has passed its largest number; "" if it is far from the smallest."""
    if part.value.dtype.kind != "i":
        return ""
    limits = np.iinfo(part.value.dtype)
    if np.min(part.value) > limits.min + (int(limits.max) - int(limits.min)) // 100:
        return ""
    return (
        f" It has passed the largest number of {part.value.dtype}, {limits.max}, and wrapped"
        " around: give it a wider dtype."
    )


def _is_reduction(variable: Variable) -> bool:
    return reduction_of(variable, "sum", "mean", "max", "min", "prod") is not None


def _reduced_in(variable: Variable) -> set[Variable]:
    """Return what the reductions in a variable, such as a mean, are computed from."""
    return set(ancestors(list(filter(_is_reduction, ancestors([variable])))))


def _value_text(value: np.ndarray) -> str:
    """Return the value of a part."""
    return number_text(value.item()) if value.size == 1 else "0 throughout"
