"""What keeps a parameter of a distribution inside of its domain: a prior, or a link."""

import re
from collections.abc import Callable, Iterable, Iterator, Set
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.traversal import ancestors, toposort
from pytensor.scalar.basic import Add, Cast, Identity, Mul, Neg, Sub, TrueDiv
from pytensor.tensor.basic import Alloc, Join, MakeVector, Split
from pytensor.tensor.math import Dot

from theanoguard._graph import VIEWS, reduction_of, scalar_class
from theanoguard._naming import INDEXING, element_text
from theanoguard._provenance import source_line
from theanoguard._provenance.designating import Designations
from theanoguard._text import number_text
from theanoguard.explain.advice.hints import GENERAL
from theanoguard.explain.advice.ranges import code_of_number, range_text
from theanoguard.explain.facts.records import Condition, Meaning, Range
from theanoguard.operations.facts import Domain as ArgumentDomain
from theanoguard.pymc.broadcasts import written
from theanoguard.pymc.parameters import distribution_of, given_parameters
from theanoguard.pymc.support import is_compound, support_of


@dataclass(frozen=True)
class Domain:
    """The domain of a parameter."""

    text: str  # how PyMC writes it, with ``{}`` for the parameter
    holds: Callable[[Any], Any]
    priors: tuple[str, ...]  # distributions of such numbers
    link: str  # the function of ``pm.math`` whose values lie in it
    inside: str = "{} > 0"  # how the domain without its bounds is written
    bounds: tuple[int, ...] = (0,)

    @property
    def pattern(self) -> str:
        """A pattern of the text, with the parameter as its group."""
        return re.escape(self.text).replace(r"\{\}", r"(\w+)")


UNIT = Domain(
    "0 <= {} <= 1",
    lambda v: (v >= 0) & (v <= 1),
    ("Beta",),
    "sigmoid",
    "0 < {} < 1",
    (0, 1),
)
POSITIVE = Domain("{} > 0", lambda v: v > 0, ("HalfNormal", "Gamma"), "exp")
NOT_NEGATIVE = replace(POSITIVE, text="{} >= 0", holds=lambda v: v >= 0)
DOMAINS = (UNIT, POSITIVE, NOT_NEGATIVE)

_MEAN = {"mu": POSITIVE, "sigma": POSITIVE}
_NEGATIVE_BINOMIAL = {"mu": POSITIVE, "alpha": POSITIVE}

# By the name of a distribution: parameters that PyMC's conditions do not name, because PyMC
# computes its own from them.
OTHER_PARAMETERS = {
    "Beta": {"mu": UNIT, "sigma": POSITIVE, "nu": POSITIVE},
    "Exponential": {"lam": POSITIVE},
    **dict.fromkeys(
        ("StudentT", "HalfStudentT"), {"nu": POSITIVE, "sigma": POSITIVE, "lam": POSITIVE}
    ),
    **dict.fromkeys(("Gamma", "InverseGamma"), _MEAN),
    "NegativeBinomial": _NEGATIVE_BINOMIAL,
    **dict.fromkeys(("Normal", "HalfNormal", "LogNormal", "TruncatedNormal"), {"tau": POSITIVE}),
    "ZeroInflatedBinomial": {"psi": UNIT, "p": UNIT},
    **dict.fromkeys(("ZeroInflatedPoisson", "HurdlePoisson"), {"psi": UNIT, "mu": NOT_NEGATIVE}),
    **dict.fromkeys(
        ("ZeroInflatedNegativeBinomial", "HurdleNegativeBinomial"),
        {"psi": UNIT, **_NEGATIVE_BINOMIAL},
    ),
    "HurdleGamma": {"psi": UNIT, **_MEAN, "alpha": POSITIVE, "beta": POSITIVE},
    "HurdleLogNormal": {"psi": UNIT, "sigma": POSITIVE, "tau": POSITIVE},
    "NormalMixture": {"w": UNIT, "sigma": POSITIVE, "tau": POSITIVE},
}

