"""``compare`` on devices: which one a backend computes on, and why its numbers differ."""

import importlib.util

import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.tensor.math import Dot

from theanoguard import compare
from theanoguard._compare.reasons import Case, reason_of

pytestmark = pytest.mark.on_33

needs_jax = pytest.mark.skipif(
    importlib.util.find_spec("jax") is None, reason="JAX is not installed"
)


def has_gpu():
    import jax

    return jax.devices()[0].platform != "cpu"


@needs_jax
def test_xla_takes_subnormal_numbers_for_0():
    x = pt.fvector("x")
    y = pt.log(x * np.float32(1e-30))
    found = compare(y, {x: np.array([1.0, 1e-12], "float32")}, ["jax:cpu", "py"])
    first = found.modes["jax:cpu"].first
    assert first.op == "log"
    assert "a subnormal number of float32 (below 1.2e-38)" in first.reason
    assert "as XLA does on a CPU" in " ".join(str(found).split())


@needs_jax
def test_a_device_that_is_not_there():
    x = pt.dvector("x")
    found = compare(pt.exp(x), {x: np.ones(2)}, ["jax:cpu", "jax:tpu"])
    assert not found.modes["jax:cpu"].parted
    assert found.modes["jax:tpu"].not_run.startswith("left out, no device 'tpu': ")


def test_only_some_backends_have_devices():
    x = pt.dvector("x")
    with pytest.raises(ValueError, match="no mode 'numba:cuda'"):
        compare(pt.exp(x), {x: np.ones(2)}, ["numba:cuda"])


def case(op, relative=1e-3, device="gpu", dtype="float32"):
    value = np.array([1e-9, 1.0], dtype)  # (a sum that cancels has no relative error to speak of)
    found = value + np.array(relative, dtype)
    return Case(op, ("y", "x"), (value, value), (found, value), device)


def test_reasons_on_a_gpu():
    product, total = pt.dot(pt.fmatrix(), pt.fmatrix()).owner.op, pt.sum(pt.fvector()).owner.op
    assert isinstance(product, Dot)
    assert "tf32" in reason_of(case(product))
    assert reason_of(case(product, relative=0.5)) == ""
    assert reason_of(case(product, dtype="float64")) == ""
    assert reason_of(case(product, device="cpu")) == ""
    assert "adds in another order" in reason_of(case(total))
    assert reason_of(case(pt.exp(pt.fvector()).owner.op)) == ""


@needs_jax
def test_products_on_a_gpu():
    if not has_gpu():
        pytest.skip("needs a GPU")
    a = pt.fmatrix("a")
    value = np.random.default_rng(1).normal(size=(500, 500)).astype("float32")
    found = compare(a @ a, {a: value}, ["jax:cpu", "jax:cuda"], ulp=1, rtol=1e-6)
    assert "tf32" in found.modes["jax:cuda"].first.reason
