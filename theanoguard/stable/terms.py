"""From a graph to a term, and from a term to the code of a graph."""

import ast
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytensor
import pytensor.scalar as ps
import pytensor.scalar.math as psm
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.math import Dot
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.special import LogSoftmax, Softmax

from theanoguard._graph import applied_to, constant_number, reduction_of, scalar_class, viewed
from theanoguard._naming import INDEXING, name_of
from theanoguard.operations.names import op_name
from theanoguard.stable import forms
from theanoguard.stable.identities import Term
from theanoguard.stable.operations import KEEPING, OPERATIONS

Axes = tuple[int, ...]  # axes of a reduction, counted from the end


@dataclass(frozen=True)
class Leaf:
    """A variable that a term is computed from."""

    variable: Variable

    @property
    def varies(self) -> frozenset[int]:
        """The axes along which it may have more than one element, counted from the end."""
        broadcast = self.variable.type.broadcastable
        return frozenset(k - len(broadcast) for k, single in enumerate(broadcast) if not single)


@dataclass
class Formula:
    """An expression of a graph as a term."""

    variable: Variable  # the expression
    term: Term  # its reductions keep their axes
    leaves: dict[str, Leaf]  # by the name in the term
    dropped: Axes  # axes of the term, counted from the end, that the expression does not have
    views: tuple[Apply, ...]  # indexing and views that are applied at last, innermost first

    @property
    def dtype(self) -> str:
        """Of the expression."""
        return str(self.variable.type.dtype)

    def code(self, term: Term, names: Mapping[str, str]) -> str:
        """Return a term of the same leaves as code, with the text of each leaf."""
        text, level = _Writer(self, names).write(term, frozenset(self.dropped))
        for node in self.views:
            text = text if level == 9 else f"({text})"
            own = {leaf.variable: names[name] for name, leaf in self.leaves.items()}
            text, level = text_of(node.out, {**own, node.inputs[0]: text}), 9
        return text

    def expression(
        self, term: Term, new: Callable[[Variable], Variable] = lambda v: v, views: bool = True
    ) -> Variable:
        """Return the variable that the code of a term computes.

        `new`: returns what stands for a variable of the graph.
        `views`: whether to apply the last indexing and views.
        """
        names = {
            **{name: new(leaf.variable) for name, leaf in self.leaves.items()},
            **{"pt": pt, "np": np, "theanoguard": SimpleNamespace(stable=forms)},
        }
        own = {name: name for name in self.leaves}
        code, _ = _Writer(self, own).write(term, frozenset(self.dropped))
        built = pt.as_tensor_variable(eval(code, names))  # noqa: S307  (our own code)
        for node in self.views if views else ():
            built = applied_to(node, [built, *map(new, node.inputs[1:])])[0]
        if built.type.dtype != self.dtype:
            built = pt.cast(built, self.dtype)
        return self.variable.type.filter_variable(built) if views else built


