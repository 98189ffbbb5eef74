"""The formulas that stable functions can replace.

Each pattern takes a variable and the ``GraphBounds`` of the graph.  It returns None, or the name of
a form and a function that builds it.
"""

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import toposort
from pytensor.scalar import math as psm
from pytensor.tensor.special import Softmax

from theanoguard._graph import (
    VIEWS,
    applied_to,
    constant_number,
    operand_of,
    reduction_of,
    scalar_class,
    viewed,
    with_number,
)
from theanoguard._naming import INDEXING
from theanoguard._pytensor import increment_ops
from theanoguard._steps import foreign
from theanoguard.operations.facts import is_float
from theanoguard.stable import forms

New = Callable[[Variable], Variable]  # gives what stands for a variable of the graph in the copy
Build = Callable[[New], Variable]  # computes the form that replaces a variable
Match = tuple[str, Build]  # the name of a form, and what builds it


def rebuild(outputs: Sequence[Variable], builders: Mapping[Variable, Build]) -> list[Variable]:
    """Copy a graph with other ways to compute some of its variables.

    - `builders`: ``build(new)`` computes the variable, where ``new(v)`` stands for a variable of
      the graph.
    - Returns: the outputs of the copy, of the same types; it shares what does not change.
    - Raises ``ForeignError``: if an operation of the user's does not take its new operands, or if a
      form has another number of axes.
    """
    made: dict[Variable, Variable] = {}

    def new(variable: Variable) -> Variable:
        return made.get(variable, variable)

    made |= {v: build(new) for v, build in builders.items() if v.owner is None}
    nodes = list(toposort(list(outputs)))
    known = {v for node in nodes for v in (*node.inputs, *node.outputs)}
    for node in nodes:
        inputs = [new(v) for v in node.inputs]
        copies = applied_to(node, inputs, strict=True) if inputs != node.inputs else node.outputs
        made.update(zip(node.outputs, copies, strict=True))
        for variable in node.outputs:
            if variable in builders:
                form = builders[variable](new)
                with foreign():
                    form = variable.type.filter_variable(pt.cast(form, variable.type.dtype))
                if form.owner is not None and form not in known and form not in made.values():
                    form.name = variable.name
                made[variable] = form
    return [new(v) for v in outputs]


def _logarithm(variable: Variable, bounds: Any) -> Match | None:
    """log of softmax, sums of exp, sigmoid, 1 - sigmoid, quotients, products; any other log."""
    (operand,) = variable.owner.inputs
    core, chain = behind_views(operand)
    node = core.owner
    if node is not None and isinstance(node.op, Softmax):
        h, axis = node.inputs[0], node.op.axis
        return "log_softmax", lambda new: through_views(chain, forms.log_softmax(new(h), axis), new)
    if (matched := _as_softmax(core)) is not None:
        h, axes = matched
        return "log_softmax", lambda new: through_views(chain, forms.log_softmax(new(h), axes), new)
    if _is_sum_of(core, ps.Exp):
        (x,), axes = node.inputs[0].owner.inputs, node.op.axis
        return "logsumexp", lambda new: through_views(chain, forms.logsumexp(new(x), axes), new)
    if (z := logistic(core)) is not None:
        is_plain = psm.Sigmoid in map(scalar_class, (core, *node.inputs))
        return "-softplus" if is_plain else "difference of logs", _minus_softplus(z, chain)
    one, other = with_number(core, ps.Add) or (0, core)
    if one == 1 and scalar_class(other) is ps.Exp:
        return "softplus", _softplus_of(other, chain)
    if scalar_class(core) is ps.TrueDiv and (difference := _log_of_quotient(core, bounds)):
        return "difference of logs", lambda new: through_views(chain, difference(new), new)
    if log := _log_of(operand, bounds):
        is_product = scalar_class(core) is ps.Mul or reduction_of(core, "prod")
        return "sum of logs" if is_product else "log of a sum of exps", log
    if reduction_of(core, "prod") and bounds[node.inputs[0]].lo >= 0:
        (factors,), axes = node.inputs, node.op.axis
        return "sum of logs", lambda new: through_views(chain, pt.log(new(factors)).sum(axes), new)
    if bounds[operand].positive:
        return None
    return "log", lambda new: forms.log(new(operand))


def _logarithm_1p(variable: Variable, bounds: Any) -> Match | None:
    """log1p(exp(x)) and log1p(-sigmoid(z))."""
    core, chain = behind_views(variable.owner.inputs[0])
    if scalar_class(core) is ps.Exp:
        return "softplus", _softplus_of(core, chain)
    opposite = operand_of(core, ps.Neg)
    if opposite is not None and (z := logistic(opposite)) is not None:
        return "-softplus", _minus_softplus(lambda new: -z(new), chain)
    return None


