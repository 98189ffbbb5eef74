"""What keeps a parameter of a distribution inside of its domain: a prior, or a link."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from pytensor.graph.traversal import ancestors
from pytensor.tensor.elemwise import DimShuffle

from theanoguard.explain.facts.naming import number_text
from theanoguard.pymc.parameters import given_parameters
from theanoguard.pymc.support import support_of


@dataclass(frozen=True)
class Domain:
    """The domain of a parameter.

    Parameters
    ----------
    condition : str
        A pattern of how PyMC writes it, with the parameter as its group.
    holds : callable
    priors : str
        Distributions of such numbers.
    link : str
        The function whose values lie in it.
    """

    condition: str
    holds: Callable[[Any], Any]
    priors: str
    link: str


UNIT = Domain(r"0 <= (\w+) <= 1", lambda v: (v >= 0) & (v <= 1), "pm.Beta", "pm.math.sigmoid")
POSITIVE = Domain(r"(\w+) > 0", lambda v: v > 0, "pm.HalfNormal or pm.Gamma", "pm.math.exp")
NOT_NEGATIVE = replace(POSITIVE, condition=r"(\w+) >= 0", holds=lambda v: v >= 0)
DOMAINS = (UNIT, POSITIVE, NOT_NEGATIVE)

# By the name of a random variable's operation: parameters that PyMC's conditions do not name,
# because PyMC computes its own from them.
OTHER_PARAMETERS = {
    "beta": {"mu": UNIT, "sigma": POSITIVE, "nu": POSITIVE},
    "gamma": {"mu": POSITIVE, "sigma": POSITIVE},
    "invgamma": {"mu": POSITIVE, "sigma": POSITIVE},
    "negative_binomial": {"mu": POSITIVE, "alpha": POSITIVE},
    **dict.fromkeys(("normal", "halfnormal", "lognormal", "truncated_normal"), {"tau": POSITIVE}),
}

# By the name of a random variable's operation, what takes the logit of its p.
WITH_LOGIT = {"bernoulli": "pm.Bernoulli", "binomial": "pm.Binomial"}


def advice_for(model: Any, variable: Any, check: str, evaluate: Callable) -> str:
    """Return how to keep a parameter in the domain that a failed check of PyMC tells.

    Parameters
    ----------
    model : pymc.Model
    variable : Variable
        The random variable.
    check : str
        Such as ``"sigma > 0 (it is -1.0)"``.
    evaluate : callable
        From a list of variables to their values at the point, by variable.

    Returns
    -------
    str
        "" if no parameter that the model computes is outside of its domain.
    """
    condition = check.partition(" (")[0]
    domains = {m[1]: d for d in DOMAINS for m in re.finditer(d.condition, condition)}
    own = OTHER_PARAMETERS.get(_op_name(variable), {})
    free = set(model.free_RVs)

    def outside(parameters, domain):
        computed = [v for v in parameters if free & set(ancestors([v]))]
        values = evaluate(model.replace_rvs_by_values(computed)).values()
        found = zip(computed, values, strict=True)
        return [(v, value) for v, value in found if _outside(domain, value).any()]

    given = given_parameters(variable)
    for name, domain in {**domains, **own}.items():
        if given.get(name) is not None and (found := outside([given[name]], domain)):
            [(parameter, value)] = found
            told = "" if name in domains else _told(name, value, domain)
            return told + _advice(free, variable, name, parameter, domain)
    if given.keys() & {*domains, *own}:
        return ""
    for name, domain in domains.items():
        found = outside(support_of(variable)[1], domain)
        if len(found) == 1:  # (of several, it is not known which one PyMC's name is for)
            return _advice(free, variable, name, found[0][0], domain)
    return ""


def _outside(domain, value):
    """Return which numbers lie outside of a domain.  A NaN has another cause, told by itself."""
    return ~(domain.holds(value) | np.isnan(value))


def _told(name, value, domain):
    """Say which number a parameter has that PyMC's own conditions do not name."""
    at = np.argwhere(_outside(domain, value))[0]
    element = f" at element {at.tolist()}" if len(at) else ""
    return f"{name} is {number_text(value[tuple(at)])}{element}. "


def _op_name(variable):
    return getattr(variable.owner.op, "name", None) or ""


def _advice(free, variable, name, parameter, domain):
    random = written(parameter)
    if random in free:
        return f"Give {random.name} a prior in its domain, such as {domain.priors}."
    own = WITH_LOGIT.get(_op_name(variable))
    if own and name == "p":
        return f"Give the linear predictor as logit_p: {own}('{variable.name}', logit_p=...)."
    return f"Give {name} a link: {name} = {domain.link}(...)."


def written(variable):
    """Return the variable that PyMC has shaped to be a parameter."""
    while isinstance(getattr(variable.owner, "op", None), DimShuffle):
        variable = variable.owner.inputs[0]
    return variable


CLAMP = re.compile(r"\b(?:maximum|minimum|clip)\(")
"""What bounds a number: in a log-density it changes the posterior, and hides the mistake."""

INPUT = re.compile(r"(\S+?)(?:\[[^]]*\])? is .* \(input\)\. (?:Check|Correct|If)")
"""The advice on an input of a function; the inputs of a log-density are the sampler's."""

POSITIVE_ARGUMENT = ("log", "sqrt", "pow", "log1p", "gammaln", "true_div")


def without_clamp(explanation: Any, model: Any = None) -> Any:
    """Return an explanation whose advice does not bound a number inside of a log-density.

    Parameters
    ----------
    explanation : Explanation or None
    model : pymc.Model or None
        Whose variables the advice can name.
    """
    if explanation is None:
        return None
    cause, deeper = (
        replace(one, hint=_statistical(one, model))
        if one is not None and one.hint is not None and _is_for_a_call(one.hint, model)
        else one
        for one in (explanation.cause, explanation.deeper)
    )
    return replace(explanation, cause=cause, deeper=deeper)


def _is_for_a_call(hint, model):
    """Return whether advice bounds a number, or has the user check what the sampler gives."""
    names = [v.name for v in model.value_vars] if model is not None else ()
    is_input = INPUT.match(hint.text)
    bounds = any(CLAMP.search(text) for text in (hint.text, *hint.change))
    return bounds or (is_input is not None and is_input[1] in names)


def _statistical(cause, model):
    fact = cause.hint.text.partition(". ")[0].rstrip(".").removesuffix(" (input)")
    told = " ".join([cause.expression, *(o.name for o in cause.operands), *cause.hint.change[:1]])
    free = [
        rv.name
        for rv in (model.free_RVs if model is not None else ())
        if model.rvs_to_transforms[rv] is None and re.search(rf"\b{re.escape(rv.name)}\b", told)
    ]
    kind = "positive numbers" if cause.op in POSITIVE_ARGUMENT else "numbers in the domain"
    if len(free) == 1 and cause.op in POSITIVE_ARGUMENT:
        advice = (
            f"Give {free[0]} a prior of {kind}, such as pm.LogNormal or pm.Gamma, if {cause.op} of "
            "it is meant."
        )
    else:
        advice = f"Use a prior or a link that has {kind} there, such as pm.math.exp."
    bound = "A bound in a log-density would change the posterior."
    return replace(cause.hint, text=f"{fact}. {advice} {bound}", change=())
