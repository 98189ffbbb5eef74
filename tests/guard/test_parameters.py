"""Parameters of random variables outside of their domains are errors on every backend."""

import re

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytensor.tensor.random.basic as basic
import pytest
from pytensor.tensor.random.op import RandomVariable

from theanoguard import GuardMode
from theanoguard.operations.domains import DOMAINS

OPS = {op.name: op for op in vars(basic).values() if isinstance(op, RandomVariable)}
INTEGERS = {"hypergeometric": (0, 1, 2), "binomial": (0,), "multinomial": (0,)}
SOUND = {"hypergeometric": (5, 5, 3), "triangular": (0.0, 0.5, 1.0), "uniform": (0.0, 1.0)}


DRAWN_FROM = {"halfnormal": "normal", "lognormal": "normal", "invgamma": "gamma"}
"""What PyTensor draws on JAX in place of some random variables."""


@pytest.fixture
def backend(request):
    return request.config.getoption("--backend")


def drawn(name, backend):
    """A function that draws, and arguments that are sound."""
    op = OPS[name]
    arguments, variables = [], []
    for i, number in enumerate(SOUND.get(name, (0.5,) * len(op.ndims_params))):
        dtype = "int64" if i in INTEGERS.get(name, ()) else "float64"
        arguments.append(np.full(2, 3 if number == 0.5 and dtype == "int64" else number, dtype))
        variables.append(pt.tensor(f"x{i}", dtype=dtype, shape=(None,)))
    given = [
        v[0] if ndim == 0 and 1 in op.ndims_params else v
        for v, ndim in zip(variables, op.ndims_params, strict=True)
    ]
    draw = op(*given, rng=pytensor.shared(np.random.default_rng(1)))
    return pytensor.function(variables, draw, mode=GuardMode(backend=backend)), arguments


def wrong(domain, arguments):
    """Arguments of which the last element of one lies outside of a domain, and that number."""
    changed = [x.copy() for x in arguments]
    x = changed[domain.parameter]
    at = 0 if len(arguments) == 2 and x.dtype == "int64" else -1
    low = arguments[domain.less][at] if domain.less is not None else domain.low
    x[at] = low if domain.is_open else low - 1
    return changed, x[at]


@pytest.mark.parametrize("name", sorted(DOMAINS))
def test_a_parameter_out_of_its_domain_is_named(name, backend):
    if backend == "jax" and name in ("gengamma", "negative_binomial"):
        pytest.skip("PyTensor draws it on JAX from others, with parameters that they do not refuse")
    fn, arguments = drawn(name, backend)
    try:
        fn(*arguments)
    except (NotImplementedError, TypeError) as error:
        pytest.skip(f"PyTensor cannot draw it: {error}")
    said = DRAWN_FROM.get(name, name) if backend == "jax" else name
    for domain in DOMAINS[name]:
        changed, number = wrong(domain, arguments)
        with pytest.raises(ValueError) as caught:
            fn(*changed)
        note = " ".join(" ".join(caught.value.__notes__).split())
        told = re.search(rf"The parameter {domain.name} of {said} is (\S+?)(,| at) ", note)
        assert float(told[1]) == number
        assert "test_parameters.py" in note
    fn(*arguments)
