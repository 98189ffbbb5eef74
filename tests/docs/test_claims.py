"""What the documentation claims, where no other test shows it."""

import csv
import functools
import io
import json
import re
import statistics
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from legacy_projects.compare import difference
from pytensor.compile.debug.monitormode import MonitorMode, detect_nan
from pytensor.compile.debug.nanguardmode import NanGuardMode
from pytensor.compile.mode import Mode
from pytensor.tensor import special

import theanoguard
from theanoguard.explain.advice import hints

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import figures

pytestmark = pytest.mark.on_33

inf, nan = np.inf, np.nan

DOCS = Path(__file__).parents[2] / "docs"

# ---------------------------------------------------------------- nans.rst: numerical stability

UNSTABLE = re.findall(
    r"   \* - ``(.*)``\n     - ``(\[.*\])``\n     - ``(.*)``\n",
    (DOCS / "nans.rst").read_text(encoding="utf-8"),
)
IN_SPECIAL = {name: getattr(special, name) for name in ("softmax", "log_softmax", "xlogy")}


def value_of(text, values, mode):
    """The value of an expression in x."""
    x = pt.dvector("x")
    unbound = {
        name: functools.partial(op, axis=-1) if "softmax" in name else op
        for name, op in IN_SPECIAL.items()
    }
    expression = eval(text, {"pt": pt, "x": x, **unbound})
    return pytensor.function([x], expression, mode=mode)(np.array(values, dtype="float64"))


def test_the_table_is_read():
    assert len(UNSTABLE) > 8


@pytest.mark.parametrize(("unstable", "at", "stable"), UNSTABLE)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_the_stable_form_is_finite_where_the_other_is_not(unstable, at, stable):
    values = eval(at)
    as_written = Mode("py", None)  # no rewrite saves it
    assert not np.isfinite(value_of(unstable, values, as_written)).all()
    assert np.isfinite(value_of(stable, values, "CVM")).all()
    good = np.full(3, -0.5 if "1 - pt.exp" in unstable else 0.5)
    np.testing.assert_allclose(
        value_of(unstable, good, as_written), value_of(stable, good, "CVM"), atol=1e-7
    )


# ---------------------------------------------------------------- figures that were measured


def mean_of(rows, head, name):
    """How much more time a guarded call takes, in per cent: the mean of five workloads."""
    at = head.index(name)
    return 100 * (statistics.geometric_mean(float(row[at]) for row in rows[:10]) - 1)


def test_the_front_pages_have_the_figures_of_the_tables():
    c = figures.read()["c"]["rows"]
    head, *numba = measured("numba")["Calls"]
    pages = [DOCS.parent / "README.rst", DOCS / "cost.rst", DOCS / "measurements.rst"]
    readme, cost, summary = (" ".join(p.read_text(encoding="utf-8").split()) for p in pages)
    on_c, on_numba = mean_of(c, figures.HEADS["c"], "guarded"), mean_of(numba, head, "guarded")
    for page in (readme, cost, summary):
        assert f"about {on_c:.0f} % more time" in page
    assert f"about {on_numba:.0f} % more" in summary


@pytest.mark.parametrize("name", figures.COMMANDS)
def test_no_figure_is_older_than_the_kernel(name):
    assert figures.outdated(figures.read()[name]) is None


def test_a_changed_kernel_is_noticed(tmp_path, monkeypatch):
    sources = tmp_path / "theanoguard" / "guard" / "c"
    sources.mkdir(parents=True)
    (sources / "scan.c").write_text("int a; /* one */\n")
    monkeypatch.setattr(figures, "ROOT", tmp_path)
    table = {"date": "2026-11-26", "kernel": figures.kernel(), "accepted": {}}
    (sources / "scan.c").write_text("int  a; // another comment\n")
    assert figures.outdated(table) is None
    (sources / "scan.c").write_text("int b;\n")
    assert "has changed since 2026-11-26" in figures.outdated(table)
    table["accepted"][figures.kernel()] = "another name."
    assert figures.outdated(table) is None


