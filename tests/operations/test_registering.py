"""An operation of one's own: one call states all, and every part of the package uses it."""

import importlib.util

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from made_up import LogLength, LogOdds, log_length, log_odds

import theanoguard
from theanoguard import GuardError, GuardMode, lint
from theanoguard.ops import register_operation

x, m = pt.dvector("x"), pt.dmatrix("m")
BACKENDS = ["c", "numba", *(["jax"] if importlib.util.find_spec("jax") else [])]


@pytest.fixture(scope="module", params=BACKENDS)
def mode(request):
    """The settings of a guard on a backend that can compute both operations."""
    if request.param == "jax":
        import jax.numpy as jnp
        from pytensor.link.jax.dispatch import jax_funcify

        jax_funcify.register(LogOdds, lambda op, **_: lambda p: jnp.log(p) - jnp.log1p(-p))
        jax_funcify.register(
            LogLength, lambda op, **_: lambda v: 0.5 * jnp.log(jnp.square(v).sum(axis=op.axis))
        )
    return {"backend": request.param}


def event_of(f, *values):
    with pytest.raises(GuardError) as caught, np.errstate(all="ignore"):
        f(*map(np.array, values))
    return caught.value


@pytest.mark.filterwarnings("ignore:Numba will use object mode", "ignore:.*object mode")
def test_the_guard_finds_what_an_elementwise_operation_makes(mode):
    f = pytensor.function([x], pt.cumsum(log_odds(x)), mode=GuardMode(**mode))
    assert not f(np.array([0.5, 0.5])).any()
    event = event_of(f, [0.5, 2.0, 0.0]).event
    assert (event.kind, event.first_index) == ("nan", (1,))
    assert event_of(f, [0.5, 0.0]).event.kind == "inf"


@pytest.mark.filterwarnings("ignore:Numba will use object mode", "ignore:.*object mode")
def test_the_guard_knows_which_row_a_reduction_reads(mode):
    """The Inf of one row is meant, and excuses no other row."""
    used = pt.bmatrix("used")
    masked = pt.switch(used, m, -np.inf)
    f = pytensor.function([m, used], log_length(masked), mode=GuardMode(**mode))
    some = np.array([[1, 0], [1, 1]], "int8")
    with np.errstate(all="ignore"):
        assert f(np.ones((2, 2)), some)[0] == np.inf
    event = event_of(f, [[1.0, 1.0], [0.0, 0.0]], some).event
    assert (event.kind, event.first_index, event.n_bad) == ("inf", (1,), 1)


@pytest.mark.usefixtures("needs_cxx")
def test_an_operation_that_signals_is_not_read():
    f = pytensor.function([x], pt.cumsum(log_odds(x)), mode=GuardMode(big_is_error=False))
    assert GuardMode.summary(f).dropped.get("flag") == 1
    assert event_of(f, [0.0]).event.kind == "inf"


def test_the_report_names_the_operation_and_the_row():
    f = pytensor.function([m], log_length(m * 2), mode=GuardMode())
    error = event_of(f, [[1.0, 1.0], [0.0, 0.0]])
    assert "log_length" in str(error)
    assert str(error).splitlines()[0].count("[1]")
    assert error.explanation.cause.op == "log_length"
    g = pytensor.function([x], log_odds(x), mode=GuardMode())
    text = " ".join(str(event_of(g, [0.5, 2.0])).split())
    assert "log_odds(2.0) does not exist: x[1] must lie inside 0 to 1." in text


def test_the_linter_knows_the_domain_and_the_bounds():
    inside = pt.clip(x, 0.1, 0.9)
    assert [finding.rule for finding in lint(log_odds(x), seconds=0)] == ["out-of-domain"]
    assert "x must lie inside 0 to 1" in lint(log_odds(x), seconds=0)[0].why
    assert lint(log_odds(inside), seconds=0) == []
    assert lint(pt.sqrt(3 + log_odds(inside)), seconds=0) == []
    assert lint(pt.sqrt(log_length(pt.clip(m, 2, 3))), seconds=0) == []
    assert [f.rule for f in lint(pt.sqrt(log_length(m)), seconds=0)] == ["sqrt-at-zero"]


def test_the_exact_value():
    found = theanoguard.exact(log_odds(x), {x: np.array([1e-320, 0.5])})
    np.testing.assert_allclose(found.mid, [np.log(1e-320), 0.0], rtol=1e-12)
    found = theanoguard.exact(log_length(m), {m: np.array([[3e200, 4e200], [3.0, 4.0]])})
    np.testing.assert_allclose(found.mid, np.log([5e200, 5.0]), rtol=1e-15)


@pytest.mark.parametrize(
    "operation, settings, message",
    [
        (log_odds, {}, "operation must be a class, not Elemwise"),
        (LogOdds, {"makes": "big"}, "'nan' or 'inf'"),
        (LogOdds, {"depends": "slices"}, "is a scalar operation"),
        (LogOdds, {"domain": "positive"}, "no condition"),
        (LogLength, {"depends": "rows"}, "choose from everything, elements, slices"),
    ],
)
def test_what_cannot_be_stated(operation, settings, message):
    with pytest.raises(TypeError, match=message):
        register_operation(operation, **settings)


def test_a_dependence_can_be_a_function():
    class Shifted(LogLength):
        """Each row is computed from the one before it."""

        def make_node(self, v):
            return pt.basic.Apply(self, [v], [v.type()])

        def perform(self, node, inputs, storage):
            storage[0][0] = np.log(np.roll(inputs[0], 1, axis=0))

    def row_before(node, values, output, index):
        return [(0, ((index[0] - 1) % len(values[0]), *index[1:]))]

    register_operation(Shifted, depends=row_before)
    used = pt.bmatrix("used")
    f = pytensor.function([m, used], Shifted(0)(pt.switch(used, m, np.inf)), mode=GuardMode())
    event = event_of(f, [[1.0, 1.0], [0.0, 1.0]], np.array([[1, 0], [1, 1]], "int8")).event
    assert (event.kind, event.first_index, event.n_bad) == ("inf", (0, 0), 1)
