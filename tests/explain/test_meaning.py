"""What a fault means: the arithmetic lost a value, there is none, or it is only large."""

import re
from pathlib import Path

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from models import with_change
from pytensor.compile.mode import Mode

import theanoguard
from theanoguard import GuardError, GuardMode

pytestmark = pytest.mark.in_python


def softmax_with_a_rest():
    h = pt.dvector("h")
    p = pt.exp(h) / (1 + pt.exp(h).sum())
    return [h], p, [np.array([21.0, 22.0, 800.0])]


def tanh_by_hand():
    x = pt.dvector("x")
    t = (pt.exp(x) - pt.exp(-x)) / (pt.exp(x) + pt.exp(-x))
    return [x], t, [np.array([21.0, 800.0])]


def poisson_rate():
    h, y, size = pt.dvectors("h", "y", "size")
    rate = size * pt.exp(h)
    ll = (y * pt.log(rate) - rate).sum()
    return [h, y, size], ll, [np.array([1.0, -800.0]), np.array([2.0, 1.0]), np.full(2, 3.0)]


def variance_by_moments():
    v = pt.dvector("v")
    spread = pt.sqrt((v**2).mean() - v.mean() ** 2)
    return [v], spread, [np.full(7, 3.3)]


def log_of_a_saturated_tanh():
    x = pt.dvector("x")
    cost = pt.log(1 - pt.tanh(x) ** 2).sum()
    return [x], cost, [np.array([20.0, 1.0])]


def indexed_softmax():
    z, y = pt.dmatrix("z"), pt.lvector("y")
    q = pt.special.softmax(z, axis=1)
    loss = -pt.log(q[pt.arange(y.shape[0]), y]).mean()
    return [z, y], [loss, q], [np.array([[0.0, 1000.0, 500.0], [1.0, 2.0, 3.0]]), np.array([0, 1])]


LOST = {
    indexed_softmax: (
        "loss is 500.704;",
        "theanoguard.stable.log_softmax(z, axis=1)[pt.arange(y.shape[0]), y]",
    ),
    softmax_with_a_rest: ("p[2] is 1;", "pt.exp(h - pt.softplus(theanoguard.stable.logsumexp(h)))"),
    tanh_by_hand: ("t[1] is 1;", "pt.tanh(x)"),
    poisson_rate: ("ll is -802.859;", "(y * (pt.log(size) + h) - rate).sum()"),
    variance_by_moments: ("spread is 0;", "pt.sqrt(v.var())"),
    log_of_a_saturated_tanh: (
        "cost is -39.4813;",
        "(2 * (np.log(2) - x - pt.softplus(-2 * x))).sum()",
    ),
}


def negative_scale():
    d, sigma = pt.dvector("d"), pytensor.shared(-0.2, name="sigma")
    nll = (pt.log(sigma) + 0.5 * (d / sigma) ** 2).mean()
    return [d], nll, [np.array([0.1, 0.2])], {sigma: sigma - 0.25 * pytensor.grad(nll, sigma)}


def step_after_five():
    t = pt.dscalar("t")
    return [t], 0.1 / (t - 5), [5.0]


def reaction_time():
    rt, ndt = pt.dvector("rt"), pt.dscalar("ndt")
    logp = (-pt.log(rt - ndt)).sum()
    return [rt, ndt], [logp, pytensor.grad(logp, ndt)], [np.array([0.5, 0.3]), 0.4]


def front_page():
    x, w = pt.dvector("x"), pytensor.shared(np.array([0.51, 2.03, 0.12]), name="w")
    loss = -pt.log(x - w).sum()
    return [x], loss, [np.array([1.0, 1.5, 2.0])], {w: w + 0.01 * x}


def reaction_time_of_constants():
    ndt = pt.dscalar("ndt")
    return [ndt], (-pt.log(np.array([0.5, 0.3]) - ndt)).sum(), [0.4]


def mean_of_nothing():
    w = pt.dvector("w")
    large = w[w > 5]
    return [w], large.mean(), [np.ones(3)]


def padding():
    pad = pt.dmatrix("pad")
    size = pt.sqrt((pad**2).sum(axis=1, keepdims=True))
    return [pad], pad / size, [np.array([[1.0, 2.0], [0.0, 0.0]])]


def constant_row():
    x = pt.dmatrix("x")
    z = (x - x.mean(axis=1, keepdims=True)) / x.std(axis=1, keepdims=True)
    return [x], z, [np.array([[1.0, 2.0], [0.25, 0.25]])]


