"""Statistics of a training, and events with batch and epoch."""

import json
import pickle
import sys
import threading

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from theanoguard import GuardError, GuardMode
from theanoguard.log import read_log
from theanoguard.records import GuardEvent
from theanoguard.training import GradientGuard, Watch, watching
from theanoguard.training.ops import not_finite
from theanoguard.training.ops import summarise as summarise_all

pytestmark = pytest.mark.on_30


def summarise(array):
    (summary,) = summarise_all([array])
    return summary


class Net:
    """Two parameters, moved by what is put in; the cost is a logarithm of an input."""

    def __init__(self, mode="CVM", through=None):
        x, y = pt.vector("x"), pt.scalar("y")
        self.w = pytensor.shared(np.array([1.0, 2.0, 0.0]), name="w")
        self.b = pytensor.shared(np.array([[0.5]]), name="b")
        self.start = [p.get_value() for p in self.params]
        cost = pt.log(y)
        cost.name = "cost"
        total = (x * self.w).sum() + (y * self.b).sum()
        self.grads = pytensor.grad(total, self.params)
        grads = self.grads if through is None else through(self)
        updates = {p: p - g for p, g in zip(self.params, grads, strict=True)}
        self.train = pytensor.function([x, y], cost, updates=updates, mode=mode)

    @property
    def params(self):
        return [self.w, self.b]

    def reset(self):
        for p, value in zip(self.params, self.start, strict=True):
            p.set_value(value)
        return self


@pytest.fixture(scope="module")
def net_of_module():
    return Net()


@pytest.fixture
def net(net_of_module):
    return net_of_module.reset()


X = np.array([1.0, 0.0, -1.0])


def run(net, values):
    for value in values:
        net.train(X, value)


@pytest.fixture(scope="module", params=["CVM", "NUMBA"])
def inside(request):
    """A watch and a step through which the gradients go."""
    made = {}

    def through(net):
        made["watch"] = Watch(net.params, every=2)
        return made["watch"].gradients(net.grads)

    return made, Net(request.param, through)


def test_statistics_of_weights_gradients_and_updates(inside):
    made, net = inside
    watch = made["watch"]
    for _ in range(3):
        with watch.step():
            net.train(X, 2.0)
    rows = [(r.step, r.kind, r.name) for r in watch.records]
    assert rows == [
        (step, kind, name)
        for step in (1, 3)
        for kind in ("weight", "gradient", "update")
        for name in ("w", "b")
    ]
    found = {(r.step, r.kind, r.name): r.summary for r in watch.records}
    w = net.start[0] - X
    assert found[1, "weight", "w"] == summarise(w)
    assert found[3, "weight", "w"] == summarise(w - 2 * X)
    assert found[1, "gradient", "w"] == found[3, "gradient", "w"] == summarise(X)
    assert found[3, "update", "b"] == summarise(np.array([[-2.0]]))
    assert watch.series("w", "weight", "max") == ([1, 3], [2.0, 3.0])
    net.train(X, 2.0)  # outside of a step nothing is gathered
    assert len(watch.records) == len(rows)


@given(
    st.sampled_from(["float32", "float64"]).flatmap(
        lambda dtype: hnp.arrays(
            dtype,
            st.sampled_from([0, 1, 31, 1023, 1024, 1100, 2500]),
            elements=st.floats(-(2.0**60), 2.0**60, width=32),
            fill=st.sampled_from([0.0, 1.5, float("nan"), float("-inf")]),
        )
    ),
    st.randoms(use_true_random=False),
)
def test_the_summary_is_numpys(array, random):
    for _ in range(min(5, len(array))):
        array[random.randrange(len(array))] = random.choice([np.nan, np.inf, -np.inf, 0, 7])
    found, good = summarise(array), array[np.isfinite(array)].astype("float64")
    counts = (found.size, found.n_nan, found.n_inf)
    assert counts == (array.size, np.isnan(array).sum(), np.isinf(array).sum())
    assert not_finite([array]) == ([] if len(good) == len(array) else [0])
    if len(good):
        np.testing.assert_allclose(found.mean, good.mean(), rtol=1e-9, atol=1e-9 * abs(good).max())
        np.testing.assert_allclose(found.norm, np.sqrt((good**2).sum()), rtol=1e-9)
        assert (found.min, found.max) == (good.min(), good.max())
    else:
        assert np.isnan([found.min, found.max, found.mean]).all() and found.norm == 0
    if len(array):
        assert found.zeros == (array == 0).mean()


def test_any_layout_and_other_floats():
    a = np.arange(12.0).reshape(3, 4)
    assert summarise(a[::2, ::3]) == summarise(np.array([0.0, 3.0, 8.0, 11.0]))
    assert summarise(np.asfortranarray(a)).norm == pytest.approx(summarise(a).norm)
    assert summarise(np.float16([1, 2])).mean == 1.5
    assert summarise(np.array(3.0)).size == 1


