"""The rules: what is looked for, why it is a risk, and what to write instead.

One table of :class:`Rule`, :data:`RULES`; a rule looks at one node of a graph at a time.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pytensor.scalar as ps
from pytensor.gradient import ZeroGrad
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.traversal import ancestors
from pytensor.scalar import math as psm
from pytensor.scalar.basic import ScalarOp
from pytensor.tensor.elemwise import CAReduce, Elemwise
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.math import Dot
from pytensor.tensor.special import LogSoftmax

from theanoguard._graph import VIEWS, constant_number, scalar_class, viewed
from theanoguard._lint.bounds import Bounds
from theanoguard._lint.propagate import BoundsOf, implied, is_softmax
from theanoguard._lint.view import GraphView
from theanoguard._naming import INDEXING
from theanoguard._pytensor import Scan, is_numeric
from theanoguard._shown import brief
from theanoguard.explain.advice.hints import advice
from theanoguard.operations import facts_of, scalar_facts
from theanoguard.operations.facts import SCALARS, Domain
from theanoguard.operations.names import op_name
from theanoguard.training.ops import FirstBad, SquaredNorms

HUGE_SUM = 2**20
"""Number of terms from which a sum in float32 is reported: each addition rounds by 6e-8."""


@dataclass(frozen=True)
class Found:
    """The finding of a rule at a node."""

    variable: Variable  # what is to blame; its line is that of the finding
    why: str
    write: str  # what to write instead
    key: str | None = None  # the hint that says this


@brief
@dataclass(frozen=True)
class Rule:
    """One rule.

    Parameters
    ----------
    name : str
    about : str
        What it finds, in a line.
    check : callable
        ``check(view)`` yields a :class:`Found` for each risk in a
        :class:`~theanoguard._lint.view.GraphView`.
    """

    name: str
    about: str
    check: Callable[[GraphView], Iterable[Found]]


# ---------------------------------------------------------------- operands within a domain


Hint = Callable[[Bounds, Apply], str | None]
"""From an operand's bounds and its node to the key of a hint, or None."""


@dataclass(frozen=True)
class Risk:
    """What is said of an operand that may leave the domain of an operation."""

    rule: str  # name of the rule that reports it
    #: From the operand's bounds and the node to the key of a hint; None where there is none.
    hint: Hint
    domain: Domain  # where the value is sound
    #: Where the value is sound, and the gradient is not: the ends of the domain, if given.
    edge: str = ""

    @property
    def operand(self) -> int:
        """The operand that may leave the domain."""
        return self.domain.operand

    def needs(self, node: Apply) -> str:
        """What the operand must do, in words."""
        return self.domain.words

    def holds(self, b: Bounds, node: Apply) -> bool:
        """Whether the value is sound for all numbers within bounds."""
        return self.domain.holds(b.lo, b.hi, b.zero)

    def is_smooth(self, b: Bounds, node: Apply) -> bool:
        """Whether the gradient is sound, too."""
        return not self.edge or self.domain.inside.holds(b.lo, b.hi, b.zero)


NodeCheck = Callable[[Apply, GraphView], Iterator[Found]]


def _exponent(node: Apply) -> float | None:
    return constant_number(node.inputs[1])


def _is_whole(node: Apply) -> bool:
    exponent = _exponent(node)
    if exponent is None:
        return node.inputs[1].type.dtype[:3] in ("int", "uin")
    return float(exponent).is_integer()


class _OfPower(Risk):
    """A power has a domain that depends on its exponent."""

    def needs(self, node: Apply) -> str:
        return "be positive for this exponent"

    def holds(self, b: Bounds, node: Apply) -> bool:
        exponent = _exponent(node)
        sound = _is_whole(node) or b.lo >= 0
        return sound and not (exponent is not None and exponent < 0 and b.zero)

    def is_smooth(self, b: Bounds, node: Apply) -> bool:
        exponent = _exponent(node)
        return exponent is None or _is_whole(node) or exponent > 1 or not b.zero


def _power_hint(b: Bounds, node: Apply) -> str:
    return "pow-at-zero" if b.lo >= 0 or _is_whole(node) else "pow-negative-base"


