"""The linter: every rule, the bounds it stands on, the gallery, and the command."""

import csv
import itertools
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up import log_odds
from models import GALLERY, load, marked_line
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.mode import Mode
from pytensor.graph.fg import FunctionGraph
from pytensor.ifelse import ifelse
from pytensor.link.vm import VMLinker

import theanoguard
from theanoguard import GuardMode, lint, stable, track_provenance
from theanoguard._lint import RULES, Bounds, GraphBounds
from theanoguard._provenance.places import short_file
from theanoguard.ops import assert_in_range

pytestmark = pytest.mark.on_30

DOCS = Path(__file__).parents[2] / "docs" / "lint.rst"
MEASURED = DOCS.parent / "measurements" / "lint.toml"

X, Y = pt.dvector("x"), pt.dvector("y")
M = pt.dmatrix("m")
F = pt.fvector("f")
USED = pt.bvector("used")


def by_rules(graph, **settings):
    """The findings of the rules alone, without a search for inputs."""
    return lint(graph, seconds=0, **settings)


def rules(graph, **settings):
    return [finding.rule for finding in by_rules(graph, **settings)]


# ---------------------------------------------------------------- the gallery

# Causes that bounds and patterns show: the rule that reports each.
VISIBLE = {
    "advanced_indexing": "log-of-zero",
    "arccos_out_of_range": "arc-out-of-range",
    "bad_constant": "bad-constant",
    "branch_taken": "sqrt-at-zero",
    "division_by_zero": "division-by-zero",
    "everything_masked": "softmax-of-infinity",
    "exp_overflows_float32": "exp-overflow",
    "fused_chain": "division-by-zero",
    "handwritten_softmax": "exp-overflow",
    "inf_minus_inf": "exp-overflow",
    "inplace_overwrites": "log-of-zero",
    "log1p_minus_one": "log-of-zero",
    "log_of_shifted_softmax": "log-of-zero",
    "log_zero": "log-of-zero",
    "masked_gradient": "masked-gradient",
    "norm_gradient_at_zero": "sqrt-at-zero",
    "op_from_graph": "log-of-zero",
    "pow_gradient_at_zero": "power-at-zero",
    "pow_negative_base": "power-at-zero",
    "probability_underflow": "log-of-zero",
    "rnn_explodes": "scan-without-clipping",
    "scan_divides": "division-by-zero",
    "softmax_inf_by_inf": "exp-overflow",
    "variance_cancels": "sqrt-at-zero",
    "while_loop": "exp-overflow",
    "zero_by_zero": "division-by-zero",
    "zero_times_inf": "log-of-zero",
}
# Where the culprit is what an earlier line has spoilt, which is what the linter reports.
EARLIER = {
    "inf_minus_inf": "pt.exp(x)",
    "softmax_inf_by_inf": "pt.exp(h)",
    "bad_constant": "np.nan",
}
# Causes that are not in the graph, and why.
NOT_VISIBLE = {
    "bad_input": "the NaN is in the data",
    "bad_shared_weight": "the Inf is in a value; found with shared_values=True",
    "cast_overflows": "a cast to float32 overflows at magnitudes that the graph does not show",
    "cholesky_of_indefinite": "bounds do not show whether a matrix is positive definite",
    "custom_op": "lint does not know what your own operation computes",
    "dot_overflows": "products overflow at magnitudes that the graph does not show",
    "learning_rate_too_high": "how large a step may be depends on the loss",
    "product_overflows": "products overflow at magnitudes that the graph does not show",
    "sum_overflows": "sums overflow at magnitudes that the graph does not show",
}


def built(path, which="model"):
    """Inputs, outputs and updates of a model, built so that lines inside of a scan are known."""
    with track_provenance():
        return getattr(load(path), which)()


def test_every_model_is_in_a_table():
    assert {path.stem for path in GALLERY} == VISIBLE.keys() | NOT_VISIBLE.keys()
    assert not VISIBLE.keys() & NOT_VISIBLE.keys()


@pytest.fixture(params=[p for p in GALLERY if p.stem in VISIBLE], ids=lambda path: path.stem)
def visible(request):
    """The path of a model whose cause is visible."""
    return request.param


def test_visible_cause_is_found(visible):
    _, outputs, updates = built(visible)
    found = [
        finding.source
        for finding in by_rules(outputs, updates=updates)
        if finding.rule == VISIBLE[visible.stem]
    ]
    assert {source.file for source in found} == {str(visible)}
    if visible.stem in EARLIER:
        assert any(EARLIER[visible.stem] in source.text for source in found)
    else:
        assert marked_line(visible) in {source.line for source in found}


