"""One faulty model in all that shows it: the same name, the same place, the same carets."""

import html
import itertools
import logging
import re
import sys

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from theanoguard import (
    GuardError,
    GuardMode,
    compare,
    debugprint,
    inspect_graph,
    lint,
    step_through,
)
from theanoguard.cli.main import main
from theanoguard.monitor import MonitorMode, detect_nan
from theanoguard.ops import Assert, assert_finite

TEXT = "loss = pt.log(scores).sum() + pt.log(weights - 1.0).sum()"
CARETS = " " * TEXT.index("pt.log(weights") + "^" * len("pt.log(weights - 1.0)")


NAME = "weights - 1.0"


@pytest.fixture(scope="module")
def model():
    x = pt.dvector("x")
    scores = pt.exp(x)
    weights = scores / scores.sum()
    loss = pt.log(scores).sum() + pt.log(weights - 1.0).sum()
    line = model.__wrapped__.__code__.co_firstlineno + 5
    checked = assert_finite(pt.log(weights - 1.0))
    return x, loss, checked, f"test_renderings.py:{line}:{9 + CARETS.index('^') - 4}"


def compiled(model, mode):
    return pytensor.function([model[0]], model[1], mode=mode)


VALUE = np.array([0.0, 1.0])


def marks(text):
    """Whether the text has the line, with carets below the logarithm that fails."""
    lines = text.splitlines()
    return any(
        TEXT in line and below.rstrip()[line.index(TEXT) :] == CARETS
        for line, below in itertools.pairwise(lines)
    )


@pytest.fixture(scope="module")
def error(model):
    with pytest.raises(GuardError) as caught:
        compiled(model, GuardMode(backend="c"))(VALUE)
    return caught.value


def test_report(model, error):
    text = str(error)
    assert model[3] in text and NAME in text and marks(text)


def test_lint(model):
    texts = [str(finding) for finding in lint(model[1], seconds=0)]
    [text] = [text for text in texts if f"{NAME} must be positive" in text]
    assert model[3] in text and marks(text)


def test_monitor(model, capsys):
    compiled(model, MonitorMode(post_func=detect_nan))(VALUE)
    text = capsys.readouterr().out.partition("\n*** NaN detected ***\nSum")[0]
    assert model[3] in text and marks(text)


def test_warning(model, caplog):
    fn = compiled(model, GuardMode(action="warn", backend="c"))
    fn(VALUE), fn(VALUE)
    full, count = caplog.messages
    assert marks(full) and model[3] in count


def test_log(model, tmp_path, capsys):
    path = tmp_path / "events.jsonl"
    compiled(model, GuardMode(action="record", log=path, backend="c"))(VALUE)
    for arguments, is_whole in (([], True), (["--short"], False)):
        main(["report", str(path), *arguments])
        text = capsys.readouterr().out
        assert model[3] in text and "in log" in text
        assert marks(text) == is_whole


def test_assertion(model):
    fn = pytensor.function([model[0]], model[2])
    with pytest.raises(AssertionError) as caught:
        fn(VALUE)
    assert f"log({NAME})" in str(caught.value)


def test_condition_of_an_assertion(model):
    x = model[0]
    checked = Assert("x must stay small")(x, pt.all(pt.exp(x) < 2.0))
    with pytest.raises(AssertionError) as caught:
        pytensor.function([x], checked)(VALUE)
    line = test_condition_of_an_assertion.__code__.co_firstlineno + 2
    _, asked, place, text, carets = str(caught.value).splitlines()[:5]
    assert asked == "required: exp(x) < 2.0"
    assert place.startswith("built at: ") and f"test_renderings.py:{line}:46" in place
    condition = "pt.all(pt.exp(x) < 2.0)"
    assert carets == " " * text.index(condition) + "^" * len(condition)


class Layer:
    """A layer that keeps its variables as attributes."""

    def __init__(self, inputs, size):
        self.weights = pytensor.shared(np.full((size, 1), 2.0), name="weights")
        self.h = inputs @ self.weights
        self.forward()

    def forward(self):
        self.shifted = self.h - 3.0
        self.gate = pt.sqrt(self.shifted)
        self.out = self.gate.sum()


class Network:
    """A network of layers that reads the attributes of another object."""

    def __init__(self, inputs):
        self.first = Layer(inputs, 2)
        self.ratio = self.first.h / self.first.shifted
        self.cost = pt.log(self.ratio).sum()


@pytest.mark.parametrize(
    ("make", "values", "said"),
    [
        (
            lambda x: Layer(x, 2).out,
            [[0.5, 0.5], [2.0, 1.0]],
            ("sqrt(-1.0)", "self.shifted = -1.0", "elements of self.gate", "  self.h[0, 0] = 2.0"),
        ),
        (
            lambda x: Network(x).cost,
            [[0.5, 1.0], [2.0, 1.0]],
            (
                "3.0 / 0.0 = inf",
                "self.first.h[0, 0] = 3.0",
                "self.first.shifted[0, 0] = 0.0",
                "of self.ratio",
            ),
        ),
    ],
    ids=["layer", "network"],
)
def test_names_of_attributes(c_backend, make, values, said):
    x = pt.dmatrix("x")
    fn = pytensor.function([x], make(x), mode=GuardMode(backend="c"))
    with pytest.raises(GuardError) as caught:
        fn(np.array(values))
    for text in said:
        assert text in str(caught.value)


def place_of(model):
    """The file and the line, as a table shows them that has no room for columns."""
    return model[3].rpartition(":")[0]


def test_stepper(model):
    plain = MonitorMode(optimizer="fast_compile")
    with step_through(compiled(model, plain), VALUE) as steps:
        steps.until(bad=True)
        text = steps.where()
    assert model[3] in text and marks(text)


def test_debugprint(model):
    text = debugprint(model[1], file="str", print_source=True)
    [line] = [line for line in text.splitlines() if "Sub" in line]
    assert place_of(model) in line and TEXT[-30:] in line  # (a long line is cut around the part)


def test_compare(model):
    turned = model[0].sum() + pt.cos(1e9 * model[0]).sum()
    text = str(compare(turned, {model[0]: np.array([0.12345678, 0.3])}, modes=("float32",)))
    line = test_compare.__code__.co_firstlineno + 1
    assert f"test_renderings.py:{line}:31 in test_compare" in text
    assert f"turned = model[0].sum() + pt.cos(1e9 * model[0]).sum()\n{' ' * 30}^^^^^^" in text


def test_notebook(model, error):
    text = html.unescape(re.sub(r"<[^>]*>", "", inspect_graph(error)._repr_html_()))
    assert model[3] in text and NAME in text and marks(text)


def test_warning_beside_a_progress_bar(model, capsys):
    """The text is written above the bar, and the bar is drawn again below."""
    bars = pytest.importorskip("tqdm")
    fn = compiled(model, GuardMode(action="warn", backend="c"))
    handler = logging.StreamHandler(sys.stderr)
    logging.getLogger("theanoguard").addHandler(handler)
    try:
        for _ in bars.tqdm(range(1), file=sys.stderr, ncols=40, mininterval=0):
            fn(VALUE)
    finally:
        logging.getLogger("theanoguard").removeHandler(handler)
    text = capsys.readouterr().err
    before, _, after = text.partition("NaN in log")
    assert "0/1" in before and before.rpartition("\r")[2].strip() == ""
    assert marks(after) and "1/1" in after.rpartition("\r")[2]
