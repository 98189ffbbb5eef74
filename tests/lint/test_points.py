"""The points at which the linter tries a formula first: what they put where."""

import numpy as np
import pytest

from theanoguard._lint.evidence import Range, _first, _last, critical

INSIDE = Range(-np.inf, np.inf, (2, 3), "float64")


@pytest.mark.parametrize("shape", [(), (1,), (4,), (2, 3), (0,)], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
def test_a_critical_number_stands_where_a_pattern_puts_it(shape, dtype):
    for mark in (0.0, 100.0, -5.0):
        r = Range(-1000.0, 1000.0, shape, dtype)
        first, last = _first(r, mark), _last(r, mark)
        assert first.shape == last.shape == shape
        assert first.dtype == last.dtype == dtype
        rest = 0.0 if mark else 1.0
        assert [*first.ravel()] == [mark if i == 0 else rest for i in range(first.size)]
        if last.ndim:
            assert (last[..., -1:] == mark).all()
            assert (last[..., :-1] == rest).all()
        else:
            assert last == mark


def test_a_range_keeps_the_numbers_inside():
    narrow = Range(-1.0, 2.0, (3,), "float64")
    for mark in critical([]):
        for value in (narrow.clip(mark), _first(narrow, mark), _last(narrow, mark)):
            assert ((value >= -1) & (value <= 2)).all()


def test_the_numbers_of_a_graph_come_last_with_their_neighbours():
    plain, known = critical([]), critical([7.0])
    assert known[: len(plain)] == plain
    assert known[len(plain) :] == pytest.approx([7.0, 7.0, 7.0], rel=1e-5)
    assert len(set(known[len(plain) :])) == 3
    assert INSIDE.clip(3).shape == (2, 3)