def test_repaired_twin_has_no_finding(visible):
    _, outputs, updates = built(visible, "repaired")
    assert by_rules(outputs, updates=updates) == []
    assert by_rules(outputs, updates=updates, gradient=False) == []


def test_repaired_twin_is_repaired(visible):
    module = load(visible)
    inputs, outputs, updates = module.repaired()
    in_python = VMLinker(use_cloop=False, c_thunks=False)
    mode = GuardMode(linker=in_python, optimizer="fast_compile")
    function = pytensor.function(inputs, outputs, updates=updates, mode=mode)
    function(*module.arguments())


@pytest.mark.parametrize("name", NOT_VISIBLE)
def test_model_with_an_invisible_cause_has_no_finding(name):
    (path,) = (p for p in GALLERY if p.stem == name)
    _, outputs, updates = built(path)
    assert by_rules(outputs, updates=updates) == []


def test_shared_value_that_is_bad():
    (path,) = (p for p in GALLERY if p.stem == "bad_shared_weight")
    _, outputs, _ = built(path)
    (finding,) = by_rules(outputs, shared_values=True)
    assert finding.rule == "bad-constant"
    assert finding.why == "the shared variable w holds Inf"


def measured(title):
    """The rows of a table of measurements under its head: lists of cells."""
    tables = tomllib.loads(MEASURED.read_text(encoding="utf-8"))["table"]
    (table,) = (t for t in tables if t["title"] == title)
    return list(csv.reader(table["csv"].strip().splitlines()))[1:]


def test_tables_of_the_docs():
    found = measured("Causes that lint finds without a search")
    assert {name.strip("`"): rule.strip("`") for name, rule in found} == VISIBLE
    missed = measured("Causes that a graph does not show")
    assert {name.strip("`"): why for name, why in missed} == NOT_VISIBLE
    page = DOCS.read_text(encoding="utf-8")
    text = page.partition("Rule  ")[2].partition("Lint a script")[0]
    listed = dict(re.findall(r"^``([a-z0-9-]+)``  +(\S.*)$", text, flags=re.MULTILINE))
    assert listed == {rule.name: rule.about for rule in RULES.values()}


# ---------------------------------------------------------------- one case for each rule, and more


def fed_back(step, **settings):
    """The last state of a scan that feeds a vector back."""
    states = pytensor.scan(
        step, outputs_info=[X], n_steps=5, return_updates=False, name="loop", **settings
    )
    return states[-1]


