"""A guarded loop gives what its unguarded twin gives, and keeps what it starts from."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from guarding import ALL
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.mode import Mode
from pytensor.scan.utils import until

from theanoguard import GuardMode
from theanoguard._pytensor import ifelse

pytestmark = pytest.mark.on_33

START = np.array([1.0, 2.0, 3.0, 4.0])
ROWS = np.array([[0, 1], [1, 2], [3, 3]])


def log_add_exp(a, b):
    larger = pt.maximum(a, b)
    return larger + pt.log(pt.exp(a - larger) + pt.exp(b - larger))


def inner_loop(row, state):
    return pytensor.scan(
        lambda i, s: pt.set_subtensor(s[i], pt.log(s[i] + 1.0)),
        sequences=[row],
        outputs_info=[state],
        return_updates=False,
    )[-1]


def in_a_graph(row, state):
    r, s = row.type(), state.type()
    return OpFromGraph([r, s], [log_add_exp(pt.inc_subtensor(s[r], 1.0), s)])(row, state)


def in_a_branch(row, state):
    return ifelse(row[0] > 0, pt.inc_subtensor(state[row], 1.0), log_add_exp(state, 2.0 * state))


def solve(row, state):
    return pt.linalg.solve(pt.eye(4) * 2.0 + row.sum(), state, overwrite_b=True)


STEPS = {
    "log-add-exp": lambda row, state: log_add_exp(row.sum() * 1.0, state),
    "elementwise": lambda row, state: state * 0.5 + row.sum(),
    "division": lambda row, state: row.sum() / (state + 1.0),
    "increment elements": lambda row, state: pt.inc_subtensor(state[row], 1.0),
    "set elements": lambda row, state: pt.set_subtensor(state[row], 9.0),
    "increment one": lambda row, state: pt.inc_subtensor(state[row[0]], 1.0),
    "set a slice": lambda row, state: pt.set_subtensor(state[1:3], pt.log(state[:2] + row)),
    "a view": lambda row, state: log_add_exp(state[::-1], pt.inc_subtensor(state[row], 1.0)),
    "unless": lambda row, state: pt.switch(state > 2.0, pt.log(state - 2.0), state + 0.5),
    "sort": lambda row, state: pt.sort(pt.inc_subtensor(state[row], -5.0)),
    "running sum": lambda row, state: pt.cumsum(state) * 0.1 + row[0],
    "solve": solve,
    "loop": inner_loop,
    "OpFromGraph": in_a_graph,
    "IfElse": in_a_branch,
    "until": lambda row, state: (pt.log(pt.inc_subtensor(state[row], 1.0)), until(row[1] > 1)),
}


def given():
    """Return an input, a part of an input, a shared variable and a constant, and their arrays."""
    x, y = pt.dvector("x"), pt.dvector("y")
    arrays = START.copy(), np.arange(6.0, 0.0, -1.0)
    shared = pytensor.shared(START.copy(), name="shared", borrow=True)
    constant = pt.constant(START.copy(), name="constant")
    kept = *arrays, shared.get_value(borrow=True), constant.data
    return [x, y], (x, y[1:5], shared, constant), arrays, kept


def final_states(step, which, mode):
    """Return what runs a loop from each start, and the arrays that this must not change."""
    rows = pt.lmatrix("rows")
    inputs, starts, arrays, kept = given()
    states = [
        pytensor.scan(step, sequences=[rows], outputs_info=[v], return_updates=False)[-1]
        for v in starts[which]
    ]
    fn = pytensor.function([rows, *inputs], states, mode=mode, on_unused_input="ignore")
    return (lambda: fn(ROWS, *arrays)), kept


def check(step, which):
    mode = GuardMode(**ALL, backend="numba", optimizer="fast_run")
    run, kept = final_states(step, which, mode)
    twin, expected = final_states(step, which, Mode("numba", "fast_run"))
    for _ in range(3):
        for ours, theirs in zip(run(), twin(), strict=True):
            np.testing.assert_array_equal(ours, theirs)
        for ours, theirs in zip(kept, expected, strict=True):
            np.testing.assert_array_equal(ours, theirs)


# (Numba compiles two functions for each.)
FEW = {"log-add-exp", "set a slice", "a view", "unless", "OpFromGraph", "until"}


@pytest.mark.parametrize(
    "step", [pytest.param(n, marks=[] if n in FEW else pytest.mark.slow) for n in STEPS]
)
def test_what_a_loop_starts_from_stays(step):
    check(STEPS[step], slice(0, None, 3))  # an input, a constant


@pytest.mark.parametrize("step", ["set elements"])
def test_whatever_a_loop_starts_from(step):
    check(STEPS[step], slice(1, 3))
