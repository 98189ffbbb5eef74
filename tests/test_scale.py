"""Guarded functions, events and errors in other processes: multiprocessing, joblib and Dask.

Dask and joblib are extras; ``tox -e scale`` has both.
"""

import multiprocessing
import pickle
import threading

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

import theanoguard
from theanoguard import GuardError, GuardMode
from theanoguard.cli.main import main
from theanoguard.log import EventLog, read_log, read_logs
from theanoguard.log.worker import whereabouts

pytestmark = pytest.mark.on_30


def compiled(log=None, action="raise"):
    """A guarded function with a shared variable, and its mode."""
    x = pt.dvector("x")
    w = pytensor.shared(np.ones(3), name="w")
    y = pt.log(x * w)
    mode = GuardMode(log=log, action=action)
    return pytensor.function([x], y.sum(), updates={w: w + x}, mode=mode, name="score")


def compile_and_call(start, log=None):
    """Called in a worker, where it compiles for itself."""
    with theanoguard.log.task(f"start {start}"):
        return float(compiled(log)(np.array([start, 1.0, 2.0])))


def call(fn, start):
    """Called in a worker, with a function that came from elsewhere."""
    return float(fn(np.array([start, 1.0, 2.0])))


def trip(start, log=None):
    """Return the error of a worker, as a result."""
    try:
        compile_and_call(start, log)
    except GuardError as error:
        error.add_note(f"in {multiprocessing.current_process().name}")
        return error


@pytest.fixture(scope="module")
def error():
    """The error that the same call raises here."""
    with pytest.raises(GuardError) as caught:
        compile_and_call(-1.0)
    return caught.value


def found_in(error):
    """The report up to the advice, except for the places that compiled the function.

    A function that was pickled has lost the graph as it was built, in which advice is tried, and
    which is evaluated in exact arithmetic.
    """
    text = str(error).partition("What to do")[0]
    if error.explanation.meaning is not None:
        text = text.replace(error.explanation.meaning.text, "")
    lines = [line for line in text.splitlines() if line]
    return [line for line in lines if "called from" not in line]


def assert_whole(arrived, error):
    """What has come from a worker tells the same as what was raised here."""
    assert type(arrived) is GuardError
    assert arrived.event == error.event
    assert arrived.event.function == "score"
    ours, theirs = arrived.explanation.cause, error.explanation.cause
    assert (ours.expression, ours.source) == (theirs.expression, theirs.source)
    assert ours.source is not None
    assert found_in(arrived) == found_in(error)
    assert "test_scale.py" in str(arrived)


# -- pickling


def test_an_error_pickles_whole(error, tmp_path):
    noted = pickle.loads(pickle.dumps(error))
    noted.add_note("batch 7")
    arrived = pickle.loads(pickle.dumps(noted))
    assert_whole(arrived, error)
    assert arrived.__notes__ == [*getattr(error, "__notes__", []), "batch 7"]
    arrived.save_repro(tmp_path / "again.py")
    assert "log" in (tmp_path / "again.py").read_text(encoding="utf-8")


def test_a_guarded_function_pickles(error, tmp_path):
    fn = compiled(tmp_path / "log")
    again = pickle.loads(pickle.dumps(fn))
    with pytest.raises(GuardError) as caught:
        call(again, -1.0)
    assert_whole(caught.value, error)
    assert len(read_log(tmp_path / "log").events) == 1


# -- multiprocessing


@pytest.fixture(scope="module")
def pool():
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        yield pool


def test_what_a_process_raises_arrives_whole(pool, error):
    with pytest.raises(GuardError) as caught:
        pool.apply(compile_and_call, (-1.0,))
    assert_whole(caught.value, error)


def test_what_a_process_returns_arrives_whole(pool, error):
    arrived = pool.apply(trip, (-1.0,))
    assert_whole(arrived, error)
    assert arrived.__notes__[-1].startswith("in SpawnPoolWorker-")


def test_a_function_travels_to_a_process(pool, error):
    fn = compiled()
    assert pool.apply(call, (fn, 1.0)) == pytest.approx(np.log(2))
    with pytest.raises(GuardError) as caught:
        pool.apply(call, (fn, -1.0))
    assert_whole(caught.value, error)
    # Here nothing has happened.
    assert [v.get_value().tolist() for v in fn.get_shared()] == [[1.0, 1.0, 1.0]]


@pytest.fixture(scope="module")
def many(pool, tmp_path_factory):
    """The logs of two workers' tasks, one file for all of them and one for each."""
    folder = tmp_path_factory.mktemp("logs")
    starts = [-1.0, 1.0, 0.0, -2.0]
    pool.starmap(trip, [(start, folder / "all") for start in starts], chunksize=1)
    pool.starmap(trip, [(start, folder / f"of {start}") for start in starts], chunksize=1)
    return folder


def test_the_log_names_worker_and_task(many):
    log = read_log(many / "all")
    assert sorted(entry.task for entry in log.entries) == ["start -1.0", "start -2.0", "start 0.0"]
    assert all(entry.worker.startswith("SpawnPoolWorker-") for entry in log.entries)
    assert all(entry.explanation is not None for entry in log.entries)
    kinds = {entry.task: entry.event.kind for entry in log.entries}
    assert kinds == {"start -1.0": "nan", "start 0.0": "inf", "start -2.0": "nan"}