NARROWER = "Give what {} is computed from narrower priors, or an initval nearer to 0."

SHARES = ("w", "p")  # parameters whose values sum to 1

# By the name of a distribution, what takes the logit of its p.
WITH_LOGIT = {"Bernoulli": "pm.Bernoulli", "Binomial": "pm.Binomial"}


@dataclass(frozen=True)
class Fault:
    """A parameter of a distribution that is outside of its domain."""

    #: The condition with the number, in the parameters of the model; "" where it is PyMC's.
    check: str
    advice: str
    parameter: Any
    remedy: "Remedy | None" = None


@dataclass(frozen=True)
class Remedy:
    """A change of a model that keeps a parameter in its domain."""

    kind: str  # one of "prior", "link"
    name: str  # the variable that gets another prior, or the parameter that gets a link
    by: str  # the distribution, or the function of ``pm.math``

    def __str__(self) -> str:
        where = "pm" if self.kind == "prior" else "pm.math"
        return f"{where}.{self.by} for {self.name}"


def fault_of(
    model: Any,
    variable: Any,
    condition: str,
    evaluate: Callable,
    number: str = "",
    at: Any = None,
) -> Fault | None:
    """Return which parameter makes a check of PyMC fail, and how to keep it in its domain.

    Or, of checks that hold, which one lies at a bound of its domain.

    - `variable`: the random variable.
    - `condition`: what PyMC's check asks for, such as ``"sigma > 0"``.
    - `evaluate`: callable from a list of variables to their values at the point, by variable.
    - `number`: what fails it, such as ``" (it is -1.0)"``.
    - `at`: if no check fails, where the log-density is -inf.
    - Returns: None if no parameter that the model computes is outside of its domain.
    """
    domains = {m[1]: d for d in DOMAINS for m in re.finditer(d.pattern, condition)}
    own = OTHER_PARAMETERS.get(distribution_of(variable), {})
    free = set(model.free_RVs)

    def outside(parameters: list[Any], is_bad: Callable[[Any], Any]) -> list[tuple[Any, Any]]:
        computed = [v for v in parameters if free & set(ancestors([v]))]
        values = evaluate(model.replace_rvs_by_values(computed)).values()
        found = zip(computed, values, strict=True)
        return [(v, value) for v, value in found if is_bad(value).any()]

    given = given_parameters(variable)
    known = {name: d for name, d in {**domains, **own}.items() if given.get(name) is not None}
    if (cuts := given.get("cutpoints")) is not None:
        for parameter, value in outside([cuts], _falling):
            at = tuple(np.argwhere(_falling(value))[0])
            after = (*at[:-1], at[-1] + 1)
            text = f"cutpoints that increase ({number_text(value[at])} comes before "
            advice = (
                "Give them transform=pm.distributions.transforms.ordered, and an initval of "
                "increasing numbers."
            )
            return Fault(f"{text}{number_text(value[after])})", advice, parameter)
    if at is not None:
        if any(getattr(variable.owner.op, "ndims_params", ())):
            return None  # (of a vector, one of the numbers counts)
        for name, domain in known.items():
            for parameter, value in outside([given[name]], partial(_at_bound, domain, at)):
                failing = _at_bound(domain, at, value)
                advice = _of_rows(parameter, free, failing, evaluate) or _away_from_bound(
                    free, variable, name, parameter, domain
                )
                if advice:
                    shown = (failing, np.broadcast_to(value, at.shape))
                    shown = shown if value.ndim else (np.any(failing), value)
                    text = domain.inside.format(name) + _element(*shown)
                    return Fault(text, advice, parameter)
        return None
    for name in known:
        for parameter, value in outside([given[name]], np.isinf):
            text = f"{name} has overflowed{_element(np.isinf(value), value)}"
            return Fault(text, scaling(parameter, free) or NARROWER.format(name), parameter)
    for name, domain in known.items():
        for parameter, value in outside([given[name]], partial(_outside, domain)):
            failing = _outside(domain, value)
            told = domain.text.format(name) + _element(failing, value)
            advice = _of_rows(parameter, free, failing, evaluate)
            if not advice and not is_predictor(parameter, free):
                advice = _first_outside(model, parameter, name, domain, evaluate)
            advice = advice or _advice(free, variable, name, parameter, domain)
            is_told = name in domains and condition == domain.text.format(name)
            remedy = _remedy(free, name, parameter, domain)
            return Fault("" if is_told else told, advice, parameter, remedy)
    for name in SHARES if "sum(" in condition else ():
        if given.get(name) is not None and free & set(ancestors([given[name]])):
            advice = (
                f"Give {name} values that sum to 1: pm.Dirichlet as its prior, or pm.math.softmax."
            )
            return Fault(f"sum({name}) = 1{number}", advice, given[name])
    if given.keys() & {*domains, *own} or is_compound(variable):
        return None
    for name, domain in domains.items():
        found = outside(support_of(variable)[1], partial(_outside, domain))
        if len(found) == 1:  # (of several, it is not known which one PyMC's name is for)
            parameter = found[0][0]
            return Fault("", _advice(free, variable, name, parameter, domain), parameter)
    return None