@dataclass(frozen=True)
class _OfExponential(Risk):
    """An exponential function overflows, on both sides if it is even."""

    logarithm: Callable[[Any], Any] = np.log
    even: bool = False

    def _limit(self, node: Apply) -> float:
        return float(self.logarithm(np.finfo(node.outputs[0].type.dtype).max))

    def needs(self, node: Apply) -> str:
        return f"stay below {self._limit(node):.1f}, where {op_name(node.op)} overflows"

    def holds(self, b: Bounds, node: Apply) -> bool:
        return (abs(b) if self.even else b).hi <= self._limit(node)


def _log_hint(b: Bounds, node: Apply) -> str:
    if b.lo < 0:
        return "log-negative"
    makers = {scalar_class(viewed(node.inputs[0]))}
    makers |= {scalar_class(v) for v in _reached(node.inputs[0], 2)}
    small = makers & {ps.Exp, psm.Sigmoid, ps.Mul}
    return "probability-underflow" if small else "log-zero"


def _always(key: str | None) -> Hint:
    return lambda b, node: key


def _root_hint(b: Bounds, node: Apply) -> str:
    if b.lo < 0:
        made = viewed(node.inputs[0])
        return "cancellation" if scalar_class(made) is ps.Sub else "sqrt-negative"
    return "norm-gradient-at-zero"


def _leaving(
    rule: str, hint: Hint | str, *classes: type[ScalarOp], edge: str = ""
) -> dict[type[ScalarOp], Risk]:
    key = hint if callable(hint) else _always(hint)
    return {
        cls: Risk(rule, key, SCALARS[cls].domain, edge)  # type: ignore[arg-type]  # (has one)
        for cls in classes
    }


def _exponential(logarithm: Callable[[Any], Any], even: bool = False) -> Risk:
    return _OfExponential("exp-overflow", _always("exp-overflow"), Domain(), "", logarithm, even)


RISKS: dict[type[ScalarOp], Risk] = {
    **_leaving("log-of-zero", _log_hint, ps.Log, ps.Log2, ps.Log10),
    **_leaving("log-of-zero", "log1p-minus-one", ps.Log1p),
    **_leaving("division-by-zero", "division-by-zero", ps.TrueDiv, ps.IntDiv, ps.Mod),
    **_leaving("division-by-zero", "division-by-zero", ps.Reciprocal),
    **_leaving("sqrt-at-zero", _root_hint, ps.Sqrt, edge="0"),
    ps.Pow: _OfPower("power-at-zero", _power_hint, Domain(), "0"),
    ps.Exp: _exponential(np.log),
    ps.Exp2: _exponential(np.log2),
    ps.Expm1: _exponential(np.log),
    ps.Sinh: _exponential(np.arcsinh, even=True),
    ps.Cosh: _exponential(np.arccosh, even=True),
    **_leaving("arc-out-of-range", "arc-out-of-range", ps.ArcSin, ps.ArcCos, edge="-1 and 1"),
    **_leaving("arc-out-of-range", "arctanh-out-of-range", ps.ArcTanh),
    **_leaving("arc-out-of-range", "arccosh-out-of-range", ps.ArcCosh, edge="1"),
}
"""By the scalar operation."""


def _risk_of(node: Apply) -> Risk | None:
    """What may be wrong with an operand of a node; None for an operation without a domain."""
    kind = scalar_class(node.outputs[0])
    if kind in RISKS:
        return RISKS[kind]
    stated = (facts_of(node.op) if kind is None else scalar_facts(node.op.scalar_op)).domain
    if stated is None:
        return None
    return Risk("out-of-domain", _always(None), stated)


def _risk(node: Apply, view: GraphView) -> tuple[Risk, bool] | None:
    """The risk of an operand of a node; whether only the gradient suffers; or None."""
    risk = _risk_of(node)
    if risk is None:
        return None
    operand = node.inputs[risk.operand]
    if isinstance(operand, Constant) and np.isnan(np.asarray(operand.data, "float64")).any():
        return None  # (what is wrong is the constant)
    found = view.bounds[operand]
    if not risk.holds(found, node):
        return risk, False
    if not risk.is_smooth(found, node) and view.is_differentiated(node):
        return risk, True
    return None


