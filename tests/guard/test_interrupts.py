"""Ctrl-C at any place of a call, and calls in a user's action: all updates are stored, or none."""

import sys
from itertools import count

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from guarding import ALL, backend

from theanoguard import GuardError, GuardMode

# (Without a compiler, the updates of a failed call are undone in Python, which Ctrl-C can split.)
pytestmark = [
    pytest.mark.skipif(backend() not in ("c", "numba"), reason="is about C and Numba"),
    pytest.mark.usefixtures("needs_cxx"),
]


class Interrupting:
    """Raises KeyboardInterrupt before the n-th instruction of the call.

    Parameters
    ----------
    n : int
    folder : str
        Count only instructions of modules in such a folder.
    """

    def __init__(self, n, folder):
        self.left = n
        self.folder = folder

    def __call__(self, frame, what, arg):
        if self.folder not in frame.f_code.co_filename:
            return None
        frame.f_trace_opcodes = True
        if what == "opcode":
            self.left -= 1
            if self.left < 0:
                sys.settrace(None)
                raise KeyboardInterrupt
        return self


def interrupted(fn, arguments, n, folder):
    """Call a function and interrupt it; return what it raised, or None."""
    before = sys.gettrace()
    sys._getframe().f_trace_opcodes = True  # Python 3.12 has the events only if it is set before
    sys.settrace(Interrupting(n, folder))
    try:
        fn(*arguments)
    except (KeyboardInterrupt, GuardError) as error:
        return type(error)
    finally:
        sys.settrace(before)
    return None


class Model:
    """Variables that are updated whole, in part, and by a draw; three arrays are held elsewhere."""

    def __init__(self, **settings):
        self.start = {
            "w": np.linspace(1, 2, 12).reshape(4, 3),
            "big": np.ones((150, 150)),
            "table": np.ones((6, 2)),
            "shifted": np.linspace(1, 2, 9000),
            "n": np.asarray(0),
            "rng": None,
        }
        self.variables = {
            name: pytensor.shared(np.random.default_rng(1) if value is None else value, name=name)
            for name, value in self.start.items()
        }
        w, big, table, shifted, n, rng = self.variables.values()
        x, rows = pt.dscalar("x"), pt.lvector("rows")
        next_rng, draw = pt.random.normal(size=(3,), rng=rng).owner.outputs
        updates = {
            w: w * x + draw,
            big: big * 0.5 + x,
            table: pt.inc_subtensor(table[rows], pt.log(x)),
            shifted: pt.set_subtensor(shifted[1:], shifted[:-1] * x),
            n: n + 1,
            rng: next_rng,
        }
        mode = GuardMode(**ALL, optimizer="fast_run", **settings)
        self.fn = pytensor.function([x, rows], pt.log(x), updates=updates, mode=mode)

    def reset(self):
        self.held = {name: self.start[name].copy() for name in ("w", "table", "shifted")}
        for name, variable in self.variables.items():
            value = self.held.get(name, self.start[name])
            value = np.random.default_rng(1) if value is None else value
            variable.set_value(value, borrow=name in self.held)

    def state(self):
        values = [v.get_value() for v in self.variables.values()]
        values += [v.copy() for v in self.held.values()]
        return [str(v.bit_generator.state) if hasattr(v, "bit_generator") else v for v in values]

    def states(self, *arguments):
        """Return the state before and after a call."""
        self.reset()
        before = self.state()
        self.fn(*arguments)
        return before, self.state()


def same(a, b):
    return [np.asarray(x).tobytes() for x in a] == [np.asarray(y).tobytes() for y in b]


@pytest.fixture(scope="module")
def model():
    return Model()


@pytest.mark.parametrize("folder", ["theanoguard", "pytensor"])
def test_an_interrupt_at_every_instruction_leaves_all_updates_or_none(model, folder):
    arguments = 2.0, [1, 3, 1]
    before, after = model.states(*arguments)
    outcomes = set()
    for n in count():
        model.reset()
        raised = interrupted(model.fn, arguments, n, folder)
        state = model.state()
        assert same(state, before) or same(state, after), n
        if raised is None:
            break
        outcomes.add(same(state, after))
    assert n > 50
    assert same(state, after)
    assert folder == "pytensor" or outcomes == {True, False}
    assert same(model.states(*arguments)[1], after)


def test_an_interrupt_while_a_bad_call_is_undone_leaves_no_update(model):
    before, after = model.states(2.0, [1, 3, 1])
    raised, step = None, 1
    for n in count():
        model.reset()
        place = n if n < 150 else 150 + (n - 150) * step
        step = max(1, place // 40)
        raised = interrupted(model.fn, (-2.0, [1, 3, 1]), place, "theanoguard/guard")
        assert same(model.state(), before), place
        if raised is GuardError:
            break
    assert n > 60
    assert same(model.states(2.0, [1, 3, 1])[1], after)


@pytest.mark.parametrize("action", ["returns", "raises"])
def test_a_call_in_the_action_of_a_bad_call(action):
    """The outer call stores its updates last; if the action raises, it stores none."""
    inner = []

    def act(event):
        if not inner:
            inner.append(event)
            model.fn(3.0, [1, 2])
            if action == "raises":
                raise LookupError

    model = Model(action=act)
    after_inner = model.states(3.0, [1, 2])[1]
    inner.append(None)
    before, expected = model.states(-2.0, [0, 1])
    inner.clear()
    model.reset()
    assert same(model.state(), before)
    if action == "raises":
        with pytest.raises(LookupError):
            model.fn(-2.0, [0, 1])
        assert same(model.state(), after_inner)
        return
    result = model.fn(-2.0, [0, 1])
    assert np.isnan(result)
    state = model.state()
    table = list(model.variables).index("table")
    # Of a table, a call stores only the rows that it updates.
    for i in (table, len(model.variables) + list(model.held).index("table")):
        np.testing.assert_equal(expected[i][2], 1.0)
        expected[i][2] = after_inner[i][2]
    assert same(state, expected)
