"""Shared variables of which a call reads and writes some elements alone, such as an embedding."""

import tracemalloc

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from guarding import CountedIdentity, guarded, trip
from pytensor.compile.builders import OpFromGraph

from theanoguard import GuardError

WORDS = np.array([1, 2, -1])
ROWS = 50

pytestmark = pytest.mark.not_on(
    jax="arrays that cannot be written to are read whole", pytorch="tensors are read whole"
)


def table(value=0.5):
    return pytensor.shared(np.full((ROWS, 3), value), name="table")


def touched(variable):
    """Return the array that a shared variable holds, to be changed where it lies."""
    return variable.get_value(borrow=True)


@pytest.fixture(scope="module")
def training():
    """The table, and a function that reads and updates the rows of some words."""
    words, target = pt.lvector("words"), pt.dvector("target")
    rows = (variable := table())[words]
    cost = ((rows.sum(axis=1) - target) ** 2).mean()
    updates = {variable: pt.inc_subtensor(rows, -0.1 * pytensor.grad(cost, rows))}
    return variable, guarded([words, target], cost, updates, big_is_error=False)


def test_an_element_is_found_by_the_call_that_reads_it(training):
    variable, f = training
    touched(variable)[20] = np.nan
    before = variable.get_value()
    f(WORDS, np.ones(3))
    assert not np.array_equal(variable.get_value()[WORDS], before[WORDS])
    before = variable.get_value()
    event = trip(f, np.array([3, 20]), np.ones(2))
    assert (event.role, event.variable, event.kind) == ("shared", "table", "nan")
    assert tuple(event.first_index) == (20, 0) and event.n_bad == 3
    assert np.array_equal(variable.get_value(), before, equal_nan=True)


def test_what_is_written_is_found(training):
    variable, f = training
    variable.set_value(np.full((ROWS, 3), 0.5))
    before = variable.get_value()
    event = trip(f, WORDS, np.array([1.0, 1e300, 1.0]))
    assert event.role == "node"
    assert np.array_equal(variable.get_value(), before)


def test_what_is_overwritten_unread_may_be_bad():
    words, values = pt.lvector("words"), pt.dmatrix("values")
    variable = table()
    f = guarded([words, values], [], {variable: pt.set_subtensor(variable[words], values)})
    touched(variable)[WORDS] = np.nan
    for _ in range(3):
        f(WORDS, np.ones((3, 3)))
    assert np.array_equal(variable.get_value()[WORDS], np.ones((3, 3)))
    event = trip(f, WORDS, np.full((3, 3), np.inf))
    assert (event.role, event.variable) == ("input", "values")
    assert np.array_equal(variable.get_value()[WORDS], np.ones((3, 3)))


def test_what_is_incremented_is_read():
    words, by = pt.lvector("words"), pt.dscalar("by")
    variable = table()
    f = guarded([words, by], [], {variable: pt.inc_subtensor(variable[words], by)})
    touched(variable)[2] = 1.2e10
    event = trip(f, WORDS, -6e9)  # the sum is not big
    assert (event.role, event.variable, event.kind) == ("shared", "table", "big")
    touched(variable)[2] = 6e9
    event = trip(f, WORDS, 6e9)
    assert (event.role, event.kind, event.n_bad) == ("node", "big", 3)
    assert touched(variable).max() == 6e9


def test_slices():
    start = pt.lscalar("start")
    variable = table()
    updates = {variable: pt.inc_subtensor(variable[start : start + 2], 1e308)}
    f = guarded([start], [], updates, big_is_error=False)
    touched(variable)[40] = np.inf
    f(4)
    assert trip(f, 4).role == "node"
    assert trip(f, 39).role == "shared"
    assert touched(variable)[4, 0] == 1e308


def test_the_audit_has_the_same_definition():
    words = pt.lvector("words")
    variable = table()
    updates = {variable: pt.inc_subtensor(variable[words], 1.0)}
    f = guarded([words], [], updates, audit=True)
    touched(variable)[20] = np.nan
    f(WORDS)
    assert trip(f, np.array([20])).role == "shared"


def test_a_function_that_reads_all_of_it_finds_all():
    words, variable = pt.lvector("words"), table()
    f = guarded([words], [variable[words].sum(), variable.sum()])
    touched(variable)[40] = np.nan
    assert trip(f, WORDS).variable == "table"


def test_a_row_that_is_infinite_on_purpose():
    """What was written on purpose makes no later call suspicious for ever."""
    words, variable = pt.lvector("words"), table()
    f = guarded([words], [], {variable: pt.set_subtensor(variable[words], -np.inf)})
    for _ in range(4):
        f(WORDS)
    assert np.isneginf(variable.get_value()[WORDS]).all()
    assert trip(guarded([words], variable[words] * 2), WORDS).role == "shared"


def test_every_infinity_counts_where_it_is_asked_for():
    words, variable = pt.lvector("words"), table()
    updates = {variable: pt.set_subtensor(variable[words], 1.0)}
    f = guarded([words], [], updates, inf_is_error="any")
    touched(variable)[20] = np.inf
    assert trip(f, WORDS).role == "shared"