class _Writer:
    """Writes terms of a formula as code."""

    def __init__(self, formula: Formula, names: Mapping[str, str]):
        self.formula, self.names = formula, names
        self.ndim = max((v.variable.type.ndim for v in formula.leaves.values()), default=0)

    def write(self, term: Term, dropped: frozenset[int]) -> tuple[str, int]:
        """Return code, and its precedence; without some axes that the term has with length 1."""
        if isinstance(term, str):
            text = self.names[term]
            ndim = self.formula.leaves[term].variable.type.ndim
            gone = sorted(axis + ndim for axis in dropped if axis + ndim >= 0)
            if gone:
                return f"pt.squeeze({text}, axis={gone[0] if len(gone) == 1 else tuple(gone)})", 9
            return text, 9 if text.isidentifier() else _level(text)
        if not isinstance(term, tuple):
            return self._number(term), 9 if term >= 0 else 7
        head, *operands = term
        op = OPERATIONS[head]
        if head == "len":
            return self._length(operands[0]), 9
        if op.reduces:
            return self._reduction(head, operands[0], operands[1], dropped), 9
        if op.level == 9 and all(isinstance(x, Fraction) for x in operands):
            return self._constant(term), 9
        written = [self.write(x, dropped) for x in operands]
        if op.level == 9:
            return op.code.format(*(text for text, _ in written)), 9
        least = [op.level, op.level + (head in ("sub", "div"))]
        if head in ("pow", "sqr"):
            least = [op.level + 1, op.level]
        if op.level == 1:
            least = [2, 2]
        pairs = zip(written, least, strict=False)
        texts = [text if level >= low else f"({text})" for (text, level), low in pairs]
        return op.code.format(*texts), op.level

    def _reduction(self, head: str, axes: Axes, operand: Term, dropped: frozenset[int]) -> str:
        inside, _ = self.write(operand, dropped - set(axes))
        keeps = head in KEEPING or not set(axes) <= dropped
        is_all = len(axes) == self.ndim
        leaves = [self.formula.leaves[n].variable for n in _names(operand)]
        if not dropped - set(axes) and any(v.type.ndim == self.ndim for v in leaves):
            axes = tuple(axis + self.ndim for axis in axes)  # (as most people write them)
        shown = "" if is_all else f", axis={axes[0] if len(axes) == 1 else axes}"
        if keeps and head not in KEEPING:
            shown += ", keepdims=True"
        return OPERATIONS[head].code.format("", inside, axis=shown)

    def _length(self, axes: Axes) -> str:
        parts = []
        for axis in axes:
            names = [n for n, leaf in self.formula.leaves.items() if axis in leaf.varies]
            parts.append(f"{self.names[names[0]]}.shape[{axis}]")
        return f'pt.cast({" * ".join(parts)}, "{self.formula.dtype}")'

    def _constant(self, term: Term) -> str:
        """Return the code of a function of numbers, such as log(3)."""
        op, dtype = OPERATIONS[term[0]], self.formula.dtype
        if not hasattr(np, term[0]):
            text = repr(float(op.floats(*map(float, term[1:]))))
            return text if dtype == pytensor.config.floatX else f"np.{dtype}({text})"
        numbers = list(map(self._number, term[1:]))
        if dtype != pytensor.config.floatX:
            numbers = [n if n.startswith("np.") else f"np.{dtype}({n})" for n in numbers]
        return op.code.format(*numbers).replace("pt.", "np.")

    def _number(self, number: Fraction) -> str:
        dtype = np.dtype(self.formula.dtype)
        value = float(number)
        if number.denominator == 1 and abs(number.numerator) < 100:
            return str(number.numerator)
        with np.errstate(over="ignore"):
            is_short = float(np.float16(value)) == value
        if dtype == pytensor.config.floatX or is_short:
            return repr(value)
        return f"np.{dtype}({str(dtype.type(value))})"


def _level(text: str) -> int:
    """Return 9 if a text is a name with calls, attributes and indices, else 0."""
    try:
        kind = type(ast.parse(text, mode="eval").body)
    except SyntaxError:
        return 0
    return 9 if kind in (ast.Name, ast.Call, ast.Attribute, ast.Subscript) else 0


_OPERATORS: dict[type, str] = {
    **{ps.Add: "add", ps.Sub: "sub", ps.Mul: "mul", ps.TrueDiv: "div", ps.Neg: "neg"},
    **{
        ps.Sqr: "sqr",
        ps.Pow: "pow",
        ps.Abs: "abs",
        ps.Sign: "sign",
        ps.Sqrt: "sqrt",
        ps.Exp: "exp",
    },
    **{ps.Log: "log", ps.Log2: "log2", ps.Log10: "log10", ps.Log1p: "log1p"},
    **{ps.Expm1: "expm1", ps.Sin: "sin", ps.Cos: "cos", ps.Tan: "tan", ps.ArcSin: "arcsin"},
    **{ps.ArcCos: "arccos", ps.ArcTan: "arctan", ps.ArcTan2: "arctan2", ps.Sinh: "sinh"},
    **{ps.Cosh: "cosh", ps.Tanh: "tanh", ps.ArcSinh: "arcsinh", ps.ArcCosh: "arccosh"},
    **{ps.ArcTanh: "arctanh", psm.Erf: "erf", psm.Erfc: "erfc", psm.Erfcx: "erfcx"},
    **{psm.Sigmoid: "sigmoid", psm.Softplus: "softplus", psm.Log1mexp: "log1mexp"},
    **{psm.Gamma: "gamma", psm.GammaLn: "gammaln", psm.Psi: "psi", psm.I0: "i0", psm.I1: "i1"},
    **{ps.ScalarMaximum: "maximum", ps.ScalarMinimum: "minimum", ps.Switch: "switch"},
    **{ps.GT: "gt", ps.GE: "ge", ps.LT: "lt", ps.LE: "le", ps.EQ: "eq", ps.NEQ: "ne"},
}
"""The names of scalar operations in terms."""