POSITIVE = X > 0
# As PyMC packs a Cholesky factor.
DIAGONAL = [0, 2, 5]
PACKED = pt.set_subtensor(X[DIAGONAL], pt.exp(pt.clip(X[DIAGONAL], -20, 20)))
TRIANGLE = pt.set_subtensor(pt.zeros((3, 3))[np.tril_indices(3)], PACKED)
CASES = {
    "log-of-softmax": [
        pt.log(pt.special.softmax(M, axis=1)),
        pt.log(pt.special.softmax(M, axis=1)[0, ::2].T),
        pt.log2(pt.special.softmax(M)),
    ],
    "log-of-zero": [
        pt.log(X),
        pt.log10(pt.abs(X)),
        pt.log(pt.sigmoid(X)),
        pt.log(1 - pt.sigmoid(X)),
        pt.log(PACKED[[0, 1]]),
        pt.log(TRIANGLE[1, [0, 1]]),
        pt.log(M.sum() / M.shape[0]),
        pt.log(pt.exp(pt.minimum(X, 0))),
        pt.log1p(-pt.sigmoid(X)),
        pt.log(pt.sqr(X + 2)),
        pt.log(F**2 + np.float32(1e-50)),  # which is 0
        pt.log(1 + 1e-9 - pt.clip(X, 0, 2)),
        pt.log(X * pt.switch(POSITIVE, X, 1)),
        pt.log(pt.switch(Y > 0, X, 1)),
        pt.log(pt.random.uniform(0, 1, size=3)),
        pt.log(ifelse(X.sum() > 0, pt.ones(3), pt.zeros(3))),
    ],
    "division-by-zero": [
        X / Y,
        1 / pt.exp(-pt.abs(X)),
        pt.reciprocal(X),
        X / pt.sqrt(pt.maximum(X, 0)).sum(),
        X / pt.switch(pt.ge(X, 0), X, 1),
        pt.lvector() // pt.lvector(),
        X % Y,
        X / X.std().clip(0, 1e9),
    ],
    "sqrt-at-zero": [
        pt.sqrt(X),
        pt.sqrt(X @ X),
        pt.linalg.norm(X),
        pt.sqrt((X**2).mean() - X.mean() ** 2),
        X.std(),
    ],
    "power-at-zero": [X**0.5, X**-1, X**-2.0, pt.abs(X) ** 0.3, X**Y],
    "exp-overflow": [
        pt.exp(X),
        pt.exp(pt.sqr(X)),
        pt.sinh(X),
        pt.cosh(pt.minimum(X, 5)),
        pt.exp(pt.minimum(F, 89)),
        pt.expm1(X),
        pt.exp(X - X.min()),
        pt.exp2(pt.minimum(X, 1025)),
    ],
    "arc-out-of-range": [
        pt.arcsin(X),
        pt.arccos(pt.clip(X, -1, 1)),
        pt.arctanh(pt.tanh(X)),
        pt.arccosh(X),
    ],
    "out-of-domain": [log_odds(X), log_odds(pt.clip(X, 0, 1))],
    "masked-gradient": [
        pt.switch(POSITIVE, pt.log(X), 0),
        pt.switch(POSITIVE, pt.sqrt(X) * 2 + 1, 0),
        pt.switch(pt.eq(X, 0), 0, 1 / X),
    ],
    "softmax-of-infinity": [
        pt.special.softmax(pt.switch(USED, X, -np.inf)),
        pt.special.log_softmax((2 * pt.switch(USED, X, -np.inf) + Y)[None]),
    ],
    "bad-constant": [X * pt.constant([1.0, np.nan]), X + np.inf],
    "float32-sum": [
        pt.tensor(dtype="float32", shape=(1024, 2048)).sum(acc_dtype="float32"),
        pt.cumsum(pt.tensor(dtype="float32", shape=(2**21,))),
        pt.dot(pt.tensor(dtype="float32", shape=(3, 2**21)), F),
    ],
    "float64-constant": [F * np.array([0.1, 0.2]), F + np.float64(0.1)],
    "scan-without-clipping": [
        fed_back(lambda s: s * Y),
        fed_back(lambda s: s**2 + 1),
        pytensor.grad(fed_back(lambda s: pt.tanh(s * Y)).sum(), Y),
    ],
}
FINE = {
    "guarded logs": pt.log(X**2 + 1e-6) + pt.log(pt.maximum(X, 1e-9)) + pt.log(1 + pt.exp(-(X**2))),
    "softplus": pt.log(pt.softplus(X) + 1e-12),
    "clipped": pt.log(pt.clip(pt.sigmoid(X), 1e-7, 1 - 1e-7)),
    "complement": pt.log1p(-pt.clip(X, 0, 1 - 1e-7)),
    "log_softmax": pt.special.log_softmax(M, axis=1) + pt.special.softmax(M, axis=1),
    "mean": X.mean() + M.mean(axis=0) + M.var(axis=1).sum() + X.sum() / X.shape[0],
    "standardised": (X - X.mean()) / (X.var() + 1e-6) + X / pt.sqrt(X.var() + 1e-6),
    "tested": pt.log(pt.switch(POSITIVE, X, 1)) + 1 / pt.switch(pt.eq(X, 0), 1, X),
    "tested otherwise": 1 / pt.switch(pt.abs(X) < 1e-6, 1e-6, X) + pt.sqrt(pt.switch(X < 1, 1, X)),
    "tested twice": pt.log(pt.switch((X > 0) & (Y > 0), Y, 1)) + pt.log(pt.switch(~(X <= 0), X, 1)),
    "asserted": pt.log(assert_in_range(X, 1e-3, None)),
    "shifted softmax": pt.exp(X - X.max()) / pt.exp(X - X.max()).sum(),
    "shifted rows": (lambda e: e / e.sum(axis=1, keepdims=True))(
        pt.exp(M - M.max(axis=1, keepdims=True))
    ),
    "powers": X**2 + pt.abs(X) ** 1.5 + (pt.abs(X) + 1) ** -0.5 + (X**2 + 1) ** Y.mean(),
    "bias correction": 1 / (1 - 0.9 ** (pt.abs(X) + 1)),
    "small exponents": pt.exp(pt.clip(X, -50, 50)) + pt.exp(-pt.sqr(X)) + pt.exp(pt.tanh(X)),
    "angles": pt.arccos(pt.clip(X, -0.99, 0.99)) + pt.arctanh(0.9 * pt.sin(X)),
    "large finite mask": pt.special.softmax(pt.switch(USED, X, -1e9)),
    "infinite constant that is chosen": pt.minimum(pt.switch(USED, X, np.inf), 3.0),
    "float64 accumulator": pt.tensor(dtype="float32", shape=(1024, 2048)).sum(),
    "float32 constants": F * np.float32(0.1) + 2 + F / 4.0,
    "float64 graph": F * X * 0.1,
    "bounded state": fed_back(lambda s: pt.tanh(s * Y)),
    "clipped state": fed_back(lambda s: pt.clip(s * Y, -10, 10)),
    "accumulated": fed_back(lambda s: s + Y),
    "truncated": fed_back(lambda s: s * Y, truncate_gradient=3),
    "clipped gradient": pt.clip(pytensor.grad(fed_back(lambda s: pt.tanh(s * Y)).sum(), Y), -1, 1),
    "clipped norm": theanoguard.training.clip_grad_norm(
        [pytensor.grad(fed_back(lambda s: pt.tanh(s * Y)).sum(), Y)], 1.0
    )[0][0],
    "inside of a scan": pytensor.scan(
        lambda s: pt.log(s), sequences=[pt.sqr(X) + 1], return_updates=False
    ),
    "inside of an op": OpFromGraph([X], [pt.log(X)])(pt.exp(pt.clip(X, -1, 1))),
    "mean of positives": pt.log((pt.sqr(X) + 1).mean()) + 1 / pt.exp(pt.clip(M, -1, 1)).mean(),
    "diagonal of a packed triangle": pt.log(pt.diag(TRIANGLE)) + pt.log(PACKED[DIAGONAL]),
    "joined": pt.log(pt.concatenate([pt.sqr(X) + 1, pt.ones(3)])) + pt.log(pt.stack([2.0, 3.0]))[0],
    "written": pt.log(pt.set_subtensor(pt.ones(3)[0], 2.0)),
    "product with itself": pt.sqrt(X @ X + 1) + pt.sqrt(pt.dot(X, X) + 1e-9),
}