def _falling(values: Any) -> Any:
    """Return which numbers are not below the next one along the last axis."""
    return np.diff(values, axis=-1) <= 0


def _outside(domain: Domain, value: Any) -> Any:
    """Return which numbers lie outside of a domain.  A NaN has another cause, told by itself."""
    return ~(domain.holds(value) | np.isnan(value))


def _element(failing: Any, value: Any) -> str:
    """Return the first number that fails, as ``" (it is -1.0 at element [3], 1 of 4 fail)"``."""
    at = np.argwhere(failing)[0]
    number = number_text(value[tuple(at)])
    place = f" at element {at.tolist()}, {int(failing.sum())} of {failing.size} fail"
    return f" (it is {number}{place if failing.size > 1 else ''})"


def _is_link(variable: Any) -> bool:
    scalar = getattr(getattr(variable.owner, "op", None), "scalar_op", None)
    return str(getattr(scalar, "name", None) or scalar).lower() in LINKS


def _remedy(free: Set[Any], name: str, parameter: Any, domain: Domain) -> Remedy | None:
    """Return what :func:`_advice` proposes, if it can be tried."""
    random = written(parameter)
    if random in free:
        return Remedy("prior", random.name, domain.priors[0])
    if _is_link(random) or not is_predictor(parameter, free):
        return None
    return Remedy("link", name, domain.link)


def _advice(free: Set[Any], variable: Any, name: str, parameter: Any, domain: Domain) -> str:
    random = written(parameter)
    if random in free:
        priors = " or ".join(f"pm.{prior}" for prior in domain.priors)
        return f"Give {random.name} a prior in its domain, such as {priors}."
    own = WITH_LOGIT.get(distribution_of(variable))
    if own and name == "p":
        return f"Give the linear predictor as logit_p: {own}('{variable.name}', logit_p=...)."
    if _is_link(random):  # (it has underflowed)
        return scaling(parameter, free) or NARROWER.format(name)
    if not is_predictor(parameter, free):
        return ""
    return f"Give {name} a link: {name} = pm.math.{domain.link}(...)."


_LINEAR = (Add, Sub, Neg, Mul, TrueDiv, Cast, Identity)
_ARRANGES = (*VIEWS, *INDEXING, Join, MakeVector, Alloc, Split)


def is_predictor(parameter: Any, free: Set[Any]) -> bool:
    """Return whether a parameter is linear in each free variable, as a linear predictor is.

    A link changes its scale alone.  A state of a system, such as ``S - beta * S * I``, is another
    function under a link.
    """
    reached: dict[Any, set[Any]] = {v: {v} for v in free}
    for node in toposort([parameter], blockers=free):
        found = [reached.get(v, set()) for v in node.inputs]
        inner = getattr(node.op, "core_op", node.op)
        kind = type(getattr(inner, "scalar_op", inner))
        if any(found) and not isinstance(node.op, _ARRANGES):
            is_product = kind is Mul or issubclass(kind, Dot)
            shares = is_product and len(set().union(*found)) < sum(map(len, found))
            is_sum = reduction_of(node.outputs[0], "sum", "mean") is not None
            is_linear = kind in _LINEAR or is_product or is_sum
            if shares or not is_linear or (kind is TrueDiv and found[1]):
                return False
        reached.update(dict.fromkeys(node.outputs, set().union(*found)))
    return True