WITHOUT_VALUE = {
    negative_scale: ("log(-0.2) does not exist: sigma must be positive.", "sigma = exp(log_sigma)"),
    step_after_five: ("0.1 / 0.0 does not exist: t - 5 must not be 0.", "t is 5.0 (input)."),
    reaction_time: (
        "log(-0.1) does not exist: (rt - ndt)[1]",
        "ndt = 0.4 is above rt[1] = 0.3, and must be below. A log-density rejects such a proposal:"
        " switch(ndt < rt, log(switch(ndt < rt, rt - ndt, 1)), -inf).",
    ),
    front_page: (
        "log(-0.53) does not exist: (x - w)[1] must be positive.",
        "w[1] = 2.03 is above x[1] = 1.5, and must be below.",
    ),
    reaction_time_of_constants: (
        "log(-0.1) does not exist:",
        "ndt = 0.4 is above 0.3, and must be below.",
    ),
    mean_of_nothing: ("0.0 / 0.0 does not exist:", "the selection is empty."),
    padding: ("0.0 / 0.0 does not exist: size[1, 0]", "pad[1, :] is 0 throughout (input)."),
    constant_row: ("0.0 / 0.0 does not exist:", "x[1, :] is constant: 0.25."),
}


def explained(build):
    """Return the explanation of a call that fails."""
    inputs, outputs, arguments, *updates = build()
    # (PyTensor would compute some of these formulas in the other way)
    mode = GuardMode(True, True, False).excluding("stabilize", "specialize")
    fn = pytensor.function(inputs, outputs, updates=updates[0] if updates else None, mode=mode)
    with pytest.raises(GuardError) as caught:
        fn(*arguments)
    return caught.value.explanation


def results_with_change(build, change):
    """What a function of this file returns with the lines that a report prints."""
    names = {"__name__": "printed"}
    exec(compile(with_change(Path(__file__), build.__name__, change), __file__, "exec"), names)
    inputs, outputs, arguments, *updates = names[build.__name__]()
    outputs = outputs if isinstance(outputs, list) else [outputs]
    updates = updates[0] if updates else None
    fn = pytensor.function(inputs, outputs, updates=updates, mode=Mode("py", "fast_run"))
    return fn(*arguments)


@pytest.mark.parametrize("build", LOST, ids=lambda build: build.__name__)
def test_a_lost_value_is_told_with_the_formula_that_keeps_it(build):
    found = explained(build)
    value, new = LOST[build]
    assert found.meaning.kind == "lost"
    assert found.meaning.text.startswith(f"In exact arithmetic {value} float64 loses it where ")
    assert new in found.advice.change[1]
    assert found.advice.grade == "same"


@pytest.mark.parametrize("build", WITHOUT_VALUE, ids=lambda build: build.__name__)
def test_a_number_outside_of_a_domain_is_followed_to_its_origin(build):
    found = explained(build)
    text, origin = WITHOUT_VALUE[build]
    assert found.meaning.kind == "none"
    assert found.meaning.text.startswith(text)
    assert origin in found.advice.text


WITHOUT_BOUND = [negative_scale, step_after_five, reaction_time, front_page, mean_of_nothing]


@pytest.mark.parametrize("build", WITHOUT_BOUND, ids=lambda build: build.__name__)
def test_a_parameter_a_difference_and_an_empty_selection_get_no_bound(build):
    found = explained(build)
    assert (found.advice.grade, found.advice.change) == ("", ())


@pytest.mark.parametrize("build", [padding, constant_row])
def test_a_change_of_the_function_says_so_and_what_it_changes(build):
    found = explained(build)
    assert found.advice.grade == "changes"
    assert "This changes the function: with pt.maximum(" in found.advice.text
    assert found.advice.text.endswith("the result no longer depends on it.")


def test_the_number_quoted_is_what_the_function_returns():
    def norm():
        v = pt.dvector("v")
        size = pt.sqrt((v**2).sum())
        return [v], pytensor.grad(size, v), [np.zeros(1)]

    found = explained(norm)
    assert found.advice.text.endswith("this call gives 0.0.")


def test_a_large_value_that_is_right_is_called_correct():
    x = pt.dvector("x")
    fn = pytensor.function([x], pt.exp(x), mode=GuardMode())
    with pytest.raises(GuardError) as caught:
        fn(np.array([30.0]))
    found = caught.value.explanation
    assert found.meaning.text == "This value is correct. It only exceeds big_threshold."
    assert "GuardMode(big_threshold=1e+14)" in found.advice.text


