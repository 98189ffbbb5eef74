"""The record of a function's calls in TensorBoard, in MLflow and in a user's own tracker."""

import sys
from types import SimpleNamespace

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from theanoguard import GuardError, GuardMode
from theanoguard.log import MLflow, TensorBoard
from theanoguard.training import recording_of

SINCE = (
    "Since call 51: the input x reaches a magnitude of 1000.0.  In the calls before, it was 1.0 at "
    "most, and usually 1.0.  From then on the updates of others grew, too: W (1.1e+05 times)."
)


@pytest.fixture(scope="module")
def function():
    w, x = pytensor.shared(np.ones(3), name="W"), pt.dscalar("x")
    cost = pt.log(w).sum()
    cost.name = "cost"
    mode = GuardMode(history=True)
    f = pytensor.function([x], cost, updates={w: 1.01 * x * w}, mode=mode)
    f.w = w
    return f


@pytest.fixture
def recording(function):
    """The record of a function that has not been called."""
    function.w.set_value(np.ones(3))
    function.vm.guard.calls = 0
    function.vm.guard.recording = None
    return recording_of(function)


def fail(function):
    with pytest.raises(GuardError):
        for call in range(1, 70):
            function(-1000.0 if call == 51 else 1.0)


class Writer:
    """What TensorBoard's writers have in common."""

    def __init__(self):
        self.scalars, self.texts, self.flushed = [], [], 0

    def add_scalar(self, *args):
        self.scalars.append(args)

    def add_text(self, *args):
        self.texts.append(args)

    def flush(self):
        self.flushed += 1


def test_a_writer_gets_each_tenth_call_and_the_blame(function, recording):
    writer = Writer()
    recording.send_to(TensorBoard(writer), every=10, figures=["norm", "moved"])
    fail(function)
    calls, norms = recording.series("W")
    found = {call: value for name, value, call in writer.scalars if name == "norm/W"}
    assert found == {c: norms[calls.index(c)] for c in (10, 20, 30, 40, 50)}
    assert {name for name, _, _ in writer.scalars} == {"norm/W", "norm/cost", "moved/W"}
    assert writer.texts == [("theanoguard/since", SINCE, 52)] and writer.flushed


class Full:
    """A tracker whose disk is full."""

    def __init__(self):
        self.asked = 0

    def log(self, call, values):
        self.asked += 1
        raise OSError("no space left")

    def tell(self, call, text):
        self.asked += 1


def test_a_tracker_that_fails_stops_no_call(function, recording, caplog):
    full, writer = Full(), Writer()
    recording.send_to(full)
    recording.send_to(TensorBoard(writer), every=10)
    fail(function)
    assert full.asked == 1
    (said,) = [r.message for r in caplog.records if "is sent no more" in r.message]
    assert "sending to Full (OSError: no space left" in said
    assert writer.texts


@pytest.mark.parametrize(("make", "package"), [(TensorBoard, "tensorboardX"), (MLflow, "mlflow")])
def test_a_package_that_is_absent_is_named(make, package, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=f"pip install {package}$"):
        make(tmp_path) if make is TensorBoard else make()


def test_names_are_as_mlflow_takes_them(monkeypatch):
    sent = {}
    log_metrics = lambda metrics, step: sent.update(metrics)  # noqa: E731
    monkeypatch.setitem(sys.modules, "mlflow", SimpleNamespace(log_metrics=log_metrics))
    MLflow().log(1, {"norm//mlp/linear_0.W": 1.0, "norm/w[0]": 2.0, "norm/cost": 3.0})
    assert sent == {"norm/mlp/linear_0.W": 1.0, "norm/w_0_": 2.0, "norm/cost": 3.0}


def test_what_is_no_tracker_or_figure_is_refused(recording):
    with pytest.raises(TypeError, match="tracker"):
        recording.send_to("runs")
    with pytest.raises(TypeError, match="did you mean 'norm'"):
        recording.send_to(TensorBoard(Writer()), figures=["norms"])


def test_tensorboard_reads_it(function, recording, tmp_path):
    pytest.importorskip("tensorboardX", reason="tensorboardX is not installed")
    reason = "TensorBoard is not installed"
    reading = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason=reason
    )
    tracker = TensorBoard(tmp_path)
    recording.send_to(tracker, every=10)
    fail(function)
    tracker.writer.close()
    events = reading.EventAccumulator(str(tmp_path))
    events.Reload()
    found = {e.step: e.value for e in events.Scalars("norm/W")}
    calls, norms = recording.series("W")
    assert found == pytest.approx({c: norms[calls.index(c)] for c in range(10, 60, 10)})
    (text,) = events.Tensors("theanoguard/since/text_summary")
    assert text.tensor_proto.string_val[0].decode() == SINCE


def test_mlflow_reads_it(function, recording, tmp_path):
    mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed")
    pytest.importorskip("sqlalchemy", reason="MLflow has no database")
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/runs.db")
    with mlflow.start_run() as run:
        recording.send_to(MLflow(), every=10)
        fail(function)
    client = mlflow.tracking.MlflowClient()
    found = {m.step: m.value for m in client.get_metric_history(run.info.run_id, "norm/W")}
    calls, norms = recording.series("W")
    assert found == pytest.approx({c: norms[calls.index(c)] for c in range(10, 60, 10)})
    assert client.get_run(run.info.run_id).data.tags["theanoguard.since"] == SINCE