@pytest.mark.parametrize("rule", RULES)
def test_rule_has_cases(rule):
    others = {"unused-parameter", "disconnected-parameter", "overflow", "no-value"}
    assert rule in CASES.keys() | others


@pytest.mark.parametrize(
    ("rule", "graph"), [(rule, graph) for rule, graphs in CASES.items() for graph in graphs]
)
def test_risk_is_found(rule, graph):
    assert rule in rules(graph)
    assert rule not in rules(graph, ignore=[rule])


@pytest.mark.parametrize("name", FINE)
def test_guarded_pattern_is_not_reported(name):
    assert by_rules(FINE[name]) == []


def test_masked_gradient_speaks_for_the_log():
    assert rules(CASES["masked-gradient"][0]) == ["masked-gradient"]
    # What is seen elsewhere, too, is not hidden.
    log = pt.log(X)
    assert rules([pt.switch(POSITIVE, log, 0), log]) == ["log-of-zero"]


def test_values_behind_a_switch():
    log = pt.log(X) * 2
    assert rules(pt.switch(POSITIVE, log, 0), gradient=False) == []
    assert rules(pt.switch(X <= 0, 0, log), gradient=False) == []
    for condition in (USED, X <= 0, Y > 0):
        assert rules(pt.switch(condition, log, 0), gradient=False) == ["log-of-zero"]


STABLE_FORMS = [
    stable.log(X),
    stable.sqrt(X),
    stable.divide(X, Y),
    stable.norm(X),
    stable.softmax(M, axis=1),
    stable.log_softmax(M, axis=1),
    stable.logsumexp(M, axis=1),
    stable.binary_crossentropy(X, Y),
    stable.binary_crossentropy(X, Y, from_logits=True),
    stable.categorical_crossentropy(M, pt.lvector()),
    stable.categorical_crossentropy(M, M, from_logits=True),
]


@pytest.mark.parametrize("form", STABLE_FORMS)
def test_stable_forms_have_no_finding(form):
    assert by_rules(form) == []
    wrt = [v for v in (X, M) if v in pytensor.graph.traversal.ancestors([form])]
    assert by_rules([form, *pytensor.grad(form.sum(), wrt)]) == []