def _first_outside(
    model: Any, parameter: Any, name: str, domain: Domain, evaluate: Callable
) -> str:
    """Return which number leaves the domain first on the way to a parameter; "" if unknown."""
    free = set(model.free_RVs)
    nodes = [
        node
        for node in toposort([parameter], blockers=free)
        if scalar_class(node.outputs[0]) is Sub and free & set(ancestors(node.outputs))
    ]
    names = _names_in(parameter, free)
    values = evaluate(model.replace_rvs_by_values([node.outputs[0] for node in nodes])).values()
    for node, value in zip(nodes, values, strict=True):
        failing = _outside(domain, value)
        made = written(node.outputs[0])
        known = names.of(made)
        shown, line = known.name or known.expression, source_line(made)
        if not failing.any() or not shown or made is written(parameter):
            continue
        where = "" if line is None else f" on line {line.line}"
        return (
            f"{shown}{where} leaves the domain first{_element(failing, value)}: keep it inside"
            f" there. A link on {name} would change the model."
        )
    return ""


def _at_bound(domain: Domain, at: Any, value: Any) -> Any:
    """Return which numbers lie at a bound of a domain where the log-density is -inf."""
    return np.isin(np.broadcast_to(value, at.shape), domain.bounds) & at


LINKS = ("exp", "sigmoid", "softplus", "invprobit")


def _away_from_bound(
    free: Set[Any], variable: Any, name: str, parameter: Any, domain: Domain
) -> str:
    """Return how to keep a parameter from a bound that it has; "" where that is not known."""
    made = written(parameter)
    scalar = getattr(getattr(made.owner, "op", None), "scalar_op", None)
    if made in free or isinstance(scalar, Mul):
        return ""
    return _advice(free, variable, name, parameter, domain)


def _of_rows(parameter: Any, free: Set[Any], failing: Any, evaluate: Callable) -> str:
    """Return which data are 0, or the logarithm of 0, in just the rows where a parameter is 0."""
    graph = [v for v in ancestors([parameter], blockers=free) if getattr(v.type, "ndim", 0)]
    data = [v for v in graph if not free & set(ancestors([v]))]
    found = ((v, value.astype(float)) for v, value in evaluate(data).items())
    values = sorted(found, key=lambda one: one[0].owner is not None)
    made = written(parameter)
    is_product = isinstance(getattr(getattr(made.owner, "op", None), "scalar_op", None), Mul)
    factors = [written(v) for v in made.owner.inputs] if is_product else []
    is_logged = any(np.array_equal(np.isneginf(value), failing) for _, value in values)
    for variable, value in values:
        counts = is_logged or variable in factors
        is_empty = (counts & (value == 0), np.isneginf(value))
        if failing.all() or not any(np.array_equal(empty, failing) for empty in is_empty):
            continue
        known = _names_in(parameter, free).of(variable)
        at, n = np.argwhere(failing)[0].tolist(), int(failing.sum())
        name = variable.name or known.name or known.expression
        shown = f"{name}{at}" if name else f"element {at} of the data"
        return (
            f"{shown} is {number_text(value[tuple(at)])}, whatever the parameters are: correct or "
            f"leave out {'this row' if n == 1 else f'these {n} rows'}."
        )
    return ""


def _names_in(parameter: Any, free: Set[Any]) -> Designations:
    graph = ancestors([parameter], blockers=free)
    nodes = dict.fromkeys(v.owner for v in graph if v.owner is not None)
    return Designations({node: tuple(node.inputs) for node in nodes})