_REDUCTIONS = {"sum": "sum", "prod": "prod", "max": "max"}


@dataclass
class _Read:
    """A part of the expression: a term, the axes that were dropped from it, and its last views."""

    term: Term
    ndim: int
    dropped: Axes = ()
    views: tuple[Apply, ...] = ()


@dataclass
class Reader:
    """Reads the terms of variables."""

    stops: Collection[Variable]  # the variables that are leaves
    value: Callable[[Variable], Any]  # returns the value of a variable at the given inputs
    leaves: dict[str, Leaf] = field(default_factory=dict)
    _known: dict[Variable, _Read] = field(default_factory=dict)

    def formula(self, variable: Variable) -> Formula:
        """Return a variable as a formula."""
        found = self._read(variable)
        names = _names(found.term)
        leaves = {name: leaf for name, leaf in self.leaves.items() if name in names}
        return Formula(variable, found.term, leaves, found.dropped, found.views)

    def _leaf(self, variable: Variable) -> _Read:
        for name, leaf in self.leaves.items():
            if leaf.variable is variable:
                return _Read(name, variable.type.ndim)
        name = f"x{len(self.leaves)}"
        self.leaves[name] = Leaf(variable)
        return _Read(name, variable.type.ndim)

    def _read(self, variable: Variable) -> _Read:
        if variable not in self._known:
            number = constant_number(variable)
            node = variable.owner
            if number is not None and np.isfinite(number):
                self._known[variable] = _Read(Fraction(number), variable.type.ndim)
            elif node is None or variable in self.stops:
                self._known[variable] = self._leaf(variable)
            else:
                found = self._operation(variable, node)
                self._known[variable] = self._leaf(variable) if found is None else found
        return self._known[variable]

    def _operation(self, variable: Variable, node: Apply) -> _Read | None:
        op = node.op
        if not getattr(variable.type, "dtype", "").startswith(("float", "bool")):
            return None
        if isinstance(op, Elemwise):
            return self._elementwise(variable, node)
        if isinstance(op, DimShuffle):
            return self._transposed(self._read(node.inputs[0]), op.new_order)
        if isinstance(op, CAReduce) and op_name(op) in _REDUCTIONS:
            return self._reduced(node, op_name(op))
        if isinstance(op, Softmax | LogSoftmax):
            operand = self._read(node.inputs[0])
            if operand.dropped or operand.views:
                return None
            given = op.axis if isinstance(op.axis, tuple) else (op.axis,)
            everything = range(operand.ndim)
            axes = everything if op.axis is None else [everything[k] for k in given]
            name = "softmax" if isinstance(op, Softmax) else "log_softmax"
            return _Read((name, _negative(axes, operand.ndim), operand.term), operand.ndim)
        if isinstance(op, Dot) and all(v.type.ndim == 1 for v in node.inputs):
            one, other = map(self._read, node.inputs)
            if not (one.dropped or one.views or other.dropped or other.views):
                return _Read(("sum", (-1,), ("mul", one.term, other.term)), 0, (-1,))
        if isinstance(op, INDEXING):
            operand = self._read(node.inputs[0])
            if isinstance(operand.term, str):
                return None
            if not operand.dropped:
                return _Read(operand.term, operand.ndim, (), (*operand.views, node))
        return None

    def _elementwise(self, variable: Variable, node: Apply) -> _Read | None:
        kind = type(node.op.scalar_op)
        if kind is ps.Cast and node.inputs[0].type.dtype == variable.type.dtype:
            return self._read(node.inputs[0])
        if kind is ps.Reciprocal:
            inverse = self._aligned([None, node.inputs[0]], variable)
            if inverse is None:
                return None
            return self._joined("div", [Fraction(1), inverse[1].term], inverse)
        name = _OPERATORS.get(kind)
        if name is None:
            return None
        if name == "div" and (mean := self._mean(node)) is not None:
            return mean
        parts = self._aligned(node.inputs, variable)
        if parts is None:
            return None
        terms = [part.term for part in parts]
        if name == "pow" and terms[1] in (2, Fraction(1, 2), -1):
            name, terms = {
                2: ("sqr", terms[:1]),
                Fraction(1, 2): ("sqrt", terms[:1]),
                -1: ("div", [Fraction(1), terms[0]]),
            }[terms[1]]
        while len(terms) > 2 and name in ("add", "mul"):
            terms = [(name, terms[0], terms[1]), *terms[2:]]
        if name in ("add", "mul") and len(terms) == 1:
            return self._joined(None, terms, parts)
        return self._joined(name, terms, parts)

    @staticmethod
    def _joined(name: str | None, terms: list[Term], parts: list[_Read]) -> _Read:
        ndim = max(part.ndim for part in parts)
        [wide] = [p for p in parts if p.dropped or p.views][:1] or [parts[0]]
        term = terms[0] if name is None else (name, *terms)
        return _Read(term, max(ndim, wide.ndim), wide.dropped, wide.views)

    def _aligned(self, variables: Sequence[Variable | None], out: Variable) -> list[_Read] | None:
        """Return the operands of an elementwise operation with the same dropped axes and views."""
        parts = [_Read(Fraction(1), 0) if v is None else self._read(v) for v in variables]
        wide = [p for p in parts if p.dropped or p.views]
        if not wide:
            return parts
        goal = wide[0]
        aligned = []
        for variable, part in zip(variables, parts, strict=True):
            same = part.dropped == goal.dropped and _same_views(part.views, goal.views)
            if same or not self._varying(part.term):
                aligned.append(part)
                continue
            if variable is None or goal.views or part.views or part.dropped:
                return None
            full = goal.ndim + len(goal.dropped)
            kept = [k for k in range(full) if k - full not in goal.dropped]
            order = [kept.index(k) if k in kept else "x" for k in range(full)]
            moved = self._transposed(part, order)
            if moved is None or moved.dropped:
                return None
            aligned.append(_Read(moved.term, part.ndim, goal.dropped))
        return aligned

    def _varying(self, term: Term) -> bool:
        return any(self.leaves[name].varies for name in _names(term))

    def _transposed(self, operand: _Read, order: Sequence[Any]) -> _Read | None:
        """Return a part of the expression with its axes in another order."""
        if operand.views:
            return None
        if operand.dropped or not self._varying(operand.term):
            full = operand.ndim + len(operand.dropped)
            kept = [k for k in range(full) if k - full not in operand.dropped]
            of_full = ["x" if k == "x" else kept[k] for k in order]
            aligned = ["x"] * (full - len(of_full)) + of_full
            extra = len(aligned) - full
            same = all(k in ("x", j) for j, k in enumerate(aligned[extra:]))
            if same and all(k == "x" for k in aligned[:extra]):
                gone = {j - full for j, k in enumerate(aligned[extra:]) if k == "x"}
                if gone <= set(operand.dropped) and len(of_full) >= full:
                    return _Read(operand.term, len(of_full))
            return None
        n = operand.ndim
        if tuple(k for k in order if k != "x") == tuple(range(n)) and "x" not in order[-n:]:
            return _Read(operand.term, len(order))
        moved = self._moved(operand.term, n, order)
        return None if moved is None else _Read(moved, len(order))

    def _moved(self, term: Term, ndim: int, order: Sequence[Any]) -> Term:
        if isinstance(term, str):
            variable = self.leaves[term].variable
            if variable.type.ndim == 0:
                return term
            pads = ["x"] * (ndim - variable.type.ndim)
            full = variable.dimshuffle(*pads, *range(variable.type.ndim)) if pads else variable
            return self._leaf(full.dimshuffle(*order)).term
        if not isinstance(term, tuple):
            return term
        head, *operands = term
        if OPERATIONS[head].reduces:
            places = [list(order).index(a + ndim) for a in operands[0] if a + ndim in order]
            if len(places) < len(operands[0]):
                return None
            rest = [self._moved(x, ndim, order) for x in operands[1:]]
            return None if None in rest else (head, _negative(places, len(order)), *rest)
        rest = [self._moved(x, ndim, order) for x in operands]
        return None if None in rest else (head, *rest)

    def _reduced(self, node: Apply, name: str) -> _Read | None:
        (x,) = node.inputs
        operand = self._read(x)
        if operand.views or not x.type.dtype.startswith("float"):
            return None
        axes = tuple(range(x.type.ndim)) if node.op.axis is None else node.op.axis
        full = operand.ndim + len(operand.dropped)
        kept = [k for k in range(full) if k - full not in operand.dropped]
        places = [kept[k] - full for k in axes]
        pairs = zip(places, axes, strict=True)
        real = tuple(place for place, k in pairs if not x.type.broadcastable[k])
        term = (_REDUCTIONS[name], tuple(sorted(real)), operand.term) if real else operand.term
        dropped = tuple(sorted((*operand.dropped, *places)))
        return _Read(term, x.type.ndim - len(axes), dropped)

    def _mean(self, node: Apply) -> _Read | None:
        """Return a mean, where an operation divides a sum by the number of its terms."""
        total, counts = node.outputs[0], []
        while scalar_class(total) is ps.TrueDiv and _is_length(total.owner.inputs[1]):
            total, count = total.owner.inputs
            counts.append(float(np.ravel(self.value(count))[0]))
        core = viewed(total)
        if not counts or reduction_of(core, "sum") is None:
            return None
        operand = self._read(total)
        if operand.views or not isinstance(operand.term, tuple) or operand.term[0] != "sum":
            return None
        [x], reduced = core.owner.inputs, core.owner.op.axis
        shape = np.shape(self.value(x))
        lengths = shape if reduced is None else [shape[k] for k in reduced]
        if np.prod(counts) != np.prod(lengths):
            return None
        return _Read(("mean", *operand.term[1:]), operand.ndim, operand.dropped)