# ---------------------------------------------------------------- what is asked for


def test_gradient_matters_where_one_is_taken():
    root = pt.sqrt(pt.sqr(X))
    assert rules(root) == ["sqrt-at-zero"]
    assert rules(root, gradient=False) == []
    loss = pt.sqr(X * Y).sum()
    with_gradient = [loss, pytensor.grad(loss, X)]
    other = pt.sqrt(pt.sqr(pt.dvector()))
    assert rules([*with_gradient, other]) == []
    assert rules([root.sum(), pytensor.grad(root.sum(), X)]) == ["sqrt-at-zero"]


def test_known_bounds():
    assert rules(pt.log(X), bounds={X: (1e-3, 1)}) == []
    assert rules(pt.log(X), bounds={X: (0, 1)}) == ["log-of-zero"]


def test_shared_values():
    scale = pytensor.shared(np.array([1.0, 2.0]), name="scale")
    assert rules(X / scale) == ["division-by-zero"]
    assert rules(X / scale, shared_values=True) == []
    assert rules(X / scale, shared_values=True, updates={scale: X}) == ["division-by-zero"]


def test_state_of_an_optimiser_stays_positive():
    w, v = (pytensor.shared(np.zeros(2), name=name) for name in "wv")
    t = pytensor.shared(np.array(0.0), name="t")
    g = pytensor.grad(pt.sqr(X * w).sum(), w)
    v_new = 0.9 * v + 0.1 * pt.sqr(g)
    step = g / (pt.sqrt(v_new / (1 - 0.9 ** (t + 1))) + 1e-8)
    updates = [(w, w - 0.1 * step), (v, v_new), (t, t + 1)]
    assert by_rules([], updates=updates) == []
    assert rules([], updates=[(w, w - 0.1 * step), (v, v_new - 1), (t, t + 1)]) == ["sqrt-at-zero"]


def test_parameters():
    w, b, c = (pytensor.shared(np.ones(2), name=name) for name in "wbc")
    loss = pt.sqr(X * w).sum() + pt.floor(b).sum() + (b > 0).sum()
    found = by_rules(loss, params=[w, b, c])
    assert [f.rule for f in found] == ["unused-parameter", "disconnected-parameter"]
    assert ["c" in found[0].why, "b" in found[1].why] == [True, True]
    grads = pytensor.grad(loss, [w, b, c], disconnected_inputs="ignore")
    updates = [(p, p - 0.1 * g) for p, g in zip([w, b, c], grads, strict=True)]
    assert sorted(rules(loss, updates=updates)) == ["disconnected-parameter", "unused-parameter"]


def test_a_function_graph_is_a_graph():
    assert rules(FunctionGraph([X], [pt.log(X)], clone=False)) == ["log-of-zero"]


def test_what_is_no_graph():
    for wrong in (1.0, [1.0]):
        with pytest.raises(TypeError, match="takes variables, a FunctionGraph or a Function, not"):
            by_rules(wrong)
    with pytest.raises(ValueError, match="there is no rule 'log'"):
        by_rules(X, ignore=["log"])


@pytest.mark.parametrize(
    "pair", [(2, 1), (np.nan, 1), (1,), 3, ("a", "b"), (None, 1)], ids=lambda pair: str(pair)
)
def test_bounds_that_contradict_each_other(pair):
    said = r"the bounds of x must be a pair \(smallest, largest\)"
    with pytest.raises(ValueError, match=said):
        lint(pt.log(X), bounds={X: pair})


def test_bounds_may_be_one_number():
    assert lint(pt.log(X), bounds={X: (1, 1)}) == []
    [found] = lint(pt.log(X), bounds={X: (0, 0)}, mode="CVM")
    assert (found.witness.inputs["x"] == 0).all()


def test_bounds_that_an_assertion_contradicts():
    with pytest.raises(ValueError, match="cannot run the graph: AssertionError: x must be >= 0"):
        lint(pt.log(assert_in_range(X, 0, 1)), bounds={X: (2, 3)}, mode="FAST_COMPILE")


def test_a_graph_that_cannot_run():
    with pytest.raises(ValueError, match="(?s)cannot run the graph: ValueError.*examples="):
        lint(pt.log(X[:5].reshape((2, 3))), mode="FAST_COMPILE")
    with pytest.raises(ValueError, match="cannot run the graph: IndexError"):
        lint(pt.log(pt.as_tensor(np.ones(3))[[0, 5]] * X[0]), mode="FAST_COMPILE")