# ---------------------------------------------------------------- what the hints tell to write


def test_what_a_hint_names_exists():
    texts = " ".join(
        f"{rule.fact} {rule.advice}" for rules in hints._rules.values() for rule in rules
    )
    named = re.findall(r"\b(?:pt|pytensor\.tensor)\.((?:\w+\.)*\w+)", texts)
    assert named
    missing = [name for name in named if not exists(name)]
    assert not missing


def exists(name):
    found = pt
    for part in name.split("."):
        found = getattr(found, part, None)
    return found is not None


# ---------------------------------------------------------------- coming_from.rst

COMING_FROM, _, _ = (
    (DOCS / "coming_from.rst").read_text(encoding="utf-8").partition("How the tools compare")
)
OURS = [
    name
    for cell in re.findall(r"   \* - .*(?:\n       .*)*\n     - (.*(?:\n       .*)*)", COMING_FROM)
    for name in re.findall(r"``([A-Za-z_]\w*(?:\.\w+)*)[(`]", cell)
]


# (PyTensor's flags are no names of a module.)
@pytest.mark.parametrize("name", sorted({*OURS} - {"NanGuardMode__action", "PYTENSOR_FLAGS"}))
@pytest.mark.filterwarnings("error::DeprecationWarning")  # (a name that has moved)
def test_what_stands_on_the_right_exists(name):
    found = theanoguard
    if name.startswith("pytensor."):
        found, name = pytensor, name.removeprefix("pytensor.")
    for part in name.split("."):
        found = getattr(found, part)


def test_the_tests_that_the_pages_name_exist():
    root = DOCS.parent
    pages = (path.read_text(encoding="utf-8") for path in DOCS.glob("*.rst"))
    named = {n for page in pages for n in re.findall(r"(tests/\w+/test_\w+\.py)::(test_\w+)", page)}
    assert named
    for file, test in named:
        assert f"def {test}(" in (root / file).read_text(encoding="utf-8"), f"{file}::{test}"


# ---------------------------------------------------------------- measurements.rst

RECORDED = DOCS.parent / "tests" / "legacy_projects"


def measured(name):
    """The tables of a file of measurements, by title, each as a list of rows."""
    path = DOCS / "measurements" / f"{name}.toml"
    tables = tomllib.loads(path.read_text(encoding="utf-8"))["table"]
    return {t["title"]: list(csv.reader(io.StringIO(t.get("csv", "").strip()))) for t in tables}


def test_the_summary_of_theanos_tests_adds_up_the_tables():
    tables = measured("theano")
    areas = [
        (int(there) - int(apart), int(here), share)
        for _, there, apart, here, share, _ in tables["Theano's own tests by area"][1:]
    ]
    assert len(areas) >= 24
    assert all(f"{100 * here / there:.1f} %" == share for there, here, share in areas)
    suites = json.loads((RECORDED / "suites.json").read_text(encoding="utf-8")).values()
    totals = [
        (sum(there for there, *_ in areas), sum(here for _, here, _ in areas)),
        (sum(suite["there"] for suite in suites), sum(suite["of these"] for suite in suites)),
    ]
    said = [result for *_, result in tables["Tests"]]
    for there, here in totals:
        assert f"{here:,} of {there:,} pass ({100 * here / there:.1f} %)" in said


def test_the_largest_difference_of_a_program():
    programs = json.loads((RECORDED / "programs.json").read_text(encoding="utf-8")).values()
    largest = max(program["difference"] for program in programs)
    page = (DOCS / "theano.rst").read_text(encoding="utf-8")
    assert f"largest relative difference is {largest:.0e}," in " ".join(page.split())
    assert len(programs) > 30