def text_of(variable: Variable, known: Mapping[Variable, str]) -> str:
    """Return a variable as code that can be run, where the texts of some others are known."""
    text = name_of(variable, 12, known.get)
    return re.sub(r"(?<![\w.])([a-z]\w*)\(", _called, text)


def _called(call: re.Match) -> str:
    name = call[1]
    module = "pt" if hasattr(pt, name) else "pt.special" if hasattr(pt.special, name) else ""
    return f"{module}.{name}(" if module else call[0]


def _negative(axes: Sequence[int], ndim: int) -> Axes:
    return tuple(sorted(axis - ndim for axis in axes))


def _names(term: Term) -> set[str]:
    if isinstance(term, tuple):
        start = 2 if OPERATIONS[term[0]].reduces else 1
        return set().union(*map(_names, term[start:]))
    return {term} if isinstance(term, str) else set()


def _same_views(one: Sequence[Apply], other: Sequence[Apply]) -> bool:
    return len(one) == len(other) and all(
        a.op == b.op and a.inputs[1:] == b.inputs[1:] for a, b in zip(one, other, strict=True)
    )


def _is_length(variable: Variable) -> bool:
    """Whether a number is computed from shapes only."""
    if isinstance(variable, Constant):
        return False
    node = variable.owner
    if node is None:
        return False
    if isinstance(node.op, Shape | Shape_i):
        return True
    plain = [v for v in node.inputs if not isinstance(v, Constant)]
    return bool(plain) and all(map(_is_length, plain))