def test_comments_switch_rules_off():
    kept = pt.log(X)  # theanoguard: ignore[exp-overflow]
    gone = pt.log(X)  # theanoguard: ignore[exp-overflow, log-of-zero]: it is a count
    both = pt.log(pt.exp(X))  # theanoguard: ignore
    assert rules([kept]) == ["log-of-zero"]
    assert rules([gone, both]) == []


def test_text_of_a_finding():
    p = pt.sigmoid(X)
    ratio = Y / p
    (finding,) = by_rules(ratio)
    line = test_text_of_a_finding.__code__.co_firstlineno + 2
    assert str(finding) == (
        f"{short_file(__file__)}:{line}:13: division-by-zero:"
        " p must not be 0, and its bounds are [0, 1]\n"
        "    ratio = Y / p\n"
        "            ^^^^^\n"
        "    write: Find out why the divisor is 0. If it may be, decide what the result is there:\n"
        "      switch(eq(n, 0), value, x / switch(eq(n, 0), 1, n))."
    )


def test_a_step_of_a_function_is_told_by_the_function():
    x = pt.dmatrix("x")
    std = x.std(axis=1)
    [finding] = by_rules(std, gradient=True)
    assert finding.why == (
        "the argument of sqrt inside std may be 0, where the gradient of sqrt is not finite"
    )


def test_without_stack_traces():
    with pytensor.config.change_flags(traceback__limit=0):
        found = by_rules(pt.log(X) + 1)
    assert str(found[0]).startswith("(line not known): log-of-zero: x must be positive")


def test_deep_graphs():
    deep = X
    for _ in range(1500):
        deep = pt.tanh(deep) + 0.1
    assert by_rules(pt.log(pt.abs(deep) + 1)) == []


# ---------------------------------------------------------------- bounds

KNOWN = {
    pt.dvector("positive"): (0.5, 4.0),
    pt.dvector("negative"): (-3.0, -0.25),
    pt.dvector("around"): (-2.0, 3.0),
    pt.dvector("share"): (0.0, 1.0),
}


ON_VECTORS = [
    lambda v, w: pt.inc_subtensor(v[:1], w[:1]),
    lambda v, w: pt.set_subtensor(v[1:], w[1:]),
    lambda v, w: pt.inc_subtensor(v[[0, 0]], w[:2]),
    lambda v, w: pt.set_subtensor(v[[2, 0]], w[:2]),
    lambda v, w: pt.concatenate([v[:1], w[1:]]),
    lambda v, w: pt.stack([v[0], w.sum(), v.max()]),
    lambda v, w: pt.alloc(v[0], 3) + w,
    pt.dot,
]


def between_vectors(operation):
    """Return a binary operation that adds where an operand is no vector of floats."""

    def applied(v, w):
        fits = all(x.type.ndim == 1 and x.type.dtype == "float64" for x in (v, w))
        return operation(v, w) if fits else v + w

    return applied


@st.composite
def expressions(draw):
    """An expression of the known inputs, of any of the operations that have bounds."""
    unary = [pt.abs, pt.sqr, pt.exp, pt.tanh, pt.sigmoid, pt.softplus, pt.neg, pt.sin, pt.expm1]
    unary += [pt.floor, pt.erf, pt.arctan, lambda v: v.max(), lambda v: v.sum(), lambda v: v.prod()]
    unary += [
        lambda v: v**3,
        lambda v: pt.sqrt(pt.abs(v)),
        lambda v: pt.log1p(pt.abs(v)),
        pt.cumsum,
    ]
    unary += [
        lambda v: v[::-1] if v.ndim else v,
        lambda v: v.mean(),
        lambda v: v.astype("float32"),
        pt.sign,
    ]
    unary += [lambda v: v - v.max(), lambda v: v.astype("int32"), lambda v: v.var(), pt.cosh]
    unary += [
        lambda v: 0.5 ** pt.abs(v),
        lambda v: pt.abs(v) ** -0.5,
        lambda v: 1 / (pt.abs(v) + 1),
    ]
    binary = [pt.add, pt.sub, pt.mul, pt.maximum, pt.minimum]
    binary += [lambda v, w: pt.switch(v > 0, v, w), lambda v, w: pt.switch(v < w, v, w)]
    binary += [lambda v, w: pt.switch(pt.abs(v) >= 0.5, v, w), lambda v, w: pt.clip(v, -1, w)]
    binary += [
        lambda v, w: pt.switch(pt.neq(v, 0) & (w <= 1), v, w),
        lambda v, w: v / (pt.sqr(w) + 1),
    ]
    binary += [lambda v, w: pt.switch(~(v > 1), w, v), lambda v, w: v / w]
    binary += map(between_vectors, ON_VECTORS)
    values = list(KNOWN)
    for _ in range(draw(st.integers(1, 4))):
        if draw(st.booleans()):
            values.append(draw(st.sampled_from(unary))(draw(st.sampled_from(values))))
        else:
            one, other = draw(st.sampled_from(values)), draw(st.sampled_from(values))
            values.append(draw(st.sampled_from(binary))(one, other))
    return values[-1]


