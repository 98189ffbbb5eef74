"""What keeps a parameter of a distribution inside of its domain: a prior, or a link."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from pytensor.graph.traversal import ancestors
from pytensor.tensor.elemwise import DimShuffle

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


DOMAINS = (
    Domain(r"0 <= (\w+) <= 1", lambda v: (v >= 0) & (v <= 1), "pm.Beta", "pm.math.sigmoid"),
    Domain(r"(\w+) > 0", lambda v: v > 0, "pm.HalfNormal or pm.Gamma", "pm.math.exp"),
    Domain(r"(\w+) >= 0", lambda v: v >= 0, "pm.HalfNormal or pm.Gamma", "pm.math.exp"),
)

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
    for domain in DOMAINS:
        for told in re.finditer(domain.condition, check.partition(" (")[0]):
            if text := _advice(model, variable, told[1], domain, evaluate):
                return text
    return ""


def _advice(model, variable, name, domain, evaluate):
    free = set(model.free_RVs)
    _, parameters = support_of(variable)
    computed = [v for v in parameters if free & set(ancestors([v]))]
    values = evaluate(model.replace_rvs_by_values(computed)).values()
    outside = [
        v for v, value in zip(computed, values, strict=True) if not np.all(domain.holds(value))
    ]
    if len(outside) != 1:  # (of several, it is not known which one PyMC's name is for)
        return ""
    random = written(outside[0])
    if random in free:
        return f"Give {random.name} a prior in its domain, such as {domain.priors}."
    own = WITH_LOGIT.get(getattr(variable.owner.op, "name", None) or "")
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

INPUT = re.compile(r"(\S+?)(?:\[[^]]*\])? is .* \(input\)\. Check it before the call")
"""The advice on an input of a function; the inputs of a log-density are the sampler's."""

POSITIVE = ("log", "sqrt", "pow", "log1p", "gammaln", "true_div")


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
    kind = "positive numbers" if cause.op in POSITIVE else "numbers in the domain"
    if len(free) == 1 and cause.op in POSITIVE:
        advice = (
            f"Give {free[0]} a prior of {kind}, such as pm.LogNormal or pm.Gamma, if {cause.op} of "
            "it is meant."
        )
    else:
        advice = f"Use a prior or a link that has {kind} there, such as pm.math.exp."
    bound = "A bound in a log-density would change the posterior."
    return replace(cause.hint, text=f"{fact}. {advice} {bound}", change=())