def _out_of_domain(rule: str) -> NodeCheck:
    """The check of one of the rules that :data:`RISKS` names."""

    def check(node: Apply, view: GraphView) -> Iterator[Found]:
        at_risk = _risk(node, view)
        if at_risk is None or at_risk[0].rule != rule:
            return
        risk, only_gradient = at_risk
        if node in view.hidden and (
            view.is_differentiated(node) or _is_never_seen(risk, node, view)
        ):
            return  # (`masked-gradient` speaks of the gradient)
        if _softmax_of(node) is not None:
            return  # `log-of-softmax` does
        operand = node.inputs[risk.operand]
        found = view.bounds[operand]
        name, op = view.argument(node, risk.operand), op_name(node.op)
        why = f"{name} must {risk.needs(node)}, and {found.phrase}"
        if only_gradient:
            why = f"{name} may be {risk.edge}, where the gradient of {op} is not finite"
        key = risk.hint(found, node)
        text = advice(key, op) if key else f"Keep {name} within the domain of {op}."
        yield Found(node.outputs[0], why, text, key)

    return check


def _is_never_seen(risk: Risk, node: Apply, view: GraphView) -> bool:
    """Whether the condition of the switch that hides a node keeps its operand in the domain."""
    switch, position = view.hidden[node]
    operand = node.inputs[risk.operand]
    told = implied(switch.inputs[0], position == 1, operand, view.bounds)
    return risk.holds(view.bounds[operand].intersect(told), node)


def _masked_gradient(node: Apply, view: GraphView) -> Iterator[Found]:
    """A function that a switch hides where it is bad: its gradient is bad all the same."""
    at_risk = _risk(node, view)
    if at_risk is None or node not in view.hidden or not view.is_differentiated(node):
        return
    risk, _ = at_risk
    switch, _ = view.hidden[node]
    name = view.argument(node, risk.operand)
    yield Found(
        switch.outputs[0],
        f"switch hides {view.name(node.outputs[0])} where {name} is bad, but the gradient"
        f" through it is 0 times what is not finite: NaN",
        advice("masked-gradient"),
    )


# ---------------------------------------------------------------- patterns


def _reached(variable: Variable, depth: int) -> list[Variable]:
    """The variables that a variable is computed from in a few steps."""
    todo, found = [(variable, depth)], []
    while todo:
        v, left = todo.pop()
        if left and v.owner is not None:
            found += v.owner.inputs
            todo += ((i, left - 1) for i in v.owner.inputs)
    return found


def chosen_from(variable: Variable) -> Variable:
    """Return the variable whose elements views and indexing show."""
    variable = viewed(variable)
    while variable.owner is not None and isinstance(variable.owner.op, INDEXING):
        variable = viewed(variable.owner.inputs[0])
    return variable


def _softmax_of(node: Apply) -> Variable | None:
    """The softmax whose logarithm a node takes, None for any other node."""
    if scalar_class(node.outputs[0]) not in (ps.Log, ps.Log2, ps.Log10):
        return None
    found = chosen_from(node.inputs[0])
    return found if found.owner and is_softmax(found.owner.op) else None


def _log_of_softmax(node: Apply, view: GraphView) -> Iterator[Found]:
    softmax = _softmax_of(node)
    if softmax is not None:
        yield Found(
            node.outputs[0],
            f"{view.name(softmax)} underflows to 0 where a logit lies far below the largest",
            advice("softmax-then-log", "log"),
        )


def _softmax_of_infinity(node: Apply, view: GraphView) -> Iterator[Found]:
    if not (is_softmax(node.op) or isinstance(node.op, LogSoftmax)):
        return
    todo, seen = [node.inputs[0]], set()
    while todo:
        v = chosen_from(todo.pop())
        if v in seen:
            continue
        seen.add(v)
        kind = scalar_class(v)
        if kind is ps.Switch and any(constant_number(b) == -np.inf for b in v.owner.inputs[1:]):
            yield Found(
                node.outputs[0],
                f"{view.name(v)} may be -inf throughout, and inf - inf is NaN",
                advice("softmax-of-infinity"),
            )
            return
        if kind in (ps.Switch, ps.Add, ps.Mul, ps.TrueDiv):
            todo += v.owner.inputs