@pytest.mark.parametrize(("backend", "wrong"), [("c", 9), ("c", -6), ("numba", 9)])
def test_a_row_that_does_not_exist_changes_nothing(backend, wrong):
    """A call that fails before it has saved anything restores nothing from an earlier call."""
    table = pytensor.shared(np.ones((5, 2)), name="table")
    words = pt.lvector("words")
    updates = [(table, pt.inc_subtensor(table[words], 1.0))]
    step = guarded([words], [], updates, backend=backend)
    step([1, 2])
    with pytest.raises(IndexError, match=f"index {wrong}") as caught:
        step([1, wrong])
    assert "IndexError in indexed update" in "".join(caught.value.__notes__)
    assert table.get_value()[:, 0].tolist() == [1, 2, 2, 1, 1]
    step([1, -1])
    assert table.get_value()[:, 0].tolist() == [1, 3, 2, 1, 2]


@pytest.mark.parametrize("choose", [lambda i: i, pt.sort], ids=["given", "computed"])
def test_rows_of_any_array_are_put_back(choose):
    """Whatever its elements are and however it lies in memory, and however many rows a call has."""
    values = [
        np.ones((6, 2, 3), "float32"),
        np.ones(6, "complex64"),
        np.ones((6, 5), "int8"),
        np.arange(24.0).reshape(6, 4)[::-1, ::2],
    ]
    tables = [pytensor.shared(value, borrow=True) for value in values]
    words, x = pt.lvector("words"), pt.dscalar("x")
    step = guarded(
        [words, x], pt.log(x), {t: pt.inc_subtensor(t[choose(words)], 1) for t in tables}
    )

    def plays(chosen):
        before = [table.get_value() for table in tables]
        with pytest.raises(GuardError):
            step(chosen, -1.0)
        with pytest.raises(IndexError):
            step([*chosen, 10], 1.0)
        for table, value in zip(tables, before, strict=True):
            assert np.array_equal(touched(table), value)
        step(chosen, 1.0)
        for table, value in zip(tables, before, strict=True):
            np.add.at(value, chosen, np.ones((), value.dtype))
            assert np.array_equal(touched(table), value)

    for chosen in ([1], [1, 4, 1, -1, -5], np.array([], int), [5, -6] * 9, [2]):
        plays(chosen)
    tables[0].set_value(np.zeros((9, 3, 4), "float32"))  # longer rows, and more
    plays([1, 3])


@pytest.mark.parametrize(
    "choose", [lambda i: i, pt.sort, lambda i: i**2], ids=["given", "sorted", "squared"]
)
def test_only_rows_are_copied(choose):
    """Before the update, and where the call fails."""
    table, words = pytensor.shared(np.ones((50_000, 20))), pt.lvector("words")
    x, rows = pt.dscalar("x"), choose(words)
    new = pt.inc_subtensor(table[rows], -0.1 * pt.exp(table[rows]))
    step = guarded([words, x], pt.log(x), {table: new})
    step([1, 3], 1.0)
    before = table.get_value()
    tracemalloc.start()
    step([3, 2, 1], 1.0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < before.nbytes / 10
    before = table.get_value()
    with pytest.raises(GuardError):
        step([7, 3], -1.0)
    assert np.array_equal(table.get_value(), before)


@pytest.mark.parametrize("inside", [False, True], ids=["outside", "in an inner graph"])
def test_an_operation_with_effects_runs_once_in_a_call(inside):
    """Also in the first one, where it is not known how many rows the graph computes."""
    table, words = pytensor.shared(np.ones((ROWS, 3))), pt.lvector("words")
    counted, x, v = CountedIdentity(), pt.dvector("x"), pt.dvector("v")
    y = OpFromGraph([v], [counted(v)])(x) if inside else counted(x)
    step = guarded([words, x], y, {table: pt.inc_subtensor(table[pt.sort(words)], y.sum())})
    for n in (2, 3, 1):
        step(np.arange(n), np.ones(2))
    assert counted.runs == 3


# How the inner graph of an operation reads a table: which rows are read where `i` is 3.
INSIDE = {
    "a row that is an input": (lambda inner, i: inner[i], {3}),
    "rows that are constant": (lambda inner, i: inner[2:4] * i, {2, 3}),
    "a computed row": (lambda inner, i: inner[i + 1], set(range(ROWS))),
    "two parts": (lambda inner, i: inner[i] + inner[0], {0, 3}),
    "all and a part": (lambda inner, i: inner.sum(axis=0) + inner[i], set(range(ROWS))),
}


@pytest.mark.parametrize("how", INSIDE)
def test_what_an_operation_with_an_inner_graph_reads(how):
    make, read = INSIDE[how]
    inner, i = pt.dmatrix("inner"), pt.lscalar("i")
    op = OpFromGraph([inner, i], [make(inner, i)], on_unused_input="ignore")
    variable, row = table(), pt.lscalar("row")
    f = guarded([row], op(variable, row).sum(), big_is_error=False)
    f(3)
    for bad in read & {0, 2, 3, 4, 20}:  # (a backend may read the others as well)
        touched(variable)[bad, 1] = np.nan
        assert trip(f, 3).role == "shared"
        touched(variable)[bad, 1] = 0.5
        f(3)