FAR_FROM_0, LARGE = 20.0, 30.0
"""A predictor is not centred if its mean is so many of its standard deviations from 0, and not
scaled if its standard deviation is more than this."""


def scaling(parameter: Any, free: Set[Any]) -> str:
    """Return which data ought to be centred or scaled, or "".

    Only data that are multiplied with something that depends on `free` variables are looked at.
    """
    names = _names_in(parameter, free)
    graph = ancestors([parameter], blockers=free)
    for variable in _factors(dict.fromkeys(v.owner for v in graph if v.owner is not None), free):
        data = getattr(variable, "data", None)
        if isinstance(variable, SharedVariable):
            data = variable.get_value(borrow=True)
        if np.size(data) < 4 or getattr(np.asarray(data).dtype, "kind", "") not in "fiu":
            continue
        mean, sd = np.mean(data, axis=0), np.std(data, axis=0)
        bad = (sd > 0) & ((np.abs(mean) > FAR_FROM_0 * sd) | (sd > LARGE))
        if not np.isfinite(sd).all() or not bad.any():
            continue
        at = tuple(np.argwhere(bad)[0])
        column = f"[:, {', '.join(map(str, at))}]" if at else ""
        name = (names.of(variable).name or variable.name or "the predictor") + column
        away, wide = np.abs(mean[at]) > sd[at], sd[at] > LARGE
        remedy = f"centre it, {name} - {name}.mean()" if away else f"divide {name} by its sd"
        if away and wide:
            remedy = f"standardize it, ({name} - {name}.mean()) / {name}.std()"
        return f"{name} has mean {mean[at]:,.4g} and sd {sd[at]:,.3g}: {remedy}."
    return ""


def _factors(nodes: Iterable[Any], free: Set[Any]) -> Iterator[Any]:
    """Yield the data that nodes multiply with something that depends on `free` variables."""
    for node in nodes:
        inner = getattr(node.op, "core_op", getattr(node.op, "scalar_op", node.op))
        if not isinstance(inner, Dot | Mul):
            continue
        depends = [v in free or bool(free & set(ancestors([v]))) for v in node.inputs]
        if any(depends):
            yield from (
                data
                for v, does in zip(node.inputs, depends, strict=True)
                if not does
                for data in ancestors([v])
                if data.owner is None
            )


LARGE_DENSITY = "Scale the predictors, or give their coefficients narrower priors."
"""What to do if a result is too large, in a log-density."""

_JITTERED = re.compile(r"\.(prior|conditional|marginal_likelihood)\(")
"""A call of a method of pm.gp that takes ``jitter``."""

PRIORS = {
    "cholesky-not-positive-definite": (
        "A covariance that is built from pm.LKJCholeskyCov is positive definite at every point."
    )
}
"""By the key of a hint, the prior that no point makes bad; where no line is to be changed."""

NO_BOUND = "A bound in a log-density would change the posterior."


def without_clamp(explanation: Any, model: Any = None) -> Any:
    """Return an explanation whose advice does not bound a number inside of a log-density.

    `model`: the one whose variables the advice can name, or None.
    """
    if explanation is None:
        return None
    meaning = explanation.meaning or Meaning("unknown")
    cause, deeper = (
        replace(one, hint=_of_model(one, meaning, model))
        if one is not None and one.hint is not None
        else one
        for one in (explanation.cause, explanation.deeper)
    )
    return replace(explanation, cause=cause, deeper=deeper)


def beyond_support(explanation: Any, element: str) -> Any:
    """Return an explanation for an observed value outside of the support of a user's density.

    None if the condition on the number of this value is not known.

    `element`: the observed value.
    """
    condition = None if explanation.meaning is None else explanation.meaning.condition
    hint = explanation.cause.hint
    if condition is None or hint is None or condition.domain.ends[0] != 0:
        return None
    name = condition.expression.removesuffix(element[element.index("[") :])
    sign = ">=" if condition.domain.at_least == 0 else ">"
    advice = (
        f"{element} lies outside of the support at this point, where the density is 0. Return"
        f" pt.switch({name} {sign} 0, ..., -inf), with pt.switch({name} {sign} 0, {name}, 1) in"
        f" place of {name} inside."
    )
    new = replace(hint, fact="", origin="", advice=advice, change=(), grade="")
    return replace(explanation, cause=replace(explanation.cause, hint=new), deeper=None)