LABORATORY = re.compile(
    r"20\d\d-\d\d-\d\d|\d{1,2} (January|November|December) 20\d\d|other programs|EPYC|Xeon|Zen 4"
    r"|busy machine|loaded machine|shared machine.*measured",
)


@pytest.mark.parametrize(
    "page",
    sorted({*DOCS.glob("*.rst"), DOCS.parent / "README.rst"}),
    ids=lambda page: page.name,
)
def test_only_the_measurements_have_a_date_a_machine_or_a_load(page):
    assert not LABORATORY.search(page.read_text(encoding="utf-8"))


def test_each_measurement_has_what_it_takes_to_repeat_it():
    named = re.findall(
        r"\.\. measurements:: (\w+)", (DOCS / "measurements.rst").read_text(encoding="utf-8")
    )
    paths = sorted((DOCS / "measurements").glob("*.toml"))
    assert sorted(named) == [path.stem for path in paths]
    for path in paths:
        for table in tomllib.loads(path.read_text(encoding="utf-8"))["table"]:
            assert table["title"]
            if "figures" not in table:
                assert re.match(r"20\d\d-\d\d-\d\d", table["date"])
                assert table["versions"]


@pytest.mark.parametrize(
    "one, other, expected",
    [([1.0, 4.0], [1.0, 5.0], 0.25), ([nan, 1.0], [nan, 1.0], 0.0), ([inf, 2.0], [inf, 1.0], 0.5)]
    + [([nan, 1.0], [2.0, 1.0], inf), ([1.0], [inf], inf), ([1.0], [1.0, 2.0], inf)],
)
def test_a_value_that_is_not_finite_differs_from_a_number(one, other, expected):
    assert difference([("loss", one)], [("loss", other)]) == expected


def message_of(function, *arguments):
    with pytest.raises(AssertionError) as caught:
        function(*arguments)
    return str(caught.value)


@pytest.fixture(scope="module")
def theirs():
    """PyTensor's NanGuardMode."""
    return NanGuardMode(True, True, True)


def test_pytensors_guard_names_the_fused_node_and_not_the_line(theirs, needs_cxx):
    x = pt.dvector("x")
    f = pytensor.function([x], pt.log(x - 0.5), mode=theirs)
    message = message_of(f, np.array([1.0, 0.25]))
    assert "Composite{log((-0.5 + i0))}" in message
    assert Path(__file__).name not in message
    assert "-0.25" not in message


def test_pytensors_guard_leaves_a_weight_that_was_updated_in_place_changed(theirs, needs_cxx):
    w = pytensor.shared(np.array([1.0, 2.0]), name="w")
    x = pt.dvector("x")
    step = pytensor.function([x], updates={w: w / x}, mode=theirs)
    message_of(step, np.array([0.5, 0.0]))
    assert w.get_value().tolist() == [2.0, np.inf]


def test_pytensors_guard_does_not_look_into_a_loop(theirs):
    def step(state):
        bad = pt.cumsum(pt.log(state))[-1]
        return pt.switch(pt.isnan(bad), 0.5, bad) * pt.ones(2)

    x = pt.dvector("x")
    masked = pytensor.scan(step, outputs_info=[x], n_steps=2, return_updates=False)
    values = np.array([1.0, -1.0])
    assert pytensor.function([x], masked, mode=theirs)(values)[-1].max() < 0
    with pytest.raises(theanoguard.GuardError):
        pytensor.function([x], masked, mode=theanoguard.GuardMode())(values)


def test_pytensors_detect_nan_passes_over_inf_and_goes_on(capsys):
    x = pt.dvector("x")
    mode = MonitorMode(post_func=detect_nan)
    f = pytensor.function([x], pt.log(x), mode=mode)
    assert f(np.array([0.0]))[0] == -np.inf
    assert "NaN" not in capsys.readouterr().out
    assert np.isnan(f(np.array([-1.0]))[0])
    printed = capsys.readouterr().out
    assert "*** NaN detected ***" in printed
    assert Path(__file__).name not in printed
