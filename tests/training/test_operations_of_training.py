"""The operations behind clipping and guarded updates: their C code, and what NumPy gives."""

import itertools

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode
from pytensor.graph.traversal import ancestors

from theanoguard import GuardError, GuardMode
from theanoguard.training import guarded_updates
from theanoguard.training.inplace import FirstBadOrProved, GatedGemm
from theanoguard.training.ops import (
    FirstBad,
    Largest,
    ScaleEach,
    SquaredNorms,
    Summarise,
    not_finite,
    summarise,
)

pytestmark = pytest.mark.on_33

DTYPES = ("float32", "float64")
LINKERS = ("cvm", "py") if pytensor.config.cxx else ("py",)
LAYOUTS = {
    "C": lambda whole: whole[:3, :4].copy(),
    "F": lambda whole: np.asfortranarray(whole[:3, :4]),
    "strided": lambda whole: whole[::2, 1::2],
    "reversed": lambda whole: whole[2::-1, 3::-1],
    "broadcast": lambda whole: np.broadcast_to(whole[0, :4], (3, 4)),
    "empty": lambda whole: whole[:0, :4],
}
DRAWN = [0.0, -0.0, 1.0, -3.5, 1e-30, 2e30, -3e38]


def compiled(op, inputs, linker):
    return pytensor.function(
        inputs, op(*inputs), mode=Mode(linker, None), on_unused_input="ignore", trust_input=True
    )


def drawn(dtype, layout, bad, rng):
    """Return an array of a layout that may hold one NaN or Inf."""
    whole = rng.choice(DRAWN, (6, 9)).astype(dtype)
    array = LAYOUTS[layout](whole)
    if bad is not None and array.size:
        places = np.argwhere(np.ones(array.shape, bool))
        at = places[rng.integers(len(places))]
        whole[np.nonzero(whole == array[tuple(at)])] = bad
        array = LAYOUTS[layout](whole)
    return array


def first_bad(arrays, limit):
    for i, a in enumerate(arrays):
        largest = np.finfo(a.dtype).max if limit is None else limit
        if not (np.abs(a) <= largest).all():
            return i
    return -1


def largest(arrays):
    return [np.abs(a).max(initial=0) if np.isfinite(a).all() else np.nan for a in arrays]


def squared_norms(arrays):
    return [np.square(a.astype("float64")).sum() for a in arrays]