def cross_entropy():
    """A log-likelihood of certain, wrong predictions; the rewrites make its value finite."""
    rng = np.random.default_rng(0)
    x, y, w = pt.dmatrix("x"), pt.dvector("y"), pt.dvector("w")
    p = pt.sigmoid(pt.dot(x, w))
    ll = (y * pt.log(p) + (1 - y) * pt.log(1 - p)).sum()
    data = rng.normal(size=(40, 3))
    arguments = [data, (rng.uniform(size=40) > 0.5) * 1.0, np.array([300.0, 200.0, -200.0])]
    return [x, y, w], ll, pytensor.grad(ll, w), arguments


def test_the_loss_of_a_cross_entropy_whose_gradient_fails_stays():
    inputs, ll, slope, arguments = cross_entropy()
    mode = GuardMode(True, True, False)
    right = pytensor.function(inputs, ll, mode=mode)(*arguments)
    with pytest.raises(GuardError) as caught:
        pytensor.function(inputs, [ll, slope], mode=mode)(*arguments)
    found = caught.value.explanation
    assert (found.meaning.kind, found.advice.grade) == ("lost", "same")
    assert f"ll is {right:.6g};" in found.meaning.text
    assert f"this call gives {right:.1f} and a finite gradient." in found.advice.text
    assert not re.search("clip|maximum|1e-", found.advice.text)


def test_a_softmax_by_hand_is_mended_though_some_of_its_gradient_is_finite_and_wrong():
    z, y = pt.dmatrix("z"), pt.dmatrix("y")
    e = pt.exp(z)
    q = e / e.sum(axis=1, keepdims=True)
    ll = (y * pt.log(q)).sum()
    fn = pytensor.function([z, y], [ll, pytensor.grad(ll, z)], mode=GuardMode(True, True, False))
    rng = np.random.default_rng(0)
    with pytest.raises(GuardError) as caught:
        fn(900 * rng.normal(size=(40, 3)), np.eye(3)[rng.integers(0, 3, 40)])
    found = caught.value.explanation
    assert found.advice.grade == "same"
    new = "ll = (y * pt.special.log_softmax(z, axis=1)).sum()"
    assert found.advice.change == ("ll = (y * pt.log(q)).sum()", new)


@pytest.mark.parametrize("big_is_error", [True, False])
def test_a_large_intermediate_does_not_hide_what_mends_a_logarithm(big_is_error):
    x = pt.dvector("x")
    cost = pt.log(1 - pt.exp(x)).sum()
    mode = GuardMode(True, True, big_is_error)
    fn = pytensor.function([x], [cost, pytensor.grad(cost, x)], mode=mode)
    with pytest.raises(GuardError) as caught:
        fn(np.array([-1e-20, -1.0]))  # (a derivative of -1e20)
    found = caught.value.explanation
    assert (found.meaning.kind, found.advice.grade) == ("lost", "same")
    assert "cost is -46.51" in found.meaning.text or "output 0 is -46.51" in found.meaning.text
    assert found.advice.change[1] == "cost = pt.log1mexp(x).sum()"
    assert found.advice.text.endswith("this call gives -46.51 and a finite gradient.")


def logarithm_of_a_sum():
    v = pt.dvector("v")
    cost = 2 * pt.log(pt.exp(v).sum())
    return [v], pytensor.grad(cost, v)[0], [np.array([800.0, 800.0, 0.0])]


def test_the_number_quoted_for_a_gradient_is_what_the_printed_line_returns():
    found = explained(logarithm_of_a_sum)
    [returned] = results_with_change(logarithm_of_a_sum, found.advice.change)
    assert found.advice.text.endswith(f"this call gives {float(returned)}.")


def mean_of_an_empty_selection_in_a_loss():
    w = pt.dvector("w")
    return [w], (w - w[w > 5].mean()) ** 2, [np.ones(3)]


def std_of_nothing():
    w = pt.dvector("w")
    return [w], w[w > 5].std(), [np.ones(3)]


def std_of_a_constant():
    w = pt.dvector("w")
    return [w], (w - w.mean()) / w.std(), [np.full(3, 0.25)]


def gradient_of_std():
    w = pt.dvector("w")
    return [w], pytensor.grad(w.std(), w), [np.full(3, 0.25)]


OF_DATA = {
    mean_of_an_empty_selection_in_a_loss: ("the selection is empty.", ""),
    std_of_nothing: ("the selection is empty.", ""),
    std_of_a_constant: ("w is constant: 0.25. So its spread is 0.", "pt.maximum(w.std(), 1e-12)"),
    gradient_of_std: (
        "w is constant: 0.25. So its spread is 0.",
        "theanoguard.stable.sqrt(w.var())",
    ),
}


