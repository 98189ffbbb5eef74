"""``benchmarks/rewrites.py``: random graphs, changes by rewriting, and minimal cases."""

import sys
from pathlib import Path

import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.graph.basic import Constant
from pytensor.graph.traversal import graph_inputs

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks import rewrites

pytestmark = pytest.mark.on_33


@pytest.mark.parametrize("seed", range(20))
def test_random_graphs_are_valid(seed):
    rng = np.random.default_rng(seed)
    graph = rewrites.Maker(rng).graph()
    given = rewrites.values_for(graph, rng)
    inputs = {v for v in graph_inputs([graph]) if not isinstance(v, Constant)}
    assert given.keys() == inputs
    case = rewrites.case_of(graph, given, names=False)
    assert case is None or case.change.kind


def test_every_family_is_made():
    made = set()
    for seed in range(60):
        maker = rewrites.Maker(np.random.default_rng(seed))
        assert maker.graph().dtype == "float64"
        pools = maker.scalars + maker.vectors + maker.matrices
        made |= {type(v.owner.op).__name__ for v in pools if v.owner is not None}
    assert {"Elemwise", "Subtensor", "AdvancedSubtensor", "Join", "CumOp", "Blockwise"} <= made


def test_a_change_is_shrunk():
    x, s, t = pt.dvector("x"), pt.dscalar("s"), pt.dscalar("t")
    graph = pt.exp(pt.sum(x) + (s * 3 + t) // 1 * 2) - t
    case = rewrites.case_of(graph, {x: np.ones(3), s: 1.1, t: 0.25})
    least = rewrites.shrunk(case)
    assert case.change.rewrites == least.change.rewrites == ("local_div_by_one",)
    assert least.size == 1
    assert rewrites.texts(least)[0].startswith("v0 // 1; v0 = 3.55")
    table = rewrites.table([least])
    assert "\nvalue changed," in table and ",``local_div_by_one``" in table