# What an infinite constant may be chosen by or compared in.
_HARMLESS = (ps.Switch, ps.ScalarMaximum, ps.ScalarMinimum, ps.Clip, ps.Second)


def _bad_constant(node: Apply, view: GraphView) -> Iterator[Found]:
    if isinstance(node.op, VIEWS):
        return
    for v in map(viewed, node.inputs):
        data = v.data if isinstance(v, Constant) else view.values.get(v)
        if data is None or not is_numeric(v.type) or np.asarray(data).dtype.kind != "f":
            continue
        kind = scalar_class(node.outputs[0])
        computes = kind is not None and kind not in _HARMLESS
        computes &= getattr(node.outputs[0].type, "dtype", "bool") != "bool"
        bad = next((n for n, f in _BAD.items() if f(np.asarray(data)).any()), None)
        if bad == "NaN" or (bad == "Inf" and computes):
            where = "the constant" if isinstance(v, Constant) else "the shared variable"
            yield Found(
                v if isinstance(v, Constant) and v.name else node.outputs[0],
                f"{where} {view.name(v)} holds {bad}",
                "Look at how it was computed, when the graph was built, or loaded.",
            )


_BAD = {"NaN": np.isnan, "Inf": np.isinf}


def _float32_sum(node: Apply, view: GraphView) -> Iterator[Found]:
    if isinstance(node.op, CAReduce) and isinstance(node.op.scalar_op, ps.Add):
        x, precision = node.inputs[0], getattr(node.op, "acc_dtype", None)
        axes = range(x.type.ndim) if node.op.axis is None else node.op.axis
    elif isinstance(node.op, CumOp) and node.op.mode == "add":
        x = node.inputs[0]
        precision = x.type.dtype
        axes = range(x.type.ndim) if node.op.axis is None else [node.op.axis]
    elif isinstance(node.op, Dot):
        x = node.inputs[0]
        precision = node.outputs[0].type.dtype
        axes = [x.type.ndim - 1]
    else:
        return
    if not x.type.ndim:  # (PyTensor writes the core of a batched sum like this)
        return
    precision = precision or x.type.dtype
    count = int(np.prod([x.type.shape[axis] or 1 for axis in axes], dtype="int64"))
    if precision in ("float16", "float32") and count >= HUGE_SUM:
        yield Found(
            node.outputs[0],
            f"{count} terms are added up in {precision}: the rounding of each addition may grow"
            f" to {count * np.finfo(precision).eps / 2:.0%} of the sum of magnitudes",
            "Add up in float64: x.sum(acc_dtype='float64'); or sum in blocks.",
        )


def _float64_constant(node: Apply, view: GraphView) -> Iterator[Found]:
    if not isinstance(node.op, Elemwise) or node.outputs[0].type.dtype != "float64":
        return
    wide = [v for v in node.inputs if v.type.dtype == "float64"]
    narrow = [v for v in node.inputs if v.type.dtype == "float32"]
    constants = [v for v in wide if isinstance(viewed(v), Constant)]
    variables = [v for v in narrow if not isinstance(viewed(v), Constant)]
    if variables and wide and len(constants) == len(wide):
        yield Found(
            node.outputs[0],
            f"the float64 constant {view.name(constants[0])} makes float64 of the float32"
            f" {view.name(variables[0])}, and of all that is computed from it",
            "Write the constant in the graph's dtype: np.float32(c), or pt.cast(c, x.dtype); or"
            " set floatX=float32, and Python's floats are float32.",
        )


# ---------------------------------------------------------------- loops


def _is_clip(variable: Variable) -> bool:
    return scalar_class(variable) in (ps.Clip, ps.ScalarMinimum, ps.ScalarMaximum, ps.Switch)