def _softplus_of(exponential: Variable, chain: list[Apply]) -> Build:
    (x,) = exponential.owner.inputs
    return lambda new: through_views(chain, pt.softplus(new(x)), new)


def _minus_softplus(z: Build, chain: Sequence[Apply] = ()) -> Build:
    """The logarithm of sigmoid(z)."""
    return lambda new: through_views(chain, -pt.softplus(-z(new)), new)


def logistic(variable: Variable) -> Build | None:
    """Return what builds z where a variable is sigmoid(z), or 1 - sigmoid(-z), also by hand.

    The default mode finds a stable form for what is computed from it only where it can tell it.
    """
    if (z := operand_of(variable, psm.Sigmoid)) is not None:
        return lambda new: pt.cast(new(z), variable.type.dtype)
    kind = scalar_class(variable)
    if kind is ps.Sub and constant_number(variable.owner.inputs[0]) == 1:
        inner = logistic(variable.owner.inputs[1])
        return inner and (lambda new: -inner(new))
    if kind is not ps.TrueDiv:
        return None
    term, total = variable.owner.inputs
    terms = total.owner.inputs if scalar_class(total) is ps.Add else []
    own = next((v for v in terms if same(term, v) or _is_one(term) and _is_one(v)), None)
    if own is None or len(terms) != 2 or total.type.ndim != variable.type.ndim:
        return None
    x, y = _exponent(own), _exponent(terms[terms[0] is own])
    return x and y and (lambda new: x(new) - y(new))


def _is_one(variable: Variable) -> bool:
    return constant_number(viewed(variable)) == 1


def _exponent(variable: Variable) -> Build | None:
    """Return what builds x where a variable is exp(x), which is 0 for the number 1."""
    dtype = variable.type.dtype
    if _is_one(variable):
        return lambda new: pt.cast(0, dtype)
    core, chain = behind_views(variable)
    x = operand_of(core, ps.Exp)
    if x is None:
        return None
    return lambda new: through_views(chain, pt.cast(new(x), dtype), new)


def _root(variable: Variable, bounds: Any) -> Match | None:
    """sqrt(sum(x ** 2)), sqrt(exp(x)); any other root."""
    (operand,) = variable.owner.inputs
    core, chain = behind_views(operand)
    lo, hi = bounds[operand].lo, bounds[operand].hi
    is_normal = lo >= np.finfo(variable.type.dtype).tiny  # (some backends flush smaller numbers)
    if scalar_class(core) is ps.Exp and not (is_normal and np.isfinite(hi)):
        (x,) = core.owner.inputs
        return "exp of a half", lambda new: through_views(chain, pt.exp(new(x) / 2), new)
    if bounds[operand].positive:
        return None
    if core.owner is not None and _is_sum_of(core, ps.Sqr, ps.Pow, ps.Mul):
        axes = core.owner.op.axis
        x = squared_base(core.owner.inputs[0])
        if x is not None and is_float(x):  # (the square of an int8 is one)
            return "norm", lambda new: through_views(chain, forms.norm(new(x), axes), new)
    return "sqrt", lambda new: forms.sqrt(new(operand))


def _quotient(variable: Variable, bounds: Any) -> Match | None:
    """exp(x) / sum(exp(x)), other quotients of exponentials with factors; any other quotient."""
    x, y = variable.owner.inputs
    matched = _as_softmax(variable)
    if matched is not None and not (bounds[y].positive and np.isfinite(bounds[x].hi)):
        h, axes = matched
        return "softmax", lambda new: forms.softmax(new(h), axes)
    is_safe = bounds[y].positive and np.isfinite([bounds[x].hi, bounds[y].hi]).all()
    t = of_tanh(viewed(x), viewed(y))
    if t is not None and t.type.ndim == variable.type.ndim and is_float(t):
        return "tanh", lambda new: pt.tanh(new(t))
    if not is_safe and (z := logistic(variable)):
        return "exp of a difference", lambda new: pt.exp(_minus_softplus(z)(new))
    if not is_safe and (difference := _exp_of_difference(x, y, bounds)):
        return "exp of a difference", difference
    if not bounds[y].zero:
        return None
    return "divide", lambda new: forms.divide(new(x), new(y))


def _complement(variable: Variable, bounds: Any) -> Match | None:
    """1 - sigmoid(z), where the sigmoid is written by hand, so that it is replaced as well."""
    z = logistic(variable)
    if z is None or scalar_class(variable.owner.inputs[1]) is psm.Sigmoid:
        return None
    return "exp of a difference", lambda new: pt.exp(_minus_softplus(z)(new))


