"""``benchmarks/fpbench.py``: how it reads FPBench's cores and judges them."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.fpbench import Left, expressions, judged, of_core, parts_of, points_of

CORES = """
; a comment (with parentheses
(FPCore (x) :name "difference; of roots" :pre (and (<= 1 x) (< x 1e15))
  (- (sqrt (+ x 1)) (sqrt x)))
(FPCore named (a b) :name "branches" :pre (<= 0 a 1)
  (let* ([c (* a 1/2)] [d (+ c b)]) (if (and (< c 1) (> d -1e300)) (* c 2) (exp d))))
(FPCore (n) :name "loop" (while (< i n) ([i 0 (+ i 1)]) i))
"""


def test_cores_are_read():
    first, second, _ = map(parts_of, expressions(CORES))
    assert first[0] == ["x"] and first[1][":name"] == '"difference; of roots"'
    assert second[0] == ["a", "b"] and second[2][0] == "let*"


def test_points_lie_within_the_precondition():
    first, second, _ = map(parts_of, expressions(CORES))
    assert all(1 <= p["x"] < 1e15 for p in points_of(first[0], first[1][":pre"], 20, 0))
    points = list(points_of(second[0], second[1][":pre"], 20, 0))
    assert len(points) == 20 and all(0 <= p["a"] <= 1 for p in points)


def test_outcomes():
    first, second, loop = map(parts_of, expressions(CORES))
    assert judged(first[2], {"x": 1e14})[0] == "named"
    assert judged(first[2], {"x": 1.0})[0] == "accurate"
    assert judged(second[2], {"a": 0.3, "b": 2.0})[0] == "accurate"
    with pytest.raises(Left, match="while"):
        list(of_core("loop", *loop, 2))