@given(expressions(), st.integers(0, 2**32 - 1))
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_bounds_hold(expression, seed):
    assert_bounds_hold(expression, seed)


@pytest.mark.parametrize("operation", ON_VECTORS)
def test_bounds_hold_for_parts_of_arrays(operation):
    for seed, (one, other) in enumerate(itertools.product(KNOWN, KNOWN)):
        assert_bounds_hold(operation(one, other), seed)


def assert_bounds_hold(expression, seed):
    rng = np.random.default_rng(seed)
    values = {
        v: rng.choice([*ends, 0.0 if ends[0] * ends[1] <= 0 else ends[0], rng.uniform(*ends)], 3)
        for v, ends in KNOWN.items()
    }
    bounds = GraphBounds({v: Bounds(*ends) for v, ends in KNOWN.items()})[expression]
    found = expression.eval(values, mode=Mode("py", None), on_unused_input="ignore")
    found = np.asarray(found, dtype="float64")
    found = found[np.isfinite(found)]
    slack = 1e-5 * np.maximum(1, np.abs(found))
    assert (found >= bounds.lo - slack).all(), str(bounds)
    assert (found <= bounds.hi + slack).all(), str(bounds)
    assert bounds.zero or (found != 0).all(), str(bounds)


# ---------------------------------------------------------------- the command

SCRIPT = """
import sys
import numpy as np
import pytensor, pytensor.tensor as pt

print("building", sys.argv[1:])
x = pt.dvector("x")
w = pytensor.shared(np.ones(2), name="w")
loss = pt.log(x * w).sum()
train = pytensor.function([x], loss, updates=[(w, w - 0.1 * pytensor.grad(loss, w))])
clean = pytensor.function([x], pt.tanh(x))
quiet = pytensor.function([x], pt.sqrt(x))  # theanoguard: ignore[sqrt-at-zero]

def step(x_t, s):
    return s + 1 / x_t

steps = pytensor.scan(step, sequences=[x], outputs_info=[pt.zeros(())], return_updates=False)
loop = pytensor.function([x], steps)
print("value", clean(np.zeros(2)))
pytensor.function([x], pt.exp(x))
"""
THEANO = """
import theano
import theano.tensor as T

x = T.dmatrix("x")
loss = -T.log(T.nnet.softmax(x)).mean()
theano.function([x], [loss, T.grad(loss, x)])
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("scripts")
    (path / "script.py").write_text(SCRIPT, encoding="utf-8")
    (path / "legacy.py").write_text(THEANO, encoding="utf-8")
    (path / "nothing.py").write_text("print('nothing')\n", encoding="utf-8")
    (path / "failing.py").write_text(SCRIPT + "\nraise KeyError('oh')\n", encoding="utf-8")
    clean = "import pytensor, pytensor.tensor as pt, sys\nx = pt.dvector()\n"
    clean += "f = pytensor.function([x], pt.tanh(x))\nsys.exit(f([0.0]))\n"
    (path / "clean.py").write_text(clean, encoding="utf-8")
    return path


def command(folder, *arguments):
    return subprocess.run(
        [sys.executable, "-m", "theanoguard", "lint", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
    )


def test_script_is_linted_up_to_its_first_call(folder):
    done = command(folder, "script.py", "--an", "argument")
    assert done.returncode == 1, done.stderr
    where = folder / "script.py"
    heads = [line for line in done.stdout.splitlines() if line.startswith("script.py:")]
    found = [head.split(": ")[:2] for head in heads]
    assert [(place.split(":")[1], rule) for place, rule in found] == [
        ("9", "log-of-zero"),
        ("15", "division-by-zero"),
    ]
    assert done.stdout.endswith("2 findings in 4 functions\n")
    assert done.stderr.startswith("building ['--an', 'argument']\n")
    assert f"stopped at {where}:19" in done.stderr
    assert "value" not in done.stderr


def test_script_that_is_run(folder):
    done = command(folder, "--run", "--ignore", "log-of-zero,division-by-zero", "script.py")
    assert done.returncode == 1, done.stderr
    assert "value [0. 0.]" in done.stderr
    assert "exp-overflow" in done.stdout
    assert done.stdout.endswith("1 finding in 5 functions\n")


def test_json(folder):
    done = command(folder, "--json", "script.py")
    found = json.loads(done.stdout)
    assert found["functions"] == 4
    assert found["called"] == f"{folder / 'script.py'}:19"
    first, _ = found["findings"]
    assert first["rule"] == "log-of-zero"
    assert first["source"]["line"] == 9
    assert first["source"]["text"] == "loss = pt.log(x * w).sum()"


def test_legacy_script(folder):
    assert command(folder, "--theano", "legacy.py").stdout == "0 findings in 1 function\n"
    done = command(folder, "--all", "--theano", "legacy.py")
    assert "repaired by this mode (rewrite theano_local_logsoftmax)" in done.stdout
    assert done.returncode == 1, done.stderr
    assert "legacy.py:6:9: log-of-softmax" in done.stdout


def test_clean_script(folder):
    done = command(folder, "clean.py")
    assert (done.returncode, done.stdout) == (0, "0 findings in 1 function\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no program"),
        (["nowhere.py"], "nowhere.py"),
        (["nothing.py"], "the program has compiled no function"),
        (["--run", "failing.py"], "KeyError: 'oh'"),
        (["--ignore", "log", "clean.py"], "there is no rule 'log'"),
    ],
)
def test_bad_input(folder, arguments, message):
    done = command(folder, *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert "lintscript.py" not in done.stderr


GUARDED = """
import numpy as np
import pytensor
import pytensor.tensor as pt
from theanoguard import GuardMode