def _exp_of_difference(x: Variable, y: Variable, bounds: Any) -> Build | None:
    """exp(a) / exp(b), where each may be a sum, with factors in the dividend or in its terms."""
    bottom = _log_of(y, bounds)
    axes: Sequence[int] = ()
    top = _log_of(x, bounds) or _log_of_positive(x, bounds, y.type.dtype)
    factors: list[Variable] = []
    if top is None and reduction_of(x, "sum"):
        node = x.owner
        axes = range(node.inputs[0].type.ndim) if node.op.axis is None else node.op.axis
        (x,) = node.inputs
    if top is None:
        factors, x = _factors(x)
        top = _log_of(x, bounds)
    if top is None or bottom is None:
        return None

    def build(new: New) -> Variable:
        ratio = pt.exp(top(new) - pt.expand_dims(bottom(new), tuple(axes)))
        product = math.prod([ratio, *map(new, factors)])
        return product.sum(tuple(axes)) if axes else product

    return build


def _factors(variable: Variable) -> tuple[list[Variable], Variable]:
    """Return the other factors of a product, and its exponential; without one, the variable."""
    if scalar_class(variable) is ps.Mul:
        factors = list(variable.owner.inputs)
        exponentials = [v for v in factors if scalar_class(behind_views(v)[0]) is ps.Exp]
        if exponentials:
            factors.remove(exponentials[0])
            return factors, exponentials[0]
    return [], variable


def _log_of(variable: Variable, bounds: Any) -> Build | None:
    """Return what builds the logarithm of exp(x), of positive multiples of it, and of their sums.

    They may be behind views and indexing.
    """
    core, chain = behind_views(variable)
    kind = scalar_class(core)
    if kind is ps.Exp:
        return _exponent(variable)
    if (z := logistic(core)) is not None:
        return _minus_softplus(z, chain)
    if core.owner is not None and isinstance(core.owner.op, increment_ops):
        totals = _log_of_totals(core.owner, bounds)
        return totals and (lambda new: through_views(chain, totals(new), new))
    if reduction_of(core, "prod"):
        factor, axes = _log_of(core.owner.inputs[0], bounds), core.owner.op.axis
        return factor and (lambda new: through_views(chain, factor(new).sum(axes), new))
    if reduction_of(core, "sum"):
        term, axes = _log_of(core.owner.inputs[0], bounds), core.owner.op.axis
        if term is None:
            return None
        return lambda new: through_views(chain, forms.logsumexp(term(new), axes), new)
    is_safe = bounds[core].positive and np.isfinite(bounds[core].hi)
    if kind not in (ps.Add, ps.Mul) or is_safe:
        return None
    known = [_log_of(v, bounds) for v in core.owner.inputs]
    pairs = zip(known, core.owner.inputs, strict=True)
    logs = [log or _log_of_positive(v, bounds, core.type.dtype) for log, v in pairs]
    parts = [log for log in logs if log is not None]
    if not any(known) or len(parts) < len(logs):
        return None
    joined = forms.logaddexp if kind is ps.Add else operator.add
    return lambda new: through_views(chain, reduce(joined, [part(new) for part in parts]), new)


def _log_of_totals(node: Apply, bounds: Any) -> Build | None:
    """Return what builds the logarithm of totals by groups: of exponentials added to zeros."""
    if node.op.set_instead_of_inc or len(node.inputs) != 3:
        return None
    zeros, terms, groups = node.inputs
    log = _log_of(terms, bounds)
    is_by_rows = groups.type.ndim == 1 and terms.type.ndim == zeros.type.ndim
    is_by_rows &= groups.type.dtype != "bool" and len(getattr(node.op, "idx_list", "1")) == 1
    if log is None or not is_by_rows or bounds[zeros].ends != (0, 0):
        return None
    if terms.type.broadcastable[0]:  # one row for all groups
        return None

    def build(new: New) -> Variable:
        x, base, which = log(new), new(zeros), new(groups)
        top = forms.largest_of_groups(x, which % base.shape[0], base.shape[0])
        return top + pt.log(applied_to(node, [base, pt.exp(x - top[which]), which])[0])

    return build


def _log_of_positive(variable: Variable, bounds: Any, dtype: str) -> Build | None:
    """Return what builds the logarithm of a positive number, or of a variable above 0."""
    number = constant_number(viewed(variable))
    if not (bounds[variable].positive if number is None else number > 0):
        return None
    return lambda new: pt.log(pt.cast(new(variable), dtype))


def _log_of_quotient(variable: Variable, bounds: Any) -> Build | None:
    """Return what builds log(exp(x) / y), for sums of exponentials and positive divisors."""
    x, y = variable.owner.inputs
    top = _log_of(x, bounds)
    bottom = _log_of(y, bounds) or _log_of_positive(y, bounds, variable.type.dtype)
    if top is None or bottom is None:
        return None
    return lambda new: top(new) - bottom(new)


