"""One faulty model in all that shows it: the same name, the same place, the same carets."""

import itertools

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from theanoguard import GuardError, GuardMode, MonitorMode, detect_nan, lint
from theanoguard.cli.main import main
from theanoguard.ops import assert_finite

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
    texts = [str(finding) for finding in lint(model[1])]
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