def test_logs_of_many_workers_merge(many):
    apart = read_logs(sorted(many.glob("of *")))
    together = read_log(many / "all")
    assert [e.time for e in apart.entries] == sorted(e.time for e in apart.entries)
    assert {(e.task, e.event) for e in apart.entries} == {
        (e.task, e.event) for e in together.entries
    }
    assert len(apart.headers) == 1  # all of them ran on the same


def test_a_report_of_many_workers(many, capsys):
    logs = [str(path) for path in sorted(many.glob("of *"))]
    assert main(["report", *logs, "--short", "--all"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert text.count(", worker SpawnPoolWorker-") == 3
    assert ", task start -2.0 " in text
    assert "3 of 3 events." in text
    assert main(["report", *logs, "--task", "start -*", "--kind", "nan", "--short"]) == 0
    assert "2 of 3 events." in capsys.readouterr().out
    assert main(["report", *logs, "--worker", "nobody", "--short"]) == 0
    assert "0 of 3 events." in capsys.readouterr().out


def test_what_the_report_writes_as_json_keeps_the_names(many, tmp_path, capsys):
    assert main(["report", str(many / "all"), "--json"]) == 0
    (tmp_path / "again").write_text(capsys.readouterr().out, encoding="utf-8")
    again, before = read_log(tmp_path / "again"), read_log(many / "all")
    names = {(e.worker, e.task, e.time) for e in before.entries}
    assert {(e.worker, e.task, e.time) for e in again.entries} == names
    assert len(names) == 3
    assert {e.event for e in again.entries} == {e.event for e in before.entries}
    assert again.headers == before.headers


def test_explanations_find_their_events_among_equal_ones(tmp_path, error):
    """The same event in two tasks, whose lines lie across."""
    log = EventLog(tmp_path / "log")
    for write in (lambda: log.add(error.event), lambda: log.explain(error.explanation)):
        for name in ("one", "two"):
            with theanoguard.log.task(name):
                write()
    entries = read_log(tmp_path / "log").entries
    assert [(e.task, e.explanation is not None) for e in entries] == [
        ("one", True), ("two", True),
    ]  # fmt: skip


# -- names


def test_a_main_process_without_a_task_has_no_names():
    assert whereabouts() == {}


def test_tasks_lie_in_one_another_and_belong_to_their_thread():
    seen = []
    with theanoguard.log.task("outer"):
        with theanoguard.log.task("x" * 1000):
            seen.append(whereabouts()["task"])
        thread = threading.Thread(target=lambda: seen.append(whereabouts()))
        thread.start()
        thread.join()
        seen.append(whereabouts()["task"])
    assert seen == ["x" * 200, {}, "outer"]


# -- joblib


def test_joblib(error, tmp_path):
    joblib = pytest.importorskip("joblib")
    with joblib.Parallel(n_jobs=2, backend="loky") as parallel:
        values = parallel(joblib.delayed(compile_and_call)(s) for s in (1.0, 2.0))
        assert values == pytest.approx([np.log(2), np.log(4)])
        with pytest.raises(GuardError) as caught:
            parallel(joblib.delayed(compile_and_call)(s, tmp_path / "log") for s in (1.0, -1.0))
        assert_whole(caught.value, error)
        fn = compiled()
        with pytest.raises(GuardError) as caught:
            parallel(joblib.delayed(call)(fn, s) for s in (1.0, -1.0))
        assert_whole(caught.value, error)
    [entry] = read_log(tmp_path / "log").entries
    assert entry.worker.startswith("LokyProcess-")
    assert entry.task == "start -1.0"


# -- Dask


@pytest.fixture(scope="module")
def client():
    distributed = pytest.importorskip("distributed", reason="Dask is an extra (tox -e scale)")
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def test_what_a_dask_worker_raises_arrives_whole(client, error):
    future = client.submit(compile_and_call, -1.0, pure=False)
    assert_whole(future.exception(), error)
    with pytest.raises(GuardError) as caught:
        future.result()
    assert_whole(caught.value, error)


def test_what_a_dask_worker_returns_arrives_whole(client, error):
    arrived = client.submit(trip, -1.0, pure=False).result()
    assert_whole(arrived, error)
    assert arrived.__notes__


def test_a_function_travels_to_dask(client, error):
    fn = compiled()
    futures = client.map(call, [fn, fn], [1.0, -1.0], pure=False)
    assert futures[0].result() == pytest.approx(np.log(2))
    assert_whole(futures[1].exception(), error)


def call_recording(fn, start):
    call(fn, start)
    return [event.kind for event in theanoguard.events_of(fn)]


def test_the_logs_of_dask_workers_name_worker_and_key(client, tmp_path):
    workers = list(client.scheduler_info()["workers"])
    futures = [
        client.submit(
            call_recording,
            compiled(tmp_path / f"{n}.jsonl", action="record"),
            -1.0,
            key=f"chain-{n}",
            workers=[worker],
        )
        for n, worker in enumerate(workers)
    ]
    assert [future.result() for future in futures] == [["nan"], ["nan"]]
    log = read_logs(sorted(tmp_path.glob("*.jsonl")))
    assert {entry.worker for entry in log.entries} == {"0", "1"}
    assert {entry.task for entry in log.entries} == {"chain-0", "chain-1"}
    assert len(log.entries) == 2
