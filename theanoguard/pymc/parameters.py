"""The parameters of a random variable as the model gives them: PyMC computes its own from these.

The variables of a model are made inside of this module's wrapper, so :mod:`~theanoguard.pymc.modes`
does not hide its frames.
"""

import inspect
from collections.abc import Iterable, Mapping
from functools import wraps
from typing import Any

import numpy as np
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor import constant
from pytensor.tensor.type import integer_dtypes

from theanoguard._steps import attempt, failures
from theanoguard.pymc.broadcasts import Lengths, crossing

OF_OTHERS = (
    "NormalMixture",
    "OrderedLogistic",
    "OrderedProbit",
    *(f"ZeroInflated{name}" for name in ("Poisson", "Binomial", "NegativeBinomial")),
    *(f"Hurdle{name}" for name in ("Poisson", "NegativeBinomial", "Gamma", "LogNormal")),
)
"""PyMC's classes that make another distribution of the parameters that they are given."""


def noting_parameters(original: Any) -> Any:
    """Wrap how a distribution makes a random variable; note the parameters that it is given."""
    create = original.__func__

    @wraps(create)
    def __new__(cls: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        names = inspect.signature(cls.dist).parameters
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        try:
            made = create(cls, name, *args, **kwargs)
        except ValueError as error:
            with failures():
                attempt("the shapes of the parameters", None, _note_shapes, error, name, given)
            raise
        made.tag.given_to = cls.__name__
        with failures():
            attempt("the parameters", None, _note_parameters, made, names, given)
            attempt("the data", None, _note_data, made, given.get("observed"))
        return made

    return staticmethod(__new__)


def _note_parameters(made: Any, names: Iterable[str], given: Mapping[str, Any]) -> None:
    made.tag.given_parameters = {
        name: _as_variable(given[name]) for name in names if given.get(name) is not None
    }


def _note_data(made: Any, observed: Any) -> None:
    """Keep data with fractions, of which PyMC makes whole numbers without a word."""
    if observed is None or made.dtype not in integer_dtypes or isinstance(observed, Variable):
        return
    data = np.ma.getdata(observed) if np.ma.isMaskedArray(observed) else np.asarray(observed)
    if data.dtype.kind == "f":
        made.tag.given_data = data


def given_data(variable: Any) -> Any:
    """Return the data with fractions that an observed variable of whole numbers was given."""
    return getattr(variable.tag, "given_data", None)


def _as_variable(parameter: Any) -> Any:
    """Return a number or an array as a constant, and None for what is no parameter."""
    if isinstance(parameter, Variable):
        return parameter
    if isinstance(parameter, float | int | np.number | np.ndarray):
        return constant(parameter)
    return None


def _note_shapes(error: ValueError, name: str, given: Mapping[str, Any]) -> None:
    """Add to PyMC's error which parameter and which data do not fit, and why."""
    if given.get("observed") is not None:
        text = shapes_text(name, given, np.shape(given["observed"]))
        if text:
            error.add_note(text)


def shapes_text(name: str, given: Mapping[str, Any], data: tuple[Any, ...]) -> str:
    """Say which parameter has other dimensions than the data, and what to do; "" if none has."""
    for key, parameter in given.items():
        if not isinstance(parameter, Variable) or not parameter.type.ndim:
            continue
        if parameter.type.ndim == len(data):
            continue
        shape = Lengths()[parameter]
        text = f"{name}: {key} has the shape {shape}, and the data {data}"
        if len(shape) < len(data):
            is_column = data == (*shape, 1)
            return f"{text}.\n  Give the data the shape of {key}, by .ravel()." if is_column else ""
        found = crossing(parameter, ())
        remedy = f"  Give {key} the shape of the data, by .ravel()."
        flat = f"{text}.\n{remedy}" if shape == (*data, 1) else f"{text}."
        return flat if found is None else f"{text}: {found}"
    return ""


def misfits(model: Any) -> dict[Any, str]:
    """Say of which observed variables the data and a parameter have other shapes.

    Only a variable whose own term PyMC cannot build counts.
    """
    none: dict[Any, str] = {}
    with failures():  # (the error of the model is on its way)
        return attempt("the shapes of the data", none, _misfits, model)


def _misfits(model: Any) -> dict[Any, str]:
    import pymc

    texts = {}
    for rv in model.observed_RVs:
        value = model.rvs_to_values[rv]
        try:
            pymc.logp(rv, value, warn_rvs=False)
        except ValueError:
            texts[rv] = shapes_text(rv.name, given_parameters(rv), Lengths()[value])
    return {rv: text for rv, text in texts.items() if text}


def given_parameters(variable: Any) -> Mapping[str, Any]:
    """Return the parameters by their names, and None for what is neither variable nor number.

    There are none if theanoguard was imported after the model was built.  In the copy of a model a
    parameter is the variable that was made by the same call.
    """
    given = getattr(variable.tag, "given_parameters", {})
    if not given:
        return given
    own = list(ancestors([variable]))
    found = {name: v if v is None else _counterpart(v, own) for name, v in given.items()}
    return {name: v for name, v in found.items() if v is not None or given[name] is None}


def _counterpart(parameter: Any, own: list[Any]) -> Any:
    if isinstance(parameter, Constant) or parameter in own:
        return parameter
    trace = getattr(parameter.tag, "trace", None)
    same = (v for v in own if v.type == parameter.type and getattr(v.tag, "trace", None) is trace)
    return next(same, None) if trace else None


def distribution_of(variable: Any) -> str:
    """Return the name of PyMC's class that made a random variable, "" if it is not known."""
    return getattr(variable.tag, "given_to", "")


def class_of(variable: Any) -> Any:
    """Return PyMC's class that made a random variable; None if it is not known or not PyMC's.

    An unknown name is not asked of PyMC, which would look for it in libraries that it imports.
    """
    import pymc

    return vars(pymc).get(distribution_of(variable))