OPERATIONS = {
    "first bad": (FirstBad(), lambda arrays: first_bad(arrays, None)),
    "first above 2": (FirstBad(2.0), lambda arrays: first_bad(arrays, 2.0)),
    "largest": (Largest(), largest),
    "squared norms": (SquaredNorms(), squared_norms),
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("linker", LINKERS)
@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_over_arrays(name, linker, dtype):
    op, expected = OPERATIONS[name]
    f = compiled(op, [pt.matrix(dtype=dtype) for _ in range(3)], linker)
    rng = np.random.default_rng(0)
    bads = list(itertools.product((None, np.nan, -np.inf), repeat=3))
    for layout, bad in itertools.product(LAYOUTS, bads):
        arrays = [drawn(dtype, layout, one, rng) for one in bad]
        np.testing.assert_allclose(f(*arrays), expected(arrays), rtol=1e-6)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("linker", LINKERS)
def test_scaling(linker, dtype):
    arrays = [pt.matrix(dtype=dtype) for _ in range(2)]
    rng = np.random.default_rng(1)
    for ndim in (1, 2):
        factors = pt.dvector()
        f = pytensor.function(
            [factors, *arrays],
            ScaleEach(2)(factors, *arrays, return_list=True),
            mode=Mode(linker, None),
        )
        for values in itertools.product((0.0, 1.0, 0.25), repeat=ndim):
            for layout, bad in itertools.product(LAYOUTS, (None, np.nan, np.inf)):
                given = [drawn(dtype, layout, bad, rng) for _ in range(2)]
                for array, scaled, factor in zip(
                    given, f(np.array(values), *given), np.broadcast_to(values, 2), strict=True
                ):
                    expected = array * np.dtype(dtype).type(factor) if factor else 0 * array.real
                    expected = np.zeros_like(array) if factor == 0 else expected
                    np.testing.assert_array_equal(scaled, expected)
                    assert scaled.dtype == dtype


def test_scaling_returns_the_same_array_for_one():
    x = pt.dvector("x")
    f = pytensor.function(
        [pytensor.In(x, borrow=True)],
        pytensor.Out(ScaleEach(1)(np.ones(1), x), borrow=True),
        mode=Mode(LINKERS[0], None),
    )
    value = np.ones(3)
    assert np.shares_memory(f(value), value)


@pytest.mark.parametrize("dtype", [*DTYPES, "float16", "int32"])
def test_summaries(dtype):
    rng = np.random.default_rng(2)
    arrays = []
    for layout, bad in itertools.product(LAYOUTS, (None, np.nan, np.inf)):
        number = "float32" if dtype in ("float16", "int32") else dtype
        array = np.clip(drawn(number, layout, bad, rng), -100, 100)
        arrays.append(np.nan_to_num(array).astype(dtype) if dtype == "int32" else array)
    for array, found in zip(arrays, summarise(arrays), strict=True):
        numbers = array.astype("float64")
        good = numbers[np.isfinite(numbers)]
        assert found.size == array.size
        assert found.n_nan == np.isnan(numbers).sum() and found.n_inf == np.isinf(numbers).sum()
        if not good.size:
            assert all(map(np.isnan, (found.min, found.max, found.mean)))
            continue
        np.testing.assert_allclose(
            [found.min, found.max, found.mean, found.norm, found.zeros],
            [good.min(), good.max(), good.mean(), np.linalg.norm(good), (numbers == 0).mean()],
            rtol=1e-6,
            atol=1e-12,
        )
    assert not_finite(arrays) == [
        i for i, a in enumerate(arrays) if not np.isfinite(a.astype("float64")).all()
    ]


@pytest.mark.parametrize("op", [Largest(), SquaredNorms(), Summarise()], ids=str)
def test_the_guard_does_not_report_what_they_say_of_bad_arrays(op):
    x = pt.dvector("x")
    f = pytensor.function(
        [x], op(x) if op != Summarise() else op(x)[0, :6], mode=GuardMode(check_inputs=False)
    )
    f(np.array([1.0, 2.0]))
    if op == Largest():
        f(np.array([1.0, np.nan]))


# ---------------------------------------------------------------- updates made by BLAS in place


def operands(dtype, rng):
    """Return ``z, a, x, y, b`` whose product may be near the largest number of the dtype."""
    top = float(np.log10(np.finfo(dtype).max))
    first = rng.uniform(1, top - 1)
    scale = 10.0 ** np.array([first, top - first + rng.uniform(-4, 1)])
    x = scale[0] * rng.choice([0.0, 1e-3, 1.0, -1.0], (3, 4))
    y = scale[1] * rng.choice([0.0, 1e-3, 1.0, -1.0], (4, 2))
    z = 10.0 ** rng.uniform(0, top) * rng.choice([0.0, 1.0, -1.0], (3, 2))
    a, b = rng.choice([0.0, 1.0, -0.5, 1e3, -1e-3], 2)
    with np.errstate(over="ignore"):
        return [np.asarray(v, dtype) for v in (z, a, x, y, b)]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("linker", LINKERS)
def test_what_is_proved_is_true(linker, dtype):
    """No update is called good whose value is not finite, and none bad whose value is."""
    first, largest_of = pt.lscalar(), pt.dvector()
    kinds = [pt.matrix, pt.scalar, pt.matrix, pt.matrix, pt.scalar] * 2
    given = [kind(dtype=dtype) for kind in kinds]
    op = FirstBadOrProved((4, 0), (2, 3))
    f = compiled(op, [first, largest_of, *given], linker)
    rng = np.random.default_rng(3)
    seen = set()
    for _ in range(400):
        updates = [operands(dtype, rng) for _ in range(2)]
        looked_at = int(rng.choice([-1, -1, 0, 1]))
        magnitudes = largest([v for z, _, x, y, _ in updates for v in (z, x, y)])
        new = [b * z + a * (x @ y) for z, a, x, y, b in updates]
        bad = [op.gemms[i] for i, v in enumerate(new) if not np.isfinite(v).all()]
        bad += [op.computed[looked_at]] if looked_at >= 0 else []
        found = int(
            f(np.array(looked_at), np.array(magnitudes, "float64"), *updates[0], *updates[1])
        )
        if np.isfinite(magnitudes).all():
            assert found == min(bad, default=-1), updates
        seen.add(found)
    assert seen == {-1, 0, 2, 3, 4}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("linker", LINKERS)
def test_a_gate(linker, dtype):
    ok, z, x, y = pt.bscalar(), *(pt.matrix(dtype=dtype) for _ in range(3))
    a, b = pt.scalar(dtype=dtype), pt.scalar(dtype=dtype)
    inputs = [pytensor.In(ok), pytensor.In(z, mutable=True), *map(pytensor.In, (a, x, y, b))]
    out = GatedGemm()(pt.eq(ok, 1), z, a, x, y, b)
    mode = Mode(linker, None)
    f = pytensor.function(inputs, pytensor.Out(out, borrow=True), mode=mode, accept_inplace=True)
    rng = np.random.default_rng(4)
    for opens in (0, 1, 1, 0):
        before, left, right = (rng.normal(size=s).astype(dtype) for s in ((3, 2), (3, 4), (4, 2)))
        value = before.copy()
        alpha, beta = np.asarray(0.5, dtype), np.asarray(-2.0, dtype)
        result = f(opens, value, alpha, left, right, beta)
        expected = -2 * before + 0.5 * left @ right if opens else before
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)
        assert np.shares_memory(result, value)


def test_a_nan_of_the_guarded_update_is_the_updates_own():
    """What the operations say of an update is no value of the user's."""
    x = pt.dvector("x")
    f = pytensor.function([x], Largest()(pt.log(x)), mode=GuardMode())
    with pytest.raises(GuardError, match="log"):
        f(np.array([1.0, -1.0]))


def test_numba_runs_them_by_python_without_a_warning(recwarn):
    """PyTensor warned about object mode, once for each, which the user cannot change."""
    pytest.importorskip("numba")
    import theanoguard.training.numba  # noqa: F401
    from theanoguard._pytensor.numba import numba_funcify

    w, new = pytensor.shared(np.ones(2)), pt.dvector()
    updates = guarded_updates({w: new})
    nodes = {type(v.owner.op).__name__: v.owner for v in ancestors([*updates.values()]) if v.owner}
    for name in ("FirstBad", "StopAtBad", "Keep"):
        numba_funcify(nodes[name].op, node=nodes[name])
    assert [str(w.message) for w in recwarn if "object mode" in str(w.message)] == []