def _scan(view: GraphView) -> Iterator[Found]:
    node = view.node
    if node is None or not isinstance(node.op, Scan) or node.op.truncate_gradient != -1:
        return
    states = node.op.get_oinp_iinp_iout_oout_mappings()["inner_out_from_inner_inp"]
    fed_back = [
        (output, view.bounds[output])
        for i, state in enumerate(node.op.fgraph.inputs)
        for output in (node.op.fgraph.outputs[j] for j in states[i])
        if _multiplies(output, state)
    ]
    unbounded = [output for output, found in fed_back if not np.isfinite(found.ends).all()]
    outer = view.outer
    if unbounded or (fed_back and outer is not None and _gradient_is_unclipped(node, outer)):
        problem = (
            "nothing keeps it within bounds"
            if unbounded
            else "its gradient is neither truncated nor clipped"
        )
        yield Found(
            unbounded[0] if unbounded else fed_back[0][0],
            f"a state of the scan is fed back, and {problem}: it may grow from step to step",
            advice("exploding-state")
            + " Also: truncate_gradient=k, or theanoguard.training.clip_grad_norm(grads, ...).",
        )


def _multiplies(output: Variable, state: Variable) -> bool:
    """Whether a state goes into its next value in another way than by mere addition."""
    if getattr(output.type, "dtype", "int")[:5] != "float":
        return False
    todo = [output]
    while todo:
        v = viewed(todo.pop())
        if v is state or v.owner is None:
            continue
        if scalar_class(v) in (ps.Add, ps.Sub, ps.ScalarMaximum, ps.ScalarMinimum, ps.Switch):
            todo += v.owner.inputs
        elif state in ancestors([v]):
            return True
    return False


def _gradient_is_unclipped(node: Apply, view: GraphView) -> bool:
    """Whether the graph holds the gradient of a scan, and nobody clips what comes from it."""
    made = [
        n
        for n in view.backward
        if isinstance(n.op, Scan) and set(n.inputs) & {*node.inputs, *node.outputs}
    ]
    seen, todo = set(made), list(made)
    while todo:
        for v in todo.pop().outputs:
            for client, _ in view.clients[v]:
                if client in seen:
                    continue
                if isinstance(client.op, SquaredNorms | FirstBad):
                    return False
                if client not in view.backward and _is_clip(client.outputs[0]):
                    return False
                seen.add(client)
                todo.append(client)
    return bool(made)


# ---------------------------------------------------------------- parameters


def _gradient_ancestors(output: Variable) -> set[Variable]:
    """The variables that a gradient of `output` reaches."""
    reached, todo = {output}, [output]
    while todo:
        node = todo.pop().owner
        if node is None or isinstance(node.op, ZeroGrad) or _is_flat(node.outputs[0]):
            continue
        pattern = getattr(node.op, "connection_pattern", None)
        connected = pattern(node) if pattern else [[True] * len(node.outputs)] * len(node.inputs)
        for v, to in zip(node.inputs, connected, strict=True):
            if v not in reached and any(to) and getattr(v.type, "dtype", "")[:5] == "float":
                reached.add(v)
                todo.append(v)
    return reached


def _is_flat(variable: Variable) -> bool:
    """Whether an operation has the derivative 0 wherever it has one."""
    flat = (ps.Sign, ps.Floor, ps.Ceil, ps.Trunc, ps.RoundHalfToEven, ps.RoundHalfAwayFromZero)
    return scalar_class(variable) in flat


def _parameters(
    wanted: Literal["unused", "disconnected"], why: str, write: str
) -> Callable[[GraphView], Iterator[Found]]:
    """The check for parameters that are unused, or disconnected."""

    def check(view: GraphView) -> Iterator[Found]:
        outputs = [*view.outputs, *view.updates.values()]
        used = set(ancestors(view.outputs)) if view.params else set()
        reached = set().union(*map(_gradient_ancestors, view.outputs)) if view.params else set()
        for v in view.params:
            state = (
                "disconnected" if v in used - reached else "connected" if v in used else "unused"
            )
            if state == wanted:
                yield Found(v, why.format(view.name(v)), write)
        for v, new in view.updates.items():
            if not _adds_zeros(new, v, view.bounds):
                continue
            others = [o for o in outputs if o is not new]
            if ("disconnected" if v in ancestors(others) else "unused") == wanted:
                yield Found(new, why.format(view.name(v)) + "; its update adds zeros", write)

    return check