x = pt.dvector("x")
w = pytensor.shared(np.array([1.0, 2.0, 3.0]), name="w")
loss = -pt.log(x - w).sum()
updates = [(w, w - 0.1 * pytensor.grad(loss, w))]
step = pytensor.function([x], loss, updates=updates, mode=MODE, name="step")
step(np.array([2.0, 3.0, 4.0]))
"""


@pytest.mark.parametrize("option", [(), ("--run",)], ids=["to its first call", "run"])
def test_guarded_script_is_searched(tmp_path, option):
    log = tmp_path / "events.jsonl"
    shown = {}
    for mode in ("'CVM'", "GuardMode()", f"GuardMode(action='record', log={str(log)!r})"):
        (tmp_path / "step.py").write_text(GUARDED.replace("MODE", mode))
        done = command(tmp_path, *option, "step.py")
        assert done.returncode == 1, done.stderr
        assert "step.py:11 (step): searched x from 2 to 4, as in its calls" in done.stderr
        shown[mode] = done.stdout
    assert len(set(shown.values())) == 1
    assert "log-of-zero: x - w must be positive" in shown["GuardMode()"]
    assert '"kind"' not in (log.read_text() if log.exists() else "")


NOT_SEARCHED = {
    "sparse": ("a = pytensor.sparse.csr_matrix('a')\n", "pytensor.sparse.structured_log(a)"),
    "fails at every input": (
        "from pytensor.raise_op import Assert\na = pt.dvector('a')\n",
        "pt.log(Assert('no')(a, a.sum() > 1e9))",
    ),
}


@pytest.mark.parametrize("name", NOT_SEARCHED)
def test_function_that_is_not_searched_is_named(tmp_path, name):
    head, graph = NOT_SEARCHED[name]
    script = f"import pytensor, pytensor.sparse, pytensor.tensor as pt\n{head}"
    script += "x = pt.dvector('x')\npytensor.function([x], pt.tanh(x))\n"
    script += f"f = pytensor.function([a], {graph}, name='f')\n"
    (tmp_path / "script.py").write_text(script)
    done = command(tmp_path, "script.py")
    assert done.returncode == 2, done.stdout
    line = len(script.splitlines())
    assert f"script.py:{line} (f): not searched: lint cannot " in done.stderr
    assert done.stderr.count("not searched") == 1
    plain = json.loads(command(tmp_path, "--json", "script.py").stdout)
    assert [title.rpartition("script.py")[2] for title in plain["not_searched"]] == [f":{line} (f)"]
