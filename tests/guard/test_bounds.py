"""Every operation that indexes, wherever it stands, raises for an index outside as NumPy does."""

import re
from functools import partial

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.replace import vectorize_graph

from theanoguard import GuardMode
from theanoguard._pytensor import ifelse

M = np.arange(12.0).reshape(4, 3)


def increment(read):
    return lambda m, i: pt.inc_subtensor(read(m, i), 1.5)


def assign(read):
    return lambda m, i: pt.set_subtensor(read(m, i), 7.0)


def row(m, i):
    return m[i]


def column(m, i):
    return m[:, i]


def diagonal(m, i):
    return m[i, i]


def beside(m, i):
    return m[i, :2]


# Indices that are inside of 4 rows and 3 columns, and of the same shape some that are not.
NUMBER = pt.lscalar, [2, -3], [4, 100, -5]
NUMBERS = pt.lvector, [[0, 2], [-3, 1]], [[0, 4], [-5, 1], [2**40, 0]]
TABLE = pt.lmatrix, [[[0], [2]], [[-3], [1]]], [[[0], [4]], [[-5], [1]]]
BYTES = pt.bvector, [[0, 2], [-3, 1]], [[0, 4], [-5, 1]]
MASK = (
    lambda name: pt.tensor(name, dtype="bool", shape=(None,)),
    [[True, False, True, False], [False] * 4],
    [[True, False, True], [True] * 5, [False] * 9],
)
MASK_OF_COLUMNS = (MASK[0], [[True, False, True], [False] * 3], [[True, False], [True] * 4])
MASK_OF_ALL = (
    lambda name: pt.tensor(name, dtype="bool", shape=(None, None)),
    [M > 3, M < 0],
    [M[:3] > 3, M[:, :2] > 3, np.ones((5, 3)) > 0, np.ones((4, 4)) > 2],
)

OPERATIONS = {
    "row": (row, NUMBER),
    "rows": (row, NUMBERS),
    "table of rows": (row, TABLE),
    "rows by bytes": (row, BYTES),
    "columns": (lambda m, i: m.T[:, i], NUMBERS),
    "pairs": (lambda m, i: m[i, i * 0], NUMBERS),
    "beside a slice": (beside, NUMBERS),
    "row, increased": (increment(row), NUMBER),
    "row, set": (assign(row), NUMBER),
    "rows, increased": (increment(row), NUMBERS),
    "rows, set": (assign(beside), NUMBERS),
    "mask": (row, MASK),
    "mask of columns": (column, MASK_OF_COLUMNS),
    "mask of all": (row, MASK_OF_ALL),
    "mask, increased": (increment(row), MASK),
    "mask of columns, set": (assign(column), MASK_OF_COLUMNS),
    "mask of all, set": (assign(row), MASK_OF_ALL),
}

FEW = ["rows", "mask", "mask of columns, set"]


def in_a_loop(op, m, i):
    return pytensor.scan(
        lambda i, m: op(m, i).sum(),
        sequences=[pt.stack([i, i])],
        non_sequences=[m],
        return_updates=False,
    )


def in_a_graph(op, m, i, inline=False):
    inner = m.type(), i.type()
    return OpFromGraph([*inner], [op(*inner).sum()], inline=inline)(m, i)


def in_a_batch(op, m, i):
    inner = m.type(), i.type()
    batch = pt.stack([m, 2.0 * m])
    # The elements that a mask reads are not as many in each part of a batch.
    result = op(*inner)
    if i.type.dtype == "bool" and op in (row, column):
        return vectorize_graph(result, {inner[0]: batch, inner[1]: i})
    return vectorize_graph(result, {inner[0]: batch, inner[1]: pt.stack([i, i])})


def in_a_branch(op, m, i):
    return ifelse(m[0, 0] < 1.0, op(m, i).sum(), pt.as_tensor(np.array(-1.0)))


PLACES = {
    "bare": lambda op, m, i: op(m, i).sum(),
    "scan": in_a_loop,
    "OpFromGraph": in_a_graph,
    "OpFromGraph, inline": partial(in_a_graph, inline=True),
    "Blockwise": in_a_batch,
    "IfElse": in_a_branch,
}


# (Numba compiles five functions for each.)
CASES = [
    pytest.param(
        name, backend, marks=[pytest.mark.slow] if backend == "numba" and name not in FEW else []
    )
    for name in OPERATIONS
    for backend in ("c", "numba")
]


@pytest.mark.parametrize(("name", "backend"), CASES)
def test_an_index_outside_raises_wherever_it_stands(name, backend, caplog):
    op, (kind, inside, outside) = OPERATIONS[name]
    m = pt.dmatrix("m")
    indices = [kind(re.sub(r"\W+", "_", place)) for place in PLACES]
    outputs = [make(op, m, i) for make, i in zip(PLACES.values(), indices, strict=True)]
    both_branches = backend == "numba" and pytensor.__version__.startswith("3.0")
    mode = GuardMode(backend=backend, big_is_error=False)
    fn = pytensor.function([m, *indices], outputs, mode=mode)
    plain = pytensor.function([m, *indices], outputs, mode="FAST_COMPILE")
    good = np.array(inside[0], indices[0].type.dtype)
    for index in inside:
        given = [np.array(index, good.dtype)] * len(indices)
        for ours, theirs in zip(fn(M, *given), plain(M, *given), strict=True):
            np.testing.assert_allclose(ours, theirs)
    for place in range(len(indices) - both_branches):  # (the guard checks neither of them)
        for index in outside:
            given = [good] * len(indices)
            given[place] = np.array(index, good.dtype)
            with pytest.raises(IndexError):
                fn(M, *given)
    assert not caplog.records  # each error was explained
    if not both_branches:
        given = [*[good] * (len(indices) - 1), np.array(outside[0], good.dtype)]
        assert fn(M + 1.0, *given)[-1] == -1.0


def computed_inside(a, c):
    return OpFromGraph([a, c], [pt.exp(a)[c * 2]])(a, c)


def written_inside(a, c):
    return OpFromGraph([a, c], [pt.set_subtensor((a + 1)[c], 0.0)])(a, c)


def two_graphs_inside(a, c):
    return OpFromGraph([a, c], [computed_inside(a, c) + 1])(a, c)


@pytest.mark.parametrize("backend", ["c", "numba"])
@pytest.mark.parametrize("build", [computed_inside, written_inside, two_graphs_inside])
def test_an_index_that_a_batch_computes_inside(build, backend):
    a, c = pt.dvector("a"), pt.lvector("c")
    rows, places = pt.dmatrix("rows"), pt.lmatrix("places")
    out = vectorize_graph(build(a, c), {a: rows, c: places})
    # (On C, PyTensor 3.0 compiles what is inside with the default mode, when it is first called.)
    with pytensor.config.change_flags(mode="CVM"):
        f = pytensor.function([rows, places], out, mode=GuardMode(backend=backend))
        twin = pytensor.function([rows, places], out, mode="CVM")
        inside = np.array([[0, 1], [1, 0]])
        np.testing.assert_array_equal(f(M[:2], inside), twin(M[:2], inside))
        for outside in ([[0, 1], [9, 0]], [[0, -70], [0, 0]]):
            with pytest.raises(IndexError):
                f(M[:2], np.array(outside))