def _adds_zeros(new: Variable, v: Variable, bounds: BoundsOf) -> bool:
    """Whether an update is its variable plus or minus zeros: its gradient was disconnected."""
    if scalar_class(new) not in (ps.Add, ps.Sub) or new.owner.inputs[0] is not v:
        return False
    return all(bounds[term].ends == (0, 0) for term in new.owner.inputs[1:])


def _each_node(check: NodeCheck) -> Callable[[GraphView], Iterator[Found]]:
    """Run the check of a node at every node of the forward graph."""

    def check_all(view: GraphView) -> Iterator[Found]:
        for node in view.nodes:
            if node not in view.backward:
                yield from check(node, view)

    return check_all


def _only_witnessed(view: GraphView) -> tuple[()]:
    """The check of a rule that holds for witnesses alone: no bounds show it."""
    return ()


# ---------------------------------------------------------------- the table

RULES = {
    rule.name: rule
    for rule in (
        Rule(
            "log-of-softmax",
            "the logarithm of a softmax, which underflows to 0",
            _each_node(_log_of_softmax),
        ),
        Rule(
            "log-of-zero",
            "a logarithm whose argument can be 0 or negative (``log1p``: -1 or below)",
            _each_node(_out_of_domain("log-of-zero")),
        ),
        Rule(
            "division-by-zero",
            "a divisor that can be 0",
            _each_node(_out_of_domain("division-by-zero")),
        ),
        Rule(
            "sqrt-at-zero",
            "a root or a norm whose argument can be negative, or is differentiated and can be 0",
            _each_node(_out_of_domain("sqrt-at-zero")),
        ),
        Rule(
            "power-at-zero",
            "a fractional or negative power whose base can be negative or 0",
            _each_node(_out_of_domain("power-at-zero")),
        ),
        Rule(
            "exp-overflow",
            "an exponential whose argument has no upper bound",
            _each_node(_out_of_domain("exp-overflow")),
        ),
        Rule(
            "arc-out-of-range",
            "an inverse sine, cosine, ... whose argument can leave the domain",
            _each_node(_out_of_domain("arc-out-of-range")),
        ),
        Rule(
            "out-of-domain",
            "an operation that you registered, whose argument can leave the domain",
            _each_node(_out_of_domain("out-of-domain")),
        ),
        Rule(
            "masked-gradient",
            "a ``switch`` that hides a NaN from the value but not from its gradient",
            _each_node(_masked_gradient),
        ),
        Rule(
            "softmax-of-infinity",
            "a softmax of values that are masked with -inf",
            _each_node(_softmax_of_infinity),
        ),
        Rule(
            "bad-constant",
            "a constant, or with ``shared_values=True`` a shared variable, that holds NaN or Inf",
            _each_node(_bad_constant),
        ),
        Rule(
            "float32-sum",
            "a sum of a million terms or more in float32",
            _each_node(_float32_sum),
        ),
        Rule(
            "float64-constant",
            "a float64 constant that turns a float32 graph into float64",
            _each_node(_float64_constant),
        ),
        Rule(
            "overflow",
            "a sum, a product or another operation that overflows or underflows at a witness",
            _only_witnessed,
        ),
        Rule(
            "no-value",
            "an operation that has no value, or an infinite one, at a witness",
            _only_witnessed,
        ),
        Rule(
            "scan-without-clipping",
            "a ``scan`` whose state or gradient has no bound",
            _scan,
        ),
        Rule(
            "unused-parameter",
            "a parameter that the cost does not depend on",
            _parameters(
                "unused",
                "nothing that is computed depends on {}",
                "Use it in the model, or take it off the list of parameters.",
            ),
        ),
        Rule(
            "disconnected-parameter",
            "a parameter that no gradient reaches",
            _parameters(
                "disconnected",
                "what is computed depends on {}, but no gradient reaches it: an integer, a"
                " comparison, a rounding or disconnected_grad stands between",
                "Compute with floats all the way, or take it off the list of parameters.",
            ),
        ),
    )
}
"""All rules, by name."""