def test_many_arrays_of_several_dtypes():
    rng = np.random.default_rng(0)
    dtypes = ["float32", "float64", "float16"]
    arrays = [rng.normal(size=i).astype(dtypes[i % 3]) for i in range(1, 24)]
    for i in (3, 4, 21):
        arrays[i][i // 2] = np.inf
    assert sorted(not_finite(arrays)) == [3, 4, 21]
    assert summarise_all(arrays) == [summarise(array) for array in arrays]
    assert [s.size for s in summarise_all(arrays)] == list(range(1, 24))
    assert not_finite([]) == summarise_all([]) == []


def test_a_loop_as_it_was(net):
    kind = type(net.train)
    with watching(net.train, batches_per_epoch=3) as watch:
        assert net.train(X, 1.0) == 0.0
        run(net, [1.0, 1.0, 0.0, 0.0, 1.0, 0.0, np.nan])
    assert type(net.train) is kind
    net.train(X, 1.0)
    assert (watch.steps, watch.epoch, watch.batch) == (8, 3, 2)
    assert [(e.kind, e.role, e.variable, e.epoch, e.batch) for e in watch.events] == [
        ("inf", "output", "cost", 2, 1),  # not again at the next step
        ("inf", "output", "cost", 3, 1),
        ("nan", "weight", "b", 3, 2),
    ]
    last = watch.events[-1]
    assert (last.first_index, last.shape, last.n_nan, last.call) == ((0, 0), (1, 1), 1, 8)


def test_weights_looked_at_where_statistics_are_due(net):
    with watching(net.train, every=3, look_always=False, skip="cost") as watch:
        run(net, [1.0, np.nan, 1.0, 1.0])
    assert [(e.variable, e.batch) for e in watch.events] == [("b", 4)]


def test_epochs_of_ones_own(net):
    with watching(net.train, net.params, every="epoch") as watch:
        for _ in range(2):
            run(net, [1.0, 1.0, 1.0])
            watch.next_epoch()
    assert [(r.step, r.epoch, r.batch) for r in watch.records if r.name == "w"] == [
        (1, 1, 1),
        (1, 1, 1),
        (4, 2, 1),
        (4, 2, 1),
    ]


def test_gradients_of_a_function_that_is_there(net):
    with watching(net.train, net.params, grads=net.grads, every=2) as watch:
        run(net, [2.0, 3.0, np.nan])
    steps, norms = watch.series("b", "gradient")
    assert steps == [1, 3] and norms == [2.0, 0.0]
    assert ("gradient", "b", 3) in [(e.role, e.variable, e.batch) for e in watch.events]


def test_names_and_layers_that_are_skipped(net):
    names = ["dense/weights", "dense/bias"]
    with watching(net.train, net.params, names=names, skip=("*/bias", "cost")) as watch:
        run(net, [np.nan, 0.0])
    assert {r.name for r in watch.records} == {"dense/weights"}
    assert watch.events == []


def test_events_of_the_guard_tell_batch_and_epoch():
    x = pt.vector("x")
    w = pytensor.shared(np.ones(2), name="w")
    hidden = pt.log(x)
    hidden.name = "hidden"
    updates = {w: w + pt.exp(-hidden)}
    recording = pytensor.function([x], updates=updates, mode=GuardMode(action="record"))
    recording([1.0, 0.0])  # before anybody watches
    w.set_value(np.ones(2))
    with watching(recording, batches_per_epoch=2, skip=["w"]) as watch:
        for value in (1.0, 1.0, -1.0):
            recording([1.0, value])
    assert {(e.epoch, e.batch) for e in watch.events} == {(2, 1)}
    assert (watch.events[0].kind, watch.events[0].role) == ("nan", "node")

    raising = pytensor.function([x], updates=updates, mode=GuardMode())
    w.set_value(np.ones(2))
    with watching(raising) as watch:
        raising([1.0, 1.0])
        with pytest.raises(GuardError):
            raising([1.0, 0.0])
        raising([1.0, 1.0])
    assert [(e.kind, e.batch) for e in watch.events] == [("inf", 2)]
    assert watch.steps == 3


def test_events_of_a_gradient_guard():
    guard = GradientGuard(max_norm=3.0, action="record")
    net = Net(through=lambda net: guard(net.grads, net.params))
    with watching(net.train, guards=[guard]) as watch:
        run(net, [1.0, 5.0, 1.0])
    (event,) = watch.events
    assert (event.role, event.variable, event.batch, event.epoch) == ("gradient norm", "b", 2, 1)
    assert event.first_value == pytest.approx(np.sqrt(27))


def test_everything_is_bounded(net):
    with watching(net.train, history=2, max_events=3, updates=False) as watch:
        for _ in range(4):
            run(net, [0.0, 1.0])
    assert [e.call for e in watch.events] == [3, 5, 7]
    assert {r.step for r in watch.records} == {7, 8}
    assert {r.kind for r in watch.records} == {"weight"}


def test_the_log(net, tmp_path):
    path = tmp_path / "events.jsonl"
    with watching(net.train, log=path) as watch:
        run(net, [1.0, 0.0])
    assert read_log(path).events == watch.events != []
    assert read_log(path).events[0].batch == 2


def test_an_event_of_version_one_is_read():
    event = GuardEvent(
        "nan", "node", "Log(x)", "Log", None, 0, "float64", (3,), 3, 1, 0, 0, 0, (2,), float("nan")
    )
    old = json.loads(event.to_json())
    assert (old.pop("batch"), old.pop("epoch")) == (None, None)
    old["schema"] = "theanoguard.event/1"
    assert GuardEvent.from_json(json.dumps(old)) == event


def test_the_table(net):
    watch = Watch(net.params)
    assert watch.table() == "no statistics so far"
    with watch.step():
        net.train(X, np.nan)
    title, _head, *lines = watch.table().splitlines()
    assert title == "step 1, epoch 1, batch 1"
    assert [line.split()[:3] for line in lines] == [
        ["weight", "w", "3"],
        ["weight", "b", "1"],
        ["update", "w", "3"],
        ["update", "b", "1"],
    ]
    assert lines[1].split()[3:] == ["nan", "nan", "nan", "0", "0.0%", "1", "0"]


def test_records_are_rows(net):
    with watching(net.train) as watch:
        run(net, [1.0, np.nan])
    rows = [record.row() for record in watch.records]
    assert len(rows) == 8
    assert rows[0]["name"] == "w" and rows[0]["kind"] == "weight" and rows[0]["step"] == 1
    assert rows[-1]["n_nan"] == 1


def test_the_calls_are_recorded(net):
    with watching(net.train) as watch:
        run(net, [1.0] * 20)
    calls, norms = watch.recording.series("w")
    assert calls == list(range(1, 21))
    assert norms[-1] == pytest.approx(np.linalg.norm(net.params[0].get_value()))


def test_the_plot(net):
    pytest.importorskip("matplotlib")
    with watching(net.train) as watch:
        run(net, [1.0, 1.0])
    (axes,) = watch.plot("update", "max").axes
    assert [line.get_label() for line in axes.lines] == ["w", "b"]
    np.testing.assert_allclose(axes.lines[0].get_xydata(), [[1, 1], [2, 1]])
    # A notebook shows it without %matplotlib inline.
    assert watch.plot()._repr_png_().startswith(b"\x89PNG")


def test_without_matplotlib(net, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.delitem(sys.modules, "theanoguard.view.figure", raising=False)
    with pytest.raises(ImportError, match="pip install matplotlib"):
        Watch(net.params).plot()


def test_threads():
    w = pytensor.shared(np.ones(100), name="w")
    watch = Watch([w], updates=False)
    errors = []

    def work():
        try:
            for _ in range(50):
                with watch.step():
                    pass
                assert watch.table() and watch.records
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert sorted(r.step for r in watch.records) == list(range(1, 201))


def test_two_at_once(net):
    with watching(net.train) as outer:
        net.train(X, 1.0)
        with watching(net.train) as inner:
            net.train(X, 1.0)
        net.train(X, 1.0)
    assert (outer.steps, inner.steps) == (3, 1)


def test_pickling(net):
    watch = Watch(net.params)
    with watch.step():
        net.train(X, 1.0)
    again = pickle.loads(pickle.dumps(watch))
    assert again.table() == watch.table()
    with again.step():
        pass
    assert (again.steps, watch.steps) == (2, 1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"every": 0}, "every=0"),
        ({"every": "batch"}, "every='batch'"),
        ({"history": 0}, "history=0"),
        ({"max_events": -1}, "max_events=-1"),
        ({"batches_per_epoch": 0}, "batches_per_epoch=0"),
        ({"names": ["a"]}, "1 names for 2 parameters"),
    ],
)
def test_bad_arguments(settings, message, net):
    with pytest.raises(ValueError, match=message):
        Watch(net.params, **settings)


def test_what_cannot_be_watched(net):
    with pytest.raises(TypeError, match="must be a shared variable|no shared array of floats"):
        Watch([pt.vector("x")])
    with pytest.raises(TypeError, match="must be a shared variable|no shared array of floats"):
        Watch([pytensor.shared(np.arange(3))])
    with pytest.raises(ValueError, match="1 gradients for 2 parameters"):
        Watch(net.params).gradients([pt.vector()])
    watch = Watch(net.params)
    with pytest.raises(KeyError, match="no parameter is called 'c'"):
        watch.series("c")
    with pytest.raises(ValueError, match="value is 'median'"):
        watch.series("w", value="median")
    x = pt.vector("x")
    with (
        pytest.raises(ValueError, match="updates no array of floats"),
        watching(pytensor.function([x], x, mode="CVM")),
    ):
        pass