@pytest.mark.parametrize("build", OF_DATA, ids=lambda build: build.__name__)
def test_a_mean_or_spread_without_value_is_laid_to_the_data(build):
    found = explained(build)
    origin, new = OF_DATA[build]
    assert origin in found.advice.text
    assert "inside" not in found.advice.text  # (nobody can write the argument of a library's op)
    assert new in "\n".join(found.advice.change)
    assert bool(found.advice.change) == bool(new)


PRINTED = [*LOST, padding, constant_row, *(build for build, (_, new) in OF_DATA.items() if new)]


@pytest.mark.parametrize("build", PRINTED, ids=lambda build: build.__name__)
def test_the_printed_line_runs_and_keeps_what_was_right(build):
    found = explained(build)
    inputs, outputs, arguments, *_ = build()
    outputs = outputs if isinstance(outputs, list) else [outputs]
    before = pytensor.function(inputs, outputs, mode=Mode("py", None))(*arguments)
    after = results_with_change(build, found.advice.change)
    for old, new, output in zip(before, after, outputs, strict=True):
        assert np.isfinite(new).all()
        right = np.isfinite(old)
        np.testing.assert_allclose(new[right], old[right], rtol=1e-9)
        exact = theanoguard.exact(output, dict(zip(inputs, arguments, strict=True)))
        known = exact.known == "number"
        np.testing.assert_allclose(new[known], exact.mid[known], rtol=1e-9, atol=1e-14)
        assert known.all() or found.advice.grade == "changes" or build is gradient_of_std


@pytest.mark.parametrize(
    ("formula", "value", "kept"),
    [
        (lambda p: pt.log(1 - p), 1.2, "p = 1 - exp(free_p)"),
        (lambda p: pt.log(1 - p**2), -1.2, "p = tanh(arctanh_p)"),
        (lambda p: pt.log(1 / (1 - pt.sqr(p))), 1.2, "p = tanh(arctanh_p)"),
        (lambda p: pt.sqrt(1 - abs(p)), -1.2, "p = tanh(arctanh_p)"),
    ],
)
def test_a_number_taken_from_one_gets_the_link_of_its_interval(formula, value, kept):
    p = pt.dscalar("p")
    fn = pytensor.function([p], formula(p), mode=GuardMode())
    with pytest.raises(GuardError) as caught:
        fn(value)
    assert f"let it set a free number: {kept}." in caught.value.explanation.advice.text


@pytest.mark.parametrize(
    ("formula", "value", "kind"),
    [
        (lambda x: (x * 1e10).sum() / (x @ x) * 1e150, 1e155, "lost"),
        (lambda x: 1 / (1 + pt.exp(x)), 1000.0, "harmless"),
    ],
    ids=["wrong", "right"],
)
def test_a_finite_result_of_an_overflow_is_compared_with_the_exact_one(formula, value, kind):
    """An infinite divisor makes 0, which may be right."""
    x = pt.dvector("x")
    mode = GuardMode(True, True, False, optimizer="None")
    f = pytensor.function([x], formula(x), mode=mode)
    with pytest.raises(GuardError) as caught:
        f(np.full(3, value))
    assert caught.value.explanation.meaning.kind == kind
    assert ("In exact arithmetic" in str(caught.value)) == (kind == "lost")


MASKED = {
    "a softmax": lambda x, m: pt.special.softmax(x + pt.log(m)),
    "a logsumexp": lambda x, m: pt.logsumexp(x + pt.log(m)),
    "a gradient": lambda x, m: pytensor.grad(pt.special.softmax(x + pt.log(m))[0], x),
    "a harmonic mean": lambda x, m: 2 / (x / m).sum(),
    "a survival": lambda x, m: pt.exp(-(x / m).cumsum()),
}


@pytest.mark.parametrize("name", MASKED)
def test_what_is_advised_for_a_harmless_value_ends_the_error(name):
    x, m = pt.dvectors("x", "m")
    inputs, values = [x, m], [np.ones(2), np.array([1.0, 0.0])]
    result = MASKED[name](x, m)
    with pytest.raises(GuardError) as caught:
        pytensor.function(inputs, result, mode=GuardMode())(*values)
    assert caught.value.explanation.meaning.kind == "harmless"
    advised = re.search(r"GuardMode\(.*?\)", caught.value.explanation.advice.text)[0]
    fn = pytensor.function(inputs, result, mode=eval(advised))
    assert np.isfinite(fn(*values)).all()
