"""Compute the logarithm of an expression from the logarithms of its parts.

``log(sum(p * exp(x)))`` is -inf where ``exp(x)`` underflows.  ``logsumexp(log(p) + x)`` is not.
Each rule writes code, which is run for a trial and printed in the user's names.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
import pytensor.scalar as ps
import pytensor.scalar.math as psm
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.replace import clone_replace
from pytensor.scan.op import Scan
from pytensor.tensor.basic import ExtractDiag, Join, MakeVector
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import CAReduce, DimShuffle
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.math import Dot
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.special import Softmax

from theanoguard._graph import (
    VIEWS,
    applied_to,
    constant_number,
    is_buffer,
    operand_of,
    scalar_class,
    scan_of,
    viewed,
    with_number,
)
from theanoguard._naming import INDEXING, subscript_text
from theanoguard._pytensor import thawed_graph
from theanoguard.explain.advice.exact import LOGARITHMS, arguments, as_softmax
from theanoguard.explain.advice.source_edit import bare, filled
from theanoguard.explain.advice.written import STABLE
from theanoguard.operations.names import INFIX, op_name, shown_op
from theanoguard.stable import forms
from theanoguard.stable.patterns import behind_views, rebuild

MAX_VARIABLES = 60
"""Largest number of variables of an expression whose logarithms are computed from their parts."""

MAX_NAMES = 24  # largest number of operands in a line of code

_NAME = re.compile(r"\b(?:log|plain|call)_\d+\b")
_MODULES = {"pt": pt, "np": np, "stable": forms}

Rule = Callable[[Variable, "InLogs"], tuple[str, str] | None]
"""Returns what is computed in place of an operation, and its code; None if nothing can be."""


class InLogs:
    """The logarithm of a variable of the graph as built, from the logarithms of its parts.

    `known`: variables whose logarithms are known, and the variables that hold these.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> x, w = pt.dvectors("x", "w")
    >>> found = InLogs((w * pt.exp(-x)).sum())
    >>> [what for what, _ in found.parts]
    ['logsumexp for sum', '+ for *', 'the exponent for exp']
    >>> found.code()[0]
    'theanoguard.stable.logsumexp(pt.log(operand_0) + operand_1)'
    """

    def __init__(
        self, variable: Variable, known: Mapping[Variable, Variable] = MappingProxyType({})
    ):
        self._names: dict[Any, str] = {}
        self._code: dict[str, str] = {}
        self._what: dict[str, tuple[str, Variable]] = {}
        self._operands: dict[str, Any] = {}
        self._loops: dict[str, InLogs] = {}
        for v, own in known.items():
            name = self._names["log", v] = f"log_{len(self._names)}"
            self._code[name] = self.plain(own)
        self._known = set(self._code)
        self._root = self.log(variable)

    def log(self, variable: Variable) -> str:
        """Return the name of the logarithm of a variable in code."""
        key = "log", variable
        if key not in self._names:
            name = self._names[key] = f"log_{len(self._names)}"
            number = constant_number(variable)
            direct = f"pt.log({self.plain(variable)})"
            if number is not None and variable.type.ndim == 0 and number > 0:
                direct = f"np.log({number!r})"
            self._code[name] = direct
            rule = _rule_of(variable) if len(self._code) <= MAX_VARIABLES else None
            found = rule and rule(variable, self)
            if found:
                what, self._code[name] = found
                if what:
                    self._what[name] = f"{what} for {_shown(variable)}", variable
        return self._names[key]

    def plain(self, variable: Variable) -> str:
        """Return the name of a variable in code; a number for a constant."""
        number = constant_number(variable)
        if number is not None and variable.type.ndim == 0:
            return repr(number)
        return self._named("plain", variable)

    def of_shape(self, variable: Variable) -> str:
        """Return the name of an array of the shape of a variable that code has anyway."""
        code = self._code[self.log(variable)]
        return code if code in self._operands else self.plain(variable)

    def call(self, function: Callable) -> str:
        """Return the name of a function, which gets ``new`` first.  Its code cannot be printed."""
        return self._named("call", function)

    def loop(self, function: Callable, inside: "InLogs") -> str:
        """Return what :meth:`call` returns, for a loop whose step takes other logarithms."""
        name = self.call(function)
        self._loops[name] = inside
        return name

    def _named(self, kind: str, value: Any) -> str:
        if (kind, value) not in self._names:
            name = self._names[kind, value] = f"{kind}_{len(self._names)}"
            self._operands[name] = value
        return self._names[kind, value]

    def is_changed(self, variable: Variable) -> bool:
        """Return whether the logarithm of a variable is not only computed from its value."""
        reached = self._reached(self.log(variable))
        return any(name in self._what or name in self._known for name in reached)

    def _reached(self, name: str) -> list[str]:
        """Return the names that the code of a name uses, the name first."""
        found = {name: None}
        for each in (todo := [name]):
            new = [n for n in _NAME.findall(self._code.get(each, "")) if n not in found]
            found.update(dict.fromkeys(new))
            todo += new
        return list(found)

    @property
    def parts(self) -> tuple[tuple[str, Variable], ...]:
        """What is computed in place of which variable; empty if nothing changes."""
        found: list[tuple[str, Variable]] = []
        for name in self._reached(self._root):
            found += [self._what[name]] if name in self._what else []
            found += self._loops[name].parts if name in self._loops else ()
        return tuple(dict.fromkeys(found))

    def build(self, new: Callable[[Variable], Variable]) -> Variable:
        """Compute it, as :func:`theanoguard.stable.patterns.rebuild` asks."""
        made: dict[str, Any] = {}

        def value(name: str) -> Any:
            if name not in made:
                if name in self._operands:
                    operand = self._operands[name]
                    made[name] = partial(operand, new) if name[:4] == "call" else new(operand)
                else:
                    names = {n: value(n) for n in _NAME.findall(self._code[name])}
                    made[name] = eval(self._code[name], {**_MODULES, **names})  # noqa: S307
            return made[name]

        return value(self._root)

    def code(self) -> tuple[str, dict[str, Variable]] | None:
        """Return one expression, and the operands that it names; None if it cannot be printed."""
        operands: dict[Variable, str] = {}
        left = [MAX_NAMES]

        def text_of(name: str) -> str:
            if name in self._code:
                names = {n: text_of(n) for n in _NAME.findall(self._code[name])}
                return filled(self._code[name], names)
            left[0] -= 1
            if left[0] < 0 or name[:5] == "call_":
                raise _NotWritten
            return operands.setdefault(self._operands[name], f"operand_{len(operands)}")

        try:
            text = text_of(self._root)
        except _NotWritten:
            return None
        text = re.sub(r"\bstable\.", f"{STABLE}.", text)
        return text, {name: v for v, name in operands.items()}


class _NotWritten(Exception):
    """Raised where an operation has no code that can be printed."""


def _rule_of(variable: Variable) -> Rule | None:
    op = getattr(variable.owner, "op", None)
    op = op.core_op if isinstance(op, Blockwise) and isinstance(op.core_op, Dot) else op
    rules = (rule for kind, rule in _OF_OPS.items() if isinstance(op, kind))
    return _OF_SCALARS.get(scalar_class(variable)) or next(rules, None)


def _shown(variable: Variable) -> str:
    if isinstance(variable.owner.op, Scan):
        return "the state of the loop"
    name = op_name(variable.owner.op)
    return INFIX.get(name) or shown_op(name)


def _direct(what: str, code: str) -> Rule:
    """Return the rule for a function of one operand, which is ``{x}`` in the code."""
    return lambda variable, logs: (
        what,
        code.replace("{x}", logs.plain(variable.owner.inputs[0])).replace("{pt}", "pt"),
    )


def _operands(variable: Variable) -> list[Variable]:
    """Return the operands of an operation by element, without axes that only broadcast."""
    inputs = variable.owner.inputs
    bare = [_without_axes(v) for v in inputs]
    whole = any(v.type.ndim == variable.type.ndim for v in bare)
    return bare if whole else inputs


def _without_axes(variable: Variable) -> Variable:
    """Return what a variable shows with more axes of length 1 at the front."""
    node = variable.owner
    if node is None or not isinstance(node.op, DimShuffle):
        number = constant_number(variable)
        return variable if number is None else pt.constant(number, dtype=variable.type.dtype)
    order, n = node.op.new_order, node.inputs[0].type.ndim
    added = len(order) - n
    is_it = tuple(order) == ("x",) * added + tuple(range(n))
    return _without_axes(node.inputs[0]) if is_it else variable


def _product(variable: Variable, logs: InLogs) -> tuple[str, str]:
    return "+", " + ".join(map(logs.log, _operands(variable)))


def _quotient(variable: Variable, logs: InLogs) -> tuple[str, str]:
    matched = as_softmax(variable)
    if matched is not None:
        x, axis = matched
        return "log_softmax", f"pt.special.log_softmax({arguments(logs.plain(x), axes=axis)})"
    above, below = _operands(variable)
    mean = viewed(above).owner
    if mean is not None and isinstance(mean.op, CAReduce) and _is_length(below):
        axes, x = mean.op.axis, logs.of_shape(mean.inputs[0])
        if axes is None or len(axes) == 1:
            size = f"{x}.size" if axes is None else f"{x}.shape[{axes[0]}]"
            return "-", f"{logs.log(above)} - pt.log({size})"
    return "-", f"{logs.log(above)} - {logs.log(below)}"


def _is_length(variable: Variable) -> bool:
    """Return whether a variable is a length, or a product of lengths."""
    v = viewed(variable)
    node = v.owner
    if node is None or isinstance(node.op, Shape | Shape_i):
        return node is not None
    if isinstance(node.op, INDEXING) or scalar_class(v) is ps.Cast:
        return _is_length(node.inputs[0])
    return scalar_class(v) is ps.Mul and all(map(_is_length, node.inputs))


def _sum(variable: Variable, logs: InLogs) -> tuple[str, str] | None:
    """``log(a + b)``, for which ``log(b) + softplus(log(a) - log(b))`` is exact."""
    terms = sorted(_operands(variable), key=lambda v: constant_number(v) is None)
    if len(terms) > MAX_TERMS or not any(map(logs.is_changed, terms)):
        return None
    code = logs.log(terms[-1])
    for term in terms[-2::-1]:
        other = logs.log(term)
        is_one = constant_number(term) == 1
        code = f"pt.softplus({code})" if is_one else f"{other} + pt.softplus({code} - {other})"
    return ("softplus" if constant_number(terms[0]) == 1 else "logaddexp"), code


MAX_TERMS = 3  # largest number of terms of a sum that is written with ``+``


def _difference(variable: Variable, logs: InLogs) -> tuple[str, str] | None:
    """``log(a - b)`` from the logarithms of a and b, which are positive."""
    one, x = (_unbounded(v, logs) for v in _operands(variable))
    ends = [_log_odds(v, logs) for v in (one, x)]
    if None not in ends:
        high, low = ends
        code = f"pt.log1mexp({low} - {high}) - pt.softplus(-({high})) - pt.softplus({low})"
        return "log1mexp", code
    if constant_number(one) != 1:
        if not (logs.is_changed(one) and logs.is_changed(x)):
            return None
        return "log1mexp", f"{logs.log(one)} + pt.log1mexp({logs.log(x)} - {logs.log(one)})"
    if ends[1] is not None:
        return "-softplus", f"-pt.softplus({ends[1]})"
    node = x.owner
    if node is not None and isinstance(node.op, INDEXING):
        return _moved_from(node, logs.log(1 - node.inputs[0]), logs)
    return ("log1mexp", f"pt.log1mexp({logs.log(x)})") if logs.is_changed(x) else None


def _log_odds(variable: Variable, logs: InLogs) -> str | None:
    """Return ``z`` in code if a variable is ``sigmoid(z)``, however it is written."""
    kind, node = scalar_class(variable), variable.owner
    if kind is psm.Sigmoid:
        return logs.plain(node.inputs[0])
    u = _of_half_tanh(variable)
    if u is not None:
        return f"2 * {logs.plain(u)}"
    if kind is not ps.TrueDiv:
        return None
    above, below = map(_without_axes, node.inputs)
    one, grown = with_number(below, ps.Add) or (None, below)
    if one != 1 or scalar_class(grown) is not ps.Exp:
        return None
    x = logs.plain(grown.owner.inputs[0])
    if constant_number(above) == 1:
        return f"-{x}"
    is_same = scalar_class(above) is ps.Exp and above.owner.inputs == grown.owner.inputs
    return x if is_same else None


def _of_half_tanh(variable: Variable) -> Variable | None:
    """Return ``u`` if a variable is ``(1 + tanh(u)) / 2``, or ``0.5 + 0.5 * tanh(u)``."""
    total, factor = _scaled(variable)
    number, term = with_number(total, ps.Add) or (0.0, total)
    inner, size = _scaled(term)
    return operand_of(inner, ps.Tanh) if number == size and number * factor == 0.5 else None


def _scaled(variable: Variable) -> tuple[Variable, float]:
    """Return a variable without a constant factor, and the factor."""
    kind, node = scalar_class(variable), variable.owner
    if kind is ps.TrueDiv and (number := constant_number(node.inputs[1])):
        return node.inputs[0], 1 / number
    factor, rest = with_number(variable, ps.Mul) or (1.0, variable)
    return rest, factor


def _unbounded(variable: Variable, logs: InLogs) -> Variable:
    """Return what ``clip(x, 0, 1)`` bounds, if that is a sigmoid or a view of one."""
    if scalar_class(variable) is ps.Clip:
        inner, *bounds = variable.owner.inputs
        if [constant_number(v) for v in bounds] == [0, 1]:
            odds = _log_odds(behind_views(inner)[0], logs)
            return variable if odds is None else inner
    return variable


def _bounded(variable: Variable, logs: InLogs) -> tuple[str, str] | None:
    inner = _unbounded(variable, logs)
    return None if inner is variable else ("", logs.log(inner))


def _or_sigmoid(rule: Rule) -> Rule:
    """Return a rule that first looks whether an expression is a sigmoid."""

    def with_sigmoid(variable: Variable, logs: InLogs) -> tuple[str, str] | None:
        odds = _log_odds(variable, logs)
        return rule(variable, logs) if odds is None else ("-softplus", f"-pt.softplus(-({odds}))")

    return with_sigmoid


def _chosen(variable: Variable, logs: InLogs) -> tuple[str, str] | None:
    condition, *branches = _operands(variable)
    if not any(map(logs.is_changed, branches)):
        return None
    arguments = [logs.plain(condition), *map(logs.log, branches)]
    return "", f"pt.switch({', '.join(arguments)})"


def _power(variable: Variable, logs: InLogs) -> tuple[str, str]:
    base, exponent = _operands(variable)
    number = constant_number(exponent)
    log = logs.log(base) if number is None or number % 2 else _of_either_sign(base, logs)
    return "*", f"{logs.plain(exponent)} * {log}"


def _square(variable: Variable, logs: InLogs) -> tuple[str, str]:
    return "*", f"2 * {_of_either_sign(variable.owner.inputs[0], logs)}"


def _of_either_sign(base: Variable, logs: InLogs) -> str:
    """Return the logarithm of the absolute value of what is raised to an even power."""
    return logs.log(base) if logs.is_changed(base) else f"pt.log(abs({logs.plain(base)}))"


def _root(variable: Variable, logs: InLogs) -> tuple[str, str]:
    return "", f"0.5 * {logs.log(variable.owner.inputs[0])}"


def _reduction(variable: Variable, logs: InLogs) -> tuple[str, str] | None:
    node = variable.owner
    inner, axes = logs.log(node.inputs[0]), node.op.axis
    if isinstance(node.op.scalar_op, ps.Add):
        return "logsumexp", f"stable.logsumexp({arguments(inner, axes=axes)})"
    if isinstance(node.op.scalar_op, ps.Mul):
        return "the sum of logs", f"{inner}.sum({arguments(axes=axes)})"
    return None


def _softmax(variable: Variable, logs: InLogs) -> tuple[str, str]:
    x, axes = logs.plain(variable.owner.inputs[0]), variable.owner.op.axis
    return "log_softmax", f"pt.special.log_softmax({arguments(x, axes=axes)})"


def _cumulated(variable: Variable, logs: InLogs) -> tuple[str, str] | None:
    node = variable.owner
    inner, axis = logs.log(node.inputs[0]), node.op.axis
    if node.op.mode == "mul":
        return "cumsum of logs", f"pt.cumsum({arguments(inner, axes=axis)})"
    if variable.type.ndim != 1:
        return None
    some = f'pt.switch(pt.tri({inner}.shape[0]), {inner}, float("-inf"))'
    what = "logsumexp(where(tri(n, n), x, -inf), axis=1)"
    return what, f"stable.logsumexp({some}, axis=1)"


def _matrix_product(variable: Variable, logs: InLogs) -> tuple[str, str] | None:
    """A product with a vector, as a matrix with one row or column: it has few terms."""
    left, right = variable.owner.inputs
    if left.ndim != 2 or right.ndim != 2:
        return None
    is_row, is_column = left.type.shape[0] == 1, right.type.shape[1] == 1
    a, b = logs.log(left), logs.log(right)
    if is_row and is_column:
        return "logsumexp", f"stable.logsumexp({a}[0] + {b}[:, 0])[None][:, None]"
    if is_row:
        return "logsumexp", f"stable.logsumexp({a}[0][:, None] + {b}, axis=0)[None, :]"
    if is_column:
        return "logsumexp", f"stable.logsumexp({a} + {b}[:, 0], axis=1)[:, None]"
    return None


def _moved(variable: Variable, logs: InLogs) -> tuple[str, str] | None:
    """Views and indexing: the logarithm is moved in the same way."""
    node = variable.owner
    if not logs.is_changed(node.inputs[0]):
        return None
    return _moved_from(node, logs.log(node.inputs[0]), logs)


def _moved_from(node: Any, inner: str, logs: InLogs) -> tuple[str, str]:
    if isinstance(node.op, INDEXING) and all(hasattr(v.type, "dtype") for v in node.inputs):
        return "", subscript_text(node, [inner, *map(logs.plain, node.inputs[1:])])
    if isinstance(node.op, DimShuffle):
        return "", inner + axes_text(node.op.new_order, node.inputs[0].type.ndim)
    if isinstance(node.op, ExtractDiag):
        which = node.op.offset, node.op.axis1, node.op.axis2
        others = "" if which == (0, 0, 1) else "".join(f", {i}" for i in which)
        return "", f"pt.diagonal({inner}{others})"
    operands = "".join(f", {logs.plain(v)}" for v in node.inputs[1:])
    return "", f"{logs.call(partial(_again, node))}({inner}{operands})"


def _again(node: Any, new: Any, *inputs: Any) -> Variable:
    """Return the result of a node for other inputs, in code."""
    return applied_to(node, list(map(pt.as_tensor, inputs)))[0]


def axes_text(order: Sequence[int | str], ndim: int) -> str:
    """Return what moves the axes of an expression.

    Examples
    --------
    >>> axes_text(("x", 0), 1), axes_text((1, 0), 2), axes_text((0,), 2)
    ('[None, :]', '.T', '[:, 0]')
    """
    kept = [i for i in order if i != "x"]
    if list(order) == list(range(ndim))[::-1] and ndim > 1:
        return ".T"
    if kept == list(range(ndim)):
        return f"[{', '.join('None' if i == 'x' else ':' for i in order)}]" if order else ""
    if kept == sorted(kept) and len(kept) == len(order):
        entries = [":" if i in kept else "0" for i in range(ndim)]
        while entries[-1] == ":":
            entries.pop()
        return f"[{', '.join(entries)}]"
    return f".dimshuffle({', '.join(map(repr, order))})"


def _put_together(variable: Variable, logs: InLogs) -> tuple[str, str] | None:
    node = variable.owner
    is_join = isinstance(node.op, Join)  # (the first input of a Join may be the axis)
    arrays = [v for v in node.inputs if not is_join or v.type.ndim]
    if not any(map(logs.is_changed, arrays)):
        return None
    listed = ", ".join(map(logs.log, arrays))
    if not is_join:
        return "", f"pt.stack([{listed}])"
    axis = getattr(node.op, "axis", None)
    axis = constant_number(node.inputs[0]) if axis is None else axis
    return "", f"pt.concatenate([{listed}], axis={axis})"


def _state(variable: Variable, logs: InLogs) -> tuple[str, str] | None:
    """The states of a loop: a loop computes their logarithms."""
    node = variable.owner
    op, graph = node.op, thawed_graph(node.op)
    states = op.outer_sitsot_outs(node.outputs)
    if variable not in states:
        return None
    k = states.index(variable)
    state, after = op.inner_sitsot(graph.inputs)[k], op.inner_sitsot_outs(graph.outputs)[k]
    buffer = op.outer_sitsot(node.inputs)[k]
    if not is_buffer(buffer):
        return None
    own = state.type()
    inside = InLogs(after, {state: own})
    if not inside.is_changed(after):
        return None

    def build(new: Callable, first: Any) -> Variable:
        outputs = list(graph.outputs)
        before = (*op.inner_mitmot_outs(outputs), *op.inner_mitsot_outs(outputs))
        outputs[len(before) + k] = last = pt.tensor_copy(after)  # (other outputs may read `after`)
        outputs = clone_replace(rebuild(outputs, {last: inside.build}), {state: pt.exp(own)})
        inputs = [own if v is state else v for v in graph.inputs]
        old, _, *rest = buffer.owner.inputs
        (started,) = applied_to(buffer.owner, [new(old), first, *map(new, rest)], strict=True)
        outer = [started if v is buffer else new(v) for v in node.inputs]
        return scan_of(op, inputs, outputs).make_node(*outer).outputs[variable.index]

    return "logarithms", f"{logs.loop(build, inside)}({logs.log(buffer.owner.inputs[1])})"


_OF_SCALARS: dict[Any, Rule] = {
    **{
        kind: _direct(bare(code.replace("{pt}.", "").format(x="x")), code)
        for kind, code in LOGARITHMS.items()
    },
    ps.Exp: _direct("the exponent", "{x}"),
    psm.Sigmoid: _direct("-softplus(-x)", "-pt.softplus(-{x})"),
    ps.Sinh: _direct(  # for x > 0
        "x + log(-expm1(-2 * x)) - log(2)", "{x} + pt.log(-pt.expm1(-2 * {x})) - np.log(2)"
    ),
    ps.Cosh: _direct(
        "abs(x) + softplus(-2 * abs(x)) - log(2)",
        "abs({x}) + pt.softplus(-2 * abs({x})) - np.log(2)",
    ),
    ps.Mul: _or_sigmoid(_product),
    ps.TrueDiv: _or_sigmoid(_quotient),
    ps.Add: _or_sigmoid(_sum),
    ps.Clip: _bounded,
    ps.Sub: _difference,
    ps.Switch: _chosen,
    ps.Pow: _power,
    ps.Sqr: _square,
    ps.Sqrt: _root,
}
"""The rules, by the scalar operation that computes a variable."""

_OF_OPS: dict[Any, Rule] = {
    Softmax: _softmax,
    CAReduce: _reduction,
    CumOp: _cumulated,
    Dot: _matrix_product,
    (*VIEWS, *INDEXING, ExtractDiag): _moved,
    (Join, MakeVector): _put_together,
    Scan: _state,
}
"""The rules for other operations."""