def _of_model(cause: Any, meaning: Meaning, model: Any) -> Any:
    """Return the hint on a cause in a log-density."""
    hint = cause.hint
    if hint.key in PRIORS:
        source = cause.source
        if source is not None and (called := _JITTERED.search(source.text)) and hint.change == ():
            jitter = f"Give {called[1]} jitter=1e-6, which is added to the diagonal."
            return replace(hint, advice=jitter)
        prior = PRIORS[hint.key] if not hint.change else ""
        return replace(hint, advice=f"{hint.advice} {prior}".strip())
    condition = meaning.condition or _of_argument(cause, model)
    if hint.grade == "same" or (condition is None and hint.grade != "changes"):
        if meaning.kind == "harmless":
            return replace(hint, advice="")
        is_large = hint.advice == GENERAL["too large"]
        return replace(hint, advice=LARGE_DENSITY) if is_large else hint
    if condition is None:
        advice = f"Use a prior or a link that keeps it in the domain of {cause.op}."
    elif meaning.settled:
        advice = meaning.kept
    else:
        advice = _of_condition(condition, cause.op, model)
    origin = hint.origin
    if condition is not None and condition.leaf and condition.at is not None:
        name = element_text(condition.leaf, condition.index)
        origin = f"{name} is {number_text(condition.at)}."
    advice = f"{advice} {NO_BOUND}"
    return replace(hint, fact="", origin=origin, advice=advice, change=(), grade="")


def _of_argument(cause: Any, model: Any) -> Condition | None:
    """Return the condition on a free variable whose power has no value for its sign.

    Where the exponent is computed, exact arithmetic does not know that it is no whole number.
    """
    base = cause.operands[0] if cause.op == "pow" and cause.kind == "nan" else None
    if base is None or base.name not in _unbounded(model):
        return None
    domain, found = ArgumentDomain(at_least=0), Range(0)
    return Condition(base.name, base.value, domain, base.name, "input", is_own=True, range=found)


def _of_condition(condition: Condition, op: str | None, model: Any) -> str:
    """Return which prior, or which start, keeps a condition."""
    leaf, found = condition.leaf, condition.range
    is_free = leaf in _unbounded(model)
    if is_free and found is not None:
        return _prior(leaf, found, f", if {op} of it is meant" if condition.is_own else "")
    expression = condition.expression
    if condition.domain.nonzero:
        start = f"Give {leaf} an initval for which it is not." if is_free else ""
        return f"A prior of continuous numbers makes it 0 with probability 0. {start}".rstrip()
    return f"{expression} must {condition.domain.words} at every point: use priors that keep it so."


def _prior(name: str, found: Range, end: str = "") -> str:
    """Return which prior has values in a range alone."""
    if (found.low, found.high) == (0, np.inf) and not found.low_name:
        return f"Give {name} a prior of positive numbers, such as pm.LogNormal or pm.Gamma{end}."
    if (found.low, found.high) == (0, 1) and not (found.low_name or found.high_name):
        return f"Give {name} a prior between 0 and 1, such as pm.Beta."
    bounds = {"lower": (found.low, found.low_name), "upper": (found.high, found.high_name)}
    given = [
        f"{side}={shown or code_of_number(value)}"
        for side, (value, shown) in bounds.items()
        if np.isfinite(value)
    ]
    where = f"stays {range_text(found)}, such as pm.Truncated with {' and '.join(given)}"
    return f"Give {name} a prior that {where}."


def _unbounded(model: Any) -> list[str]:
    """Return the names of the free variables that a sampler may give any value."""
    free = model.free_RVs if model is not None else ()
    return [rv.name for rv in free if model.rvs_to_transforms[rv] is None]
