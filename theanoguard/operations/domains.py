"""Which values of their parameters random variables refuse.

NumPy's and SciPy's generators refuse them with an error.  Numba's and JAX's draw numbers of no
distribution.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.tensor.random.op import RandomVariable


@dataclass(frozen=True)
class ParameterDomain:
    """The interval that a parameter, or the difference of two parameters, must lie in."""

    name: str  # of the parameter
    parameter: int  # its position among the parameters
    low: float = 0.0
    high: float = np.inf
    is_open: bool = False  # whether `low` itself is refused
    less: int | None = None  # position of a parameter that is subtracted
    than: str = ""  # its name

    def value(self, parameters: Sequence[Any]) -> np.ndarray:
        """Return what must lie in the interval; nothing if two parameters have different shapes."""
        value = np.asarray(parameters[self.parameter], float)
        if self.less is None:
            return value
        less = np.asarray(parameters[self.less], float)
        try:
            return value - less
        except ValueError:  # (the draw is going to say so)
            return np.empty(0)

    def outside(self, value: Any) -> Any:
        """Return which elements lie outside.  NaN does not: an operation before has made it.

        The value is an array, or a variable of PyTensor.

        Examples
        --------
        >>> ParameterDomain("p", 0, high=1.0).outside(np.array([-1.0, 0.0, 1.0, 1.5, np.nan]))
        array([ True, False, False,  True, False])
        """
        too_low = value <= self.low if self.is_open else value < self.low
        return too_low if self.high == np.inf else too_low | (value > self.high)


def _in_order(*named: str) -> tuple[ParameterDomain, ...]:
    """Return the domains of parameters in order.

    Each is a name, and after it ``> 0``, ``>= 0``, ``0..1`` or ``(0..1``, or nothing if it is free.
    """
    kinds: dict[str, dict[str, Any]] = {
        ">= 0": {},
        "> 0": {"is_open": True},
        "0..1": {"high": 1.0},
        "(0..1": {"high": 1.0, "is_open": True},
    }
    split = [text.partition(" ") for text in named]
    return tuple(
        ParameterDomain(name, i, **kinds[kind]) for i, (name, _, kind) in enumerate(split) if kind
    )


_LOCATED = _in_order("mu", "sigma >= 0")

DOMAINS: dict[str, tuple[ParameterDomain, ...]] = {
    **dict.fromkeys(("normal", "lognormal", "halfnormal", "laplace", "logistic"), _LOCATED),
    **dict.fromkeys(("cauchy", "halfcauchy", "gumbel"), _LOCATED),
    "t": _in_order("df > 0", "mu", "sigma >= 0"),
    "bernoulli": _in_order("p 0..1"),
    "geometric": _in_order("p (0..1"),
    "binomial": _in_order("n >= 0", "p 0..1"),
    "negative_binomial": _in_order("n > 0", "p (0..1"),
    "multinomial": _in_order("n >= 0", "p 0..1"),
    "hypergeometric": _in_order("ngood >= 0", "nbad >= 0", "nsample >= 0"),
    "poisson": _in_order("lam >= 0"),
    "exponential": _in_order("scale >= 0"),
    "gamma": _in_order("shape >= 0", "scale >= 0"),
    "invgamma": _in_order("shape >= 0", "scale >= 0"),
    "gengamma": _in_order("alpha > 0", "p > 0", "lambd >= 0"),
    "beta": _in_order("alpha > 0", "beta > 0"),
    "dirichlet": _in_order("alpha >= 0"),
    "weibull": _in_order("shape >= 0"),
    "pareto": _in_order("b > 0", "scale >= 0"),
    "truncexpon": _in_order("b > 0", "loc", "scale >= 0"),
    "vonmises": _in_order("mu", "kappa >= 0"),
    "wald": _in_order("mean > 0", "scale > 0"),
    "uniform": (ParameterDomain("high", 1, less=0, than="low"),),
    "triangular": (
        ParameterDomain("mode", 1, less=0, than="left"),
        ParameterDomain("right", 2, less=1, than="mode"),
    ),
}
"""The domains of the parameters of random variables, by their names."""


def random_variable_of(op: Op) -> RandomVariable | None:
    """Return the random variable that an operation draws, or None.

    For Numba, PyTensor wraps it in another operation.
    """
    core = getattr(op, "core_op", op)
    return core if isinstance(core, RandomVariable) else None


def domains_of(node: Apply) -> tuple[ParameterDomain, ...]:
    """Return the domains of the parameters of a node; nothing if it is not known to have any."""
    op = random_variable_of(node.op)
    return () if op is None else DOMAINS.get(str(op.name).removesuffix("_rv"), ())


def parameters_of(node: Apply, inputs: Sequence[Any]) -> Sequence[Any]:
    """Return those inputs of a node, or their values, that are parameters of a random variable."""
    op = random_variable_of(node.op)
    return () if op is None else inputs[-len(op.ndims_params) :]


class OutOfDomain(ValueError):
    """A parameter of a random variable is one that it refuses."""


def check_parameters(node: Apply, values: Sequence[Any]) -> None:
    """Raise :class:`OutOfDomain` if a parameter of a random variable lies outside of its domain."""
    for domain in domains_of(node):
        if domain.outside(domain.value(parameters_of(node, values))).any():
            is_pair = domain.less is not None
            raise OutOfDomain(
                f"{domain.than} > {domain.name}" if is_pair else f"{domain.name} out of domain"
            )