PATTERNS = {
    ps.Log: _logarithm,
    ps.Log1p: _logarithm_1p,
    ps.Sqrt: _root,
    ps.TrueDiv: _quotient,
    ps.Sub: _complement,
}
"""By the scalar operation that is replaced."""

FLOORS = frozenset({"log", "sqrt", "divide"})
"""The forms that replace small operands by their eps, so they are another function there."""


def behind_views(variable: Variable) -> tuple[Variable, list[Apply]]:
    """Return the variable behind views and indexing, and the nodes between, innermost first."""
    chain = []
    while variable.owner is not None and isinstance(variable.owner.op, (*VIEWS, *INDEXING)):
        chain.append(variable.owner)
        variable = variable.owner.inputs[0]
    return variable, chain[::-1]


def through_views(chain: Sequence[Apply], variable: Variable, new: New) -> Variable:
    """Return another variable through the same views and indexing, innermost first."""
    for node in chain:
        inputs = [variable, *map(new, node.inputs[1:])]
        variable = applied_to(node, inputs)[0]
    return variable


def _is_sum_of(variable: Variable, *kinds: type | None) -> bool:
    """Whether a variable is a sum of what one of some scalar operations gives."""
    node = reduction_of(variable, "sum")
    return node is not None and scalar_class(node.inputs[0]) in kinds


def squared_base(variable: Variable) -> Variable | None:
    """Return ``x`` where a variable is the square of ``x``, else None."""
    if variable.owner is None:
        return None
    inputs = variable.owner.inputs
    kind = scalar_class(variable)
    if kind is ps.Sqr:
        return inputs[0]
    if kind is ps.Pow and constant_number(inputs[1]) == 2:
        return inputs[0]
    return inputs[0] if kind is ps.Mul and len(inputs) == 2 and inputs[0] is inputs[1] else None


def _as_softmax(variable: Variable) -> tuple[Variable, tuple[int, ...]] | None:
    """``h`` and the axes, where a variable is ``exp(h) / exp(h).sum(axes, keepdims=True)``."""
    if scalar_class(variable) is not ps.TrueDiv:
        return None
    terms, total = variable.owner.inputs
    total = viewed(total)
    if scalar_class(terms) is not ps.Exp or not _is_sum_of(total, ps.Exp):
        return None
    h = terms.owner.inputs[0]
    if total.owner.inputs[0].owner.inputs[0] is not h:
        return None
    axes = total.owner.op.axis
    axes = tuple(range(h.type.ndim)) if axes is None else axes
    kept = variable.owner.inputs[1].type.broadcastable
    return (h, axes) if all(kept[axis] for axis in axes) else None


def same(one: Variable, other: Variable) -> bool:
    """Return whether two variables are the same expression of the same variables."""
    if one is other:
        return True
    if one.owner is None or other.owner is None or one.owner.op != other.owner.op:
        return constant_number(one) is not None and constant_number(one) == constant_number(other)
    pairs = zip(one.owner.inputs, other.owner.inputs, strict=True)
    return one.index == other.index and all(same(a, b) for a, b in pairs)


def of_exp_minus_one(inner: Variable) -> Variable | None:
    """Return ``x`` if a variable is ``exp(x) - 1``."""
    if scalar_class(inner) is ps.Sub and constant_number(inner.owner.inputs[1]) == 1:
        return operand_of(viewed(inner.owner.inputs[0]), ps.Exp)
    return operand_of(inner, ps.Expm1)


def of_tanh(difference: Variable, total: Variable) -> Variable | None:
    """Return ``x`` if two variables are exp(x) - exp(-x) and exp(x) + exp(-x), or times exp(x)."""
    grown, with_one = of_exp_minus_one(difference), with_number(total, ps.Add)
    if grown is not None and with_one is not None:
        exponent = operand_of(viewed(with_one[1]), ps.Exp)
        twice = with_number(viewed(grown), ps.Mul)
        is_sum = with_one[0] == 1 and exponent is not None and same(exponent, grown)
        if is_sum and twice is not None and twice[0] == 2:
            return twice[1]
    if scalar_class(difference) is not ps.Sub or scalar_class(total) is not ps.Add:
        return None
    up, down = map(viewed, difference.owner.inputs)
    is_sum = {scalar_class(v) for v in (up, down)} == {ps.Exp} and len(total.owner.inputs) == 2
    others = [viewed(v) for v in total.owner.inputs]
    if not is_sum or not any(same(up, a) and same(down, b) for a, b in (others, others[::-1])):
        return None
    x, minus = up.owner.inputs[0], down.owner.inputs[0]
    return x if scalar_class(minus) is ps.Neg and same(minus.owner.inputs[0], x) else None
