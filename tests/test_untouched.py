"""Each tool that runs or replays a function leaves the user's data as it was, bit for bit.

The programs are those whose compiled graphs overwrite something on some backend: states of loops,
updates, buffers that are set and sorted, random generators.
"""

import copy
from contextlib import suppress
from functools import cache

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Constant
from pytensor.graph.traversal import ancestors
from pytensor.scan.utils import until

import theanoguard
from theanoguard import GuardError, GuardMode, testvalue
from theanoguard._pytensor import ifelse
from theanoguard.monitor import MonitorMode

pytestmark = [pytest.mark.on_33, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

X = np.array([1.0, 2.0, 3.0, 4.0])


def scan(step, **settings):
    return pytensor.scan(step, return_updates=False, **settings)


class Pieces:
    """Programs that become one function, and the data of the user that they use.

    A piece takes an input `x` of four numbers, a matrix `m`, and the piece's own shared variables
    and inputs, which have its name.  It returns an output.
    """

    def __init__(self, used=None):
        self.shared, self.inputs, self.updates, self.constants = {}, {}, {}, {}
        self.x, self.m = self.given("x", X), self.given("m", np.diag(X))
        self.ok = self.given("ok", np.array(1.0))
        self.outputs = []
        for piece in used or PIECES:
            self.name = piece.__name__
            self.outputs.append(piece(self))
        total = pt.stack([result.sum() for result in self.outputs]).sum()
        self.outputs.append(pt.sqrt(self.ok + 1e-9 * total))  # depends on everything

    def given(self, name, value):
        variable = pt.tensor(name, dtype=value.dtype, shape=(None,) * value.ndim)
        variable.tag.test_value = np.array(value)
        self.inputs[variable] = value
        return variable

    def state(self, kind):
        """Return the same vector as a shared variable, a constant or an input."""
        name, value = f"{kind} of {self.name}", np.array([2.0, 3.0])
        if kind == "input":
            return self.given(name, value)
        if kind == "shared":
            return self.weight(value)
        return pt.constant(value, name=name)

    def weight(self, value):
        name = f"{self.name} {sum(name.startswith(self.name) for name in self.shared)}"
        self.shared[name] = pytensor.shared(value, name=name)
        return self.shared[name]


def kept_state(kind):
    def loop(p):
        h0 = p.state(kind)
        return scan(lambda x, h: pt.log(h) + x, sequences=[p.x], outputs_info=[h0])[-1]

    return loop


def matrix_state(p):
    w = p.weight(np.eye(4))
    return scan(lambda h: pt.tanh(pt.dot(h, p.m)) + h, outputs_info=[w], n_steps=3)[-1]


def two_taps(p):
    h = p.weight(np.array([[1.0, 2.0], [3.0, 4.0]]))
    info = [{"initial": h, "taps": [-1, -2]}]
    return scan(lambda x, a, b: a * 0.5 + b * x, sequences=[p.x], outputs_info=info)[-1]


def whole_trace(p):
    return scan(lambda x, h: h * x, sequences=[p.x], outputs_info=[p.weight(np.ones(3))])


def gradient_of_loop(p):
    w, h = p.weight(np.eye(2) * 0.5), p.weight(np.ones(2))
    states = scan(lambda x, h: pt.tanh(pt.dot(h, w) + x), sequences=[p.x], outputs_info=[h])
    return pt.stack([g.sum() for g in pt.grad(states[-1].sum(), [w, h, p.x])])


def while_loop(p):
    h0 = p.weight(np.ones(2))
    return scan(lambda h: (h * 2, until(h.sum() > 40)), outputs_info=[h0], n_steps=9)[-1]


def nested_loop(p):
    def inner(h):
        return scan(lambda g: pt.sqrt(g + 1), outputs_info=[h], n_steps=2)[-1]

    return scan(inner, outputs_info=[p.weight(np.ones(2))], n_steps=2)[-1]


def body(p):
    a = pt.dvector()
    b = pt.exp(a)
    inside = OpFromGraph([a], [pt.set_subtensor(b[:1], 0.0), a * 2])
    one, two = inside(p.weight(np.ones(3)))
    return one + two


def body_with_loop(p):
    a = pt.dvector()
    return OpFromGraph([a], [scan(lambda h: h / 2, outputs_info=[a], n_steps=3)[-1]])(
        p.weight(np.ones(2))
    )


def branches(p):
    w, v = p.weight(np.ones(4)), p.weight(np.ones(4))
    return ifelse(pt.gt(p.x.sum(), 0), pt.set_subtensor(w[:2], p.x[:2]), pt.sort(v))


def update(p):
    w = p.weight(np.ones(4))
    p.updates[w] = pt.tanh(w - 0.1 * p.x)
    return w * 2


def update_of_rows(p):
    w = p.weight(np.ones((4, 3)))
    p.updates[w] = pt.inc_subtensor(w[1:3], p.x[:2, None])
    return w.sum(axis=1)


def update_by_index(p):
    w = p.weight(np.ones(4))
    p.updates[w] = pt.set_subtensor(w[pt.argsort(p.x)[:2]], 5.0)
    return w


def written(p):
    return pt.set_subtensor(p.x[::2], 0.0) + pt.inc_subtensor(p.m[0, 1:], 1.0).sum(axis=0)


def sorted_(p):
    return pt.sort(p.weight(np.array([3.0, 1.0, 2.0])))


def linear_algebra(p):
    w = p.weight(np.eye(4) * 3)
    return pt.linalg.cholesky(w + p.m) + pt.linalg.solve(w, p.m) + pt.linalg.inv(p.m)


def product(p):
    w = p.weight(np.ones((4, 4)))
    p.updates[w] = w - 0.5 * pt.dot(p.m, p.m)
    return pt.dot(p.m, p.x) + p.weight(np.ones(4))


def draws(p):
    rng = p.weight(np.random.default_rng(2))
    after, drawn = pt.random.normal(p.x, 1.0, rng=rng).owner.outputs
    p.updates[rng], permuted = pt.random.permutation(drawn, rng=after).owner.outputs
    return drawn + permuted


def draws_not_kept(p):
    return pt.random.normal(p.x, 1.0, rng=p.weight(np.random.default_rng(3)))


def view(p):
    w = p.weight(np.ones((2, 2)))
    p.updates[w] = w.T
    return w[0]


PIECES = [
    *(kept_state(kind) for kind in ("shared", "constant", "input")),
    *(matrix_state, two_taps, whole_trace, gradient_of_loop, while_loop, nested_loop),
    *(body, body_with_loop, branches, update, update_of_rows, update_by_index, written, sorted_),
    *(linear_algebra, product, draws, draws_not_kept, view),
]

# PyTensor cannot convert it, or gives JAX other generators.
NOT_FOR_JAX = (while_loop, draws, draws_not_kept)

MODES = ["CVM", "FAST_COMPILE", "NUMBA", "JAX"]


@cache
def program(mode):
    """Return the pieces and their function, compiled once for each mode."""
    pieces = Pieces([p for p in PIECES if mode != "JAX" or p not in NOT_FOR_JAX])
    return pieces, compiled(pieces, mode)


def compiled(pieces, mode):
    return pytensor.function(
        list(pieces.inputs),
        pieces.outputs,
        updates=pieces.updates,
        mode=mode,
        on_unused_input="ignore",
    )


def state_of(value):
    """Return what tells whether the data have changed."""
    if isinstance(value, np.random.Generator):
        return str(value.bit_generator.state)
    return np.asarray(value).tobytes()


def kept(pieces):
    return {name: v.get_value(borrow=False) for name, v in pieces.shared.items()}


def restore(pieces, originals):
    for name, value in originals.items():
        pieces.shared[name].set_value(copy.deepcopy(value))


class Data:
    """The data of the user: where they lie, and what they were."""

    def __init__(self, pieces, fn=None, given=None):
        self.pieces = pieces
        self.arguments = [np.array(v) for v in {**pieces.inputs, **(given or {})}.values()]
        graphs = [*pieces.outputs, *pieces.updates.values()]
        graphs += [] if fn is None else fn.maker.fgraph.outputs
        self.constants = [v for v in ancestors(graphs) if isinstance(v, Constant)]
        self.shared = {
            name: v.get_value(borrow=True, return_internal_type=True)
            for name, v in pieces.shared.items()
        }
        self.before = self.states()

    def held(self):
        yield from zip((v.name for v in self.pieces.inputs), self.arguments, strict=True)
        yield from self.shared.items()
        for v in self.constants:
            if isinstance(v.data, np.ndarray):
                yield str(v), v.data

    def states(self):
        return [(name, state_of(value)) for name, value in self.held()]

    def changed(self):
        """Return the names of the arrays and generators that are not what they were."""
        return [
            a for (a, one), (_, two) in zip(self.before, self.states(), strict=True) if one != two
        ]


# Each takes the function, its arguments and the pieces.  Those in CALLS make the updates.


def step(fn, arguments, pieces):
    with theanoguard.step_through(fn, *arguments) as stepper:
        stepper.run()


def step_and_stop(fn, arguments, pieces):
    with theanoguard.step_through(fn, *arguments) as stepper:
        with suppress(ValueError):  # (there is no further step)
            while stepper.goto(stepper.number + 1) is not None:
                pass
        stepper.stop()


def intermediate_values(fn, arguments, pieces):
    testvalue.eval_intermediate_values(fn, arguments)


def masked(fn, arguments, pieces):
    theanoguard.find_masked(fn, *arguments)


def compared(fn, arguments, pieces):
    theanoguard.compare(fn, arguments, ["py", "fast_compile"])


def linted(fn, arguments, pieces):
    theanoguard.lint(pieces.outputs, updates=pieces.updates, shared_values=True, seconds=0.5)
    with suppress(ValueError):  # (Numba's random operations cannot be compiled a second time)
        theanoguard.lint(fn.maker.fgraph, mode="FAST_COMPILE", seconds=0.5)


def shown(fn, arguments, pieces):
    theanoguard.debugprint(fn, file="str")
    theanoguard.inspect_graph(fn)


TOOLS = [step, step_and_stop, intermediate_values, masked, compared, linted, shown]


@cache
def after_a_call():
    """Return the values of the shared variables after a call that the C virtual machine makes."""
    pieces = Pieces()
    compiled(pieces, "CVM")(*map(np.array, pieces.inputs.values()))
    return kept(pieces)


def same(found, expected):
    for name, value in found.items():
        if isinstance(value, np.random.Generator):
            assert state_of(value) == state_of(expected[name]), name
        else:
            np.testing.assert_allclose(value, expected[name], 1e-12, err_msg=name)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("tool", TOOLS)
def test_a_tool_leaves_the_data_of_a_compiled_function(tool, mode):
    if mode in ("NUMBA", "JAX"):
        pytest.importorskip(mode.lower())
    pieces, fn = program(mode)
    data, originals = Data(pieces, fn), kept(pieces)
    try:
        tool(fn, data.arguments, pieces)
        assert data.changed() == []
        same(kept(pieces), after_a_call() if tool is step else originals)
    finally:
        restore(pieces, originals)


def seen(*args, path=()):
    """Look at a node as a function of MonitorMode does."""


# (Numba takes a minute for all of them.)
FEW = [kept_state("shared"), body, update_of_rows, view]

SETTINGS = {
    "monitor": (lambda: MonitorMode(pre_func=seen, post_func=seen, inner=True), None),
    "guard on C": (lambda: GuardMode(backend="c"), None),
    "guard on Numba": (lambda: GuardMode(backend="numba"), FEW),
}


@pytest.mark.parametrize(
    "name", ["monitor", "guard on C", pytest.param("guard on Numba", marks=pytest.mark.deep)]
)
def test_a_mode_and_its_report_leave_the_data(name, tmp_path):
    mode, used = SETTINGS[name]
    pieces = Pieces(used)
    fn = compiled(pieces, mode())
    originals = kept(pieces)
    data = Data(pieces, fn)
    fn(*data.arguments)
    assert not {*data.changed()} - {v.name for v in pieces.updates}
    same(kept(pieces), after_a_call())
    if name == "monitor":
        return
    restore(pieces, originals)
    data = Data(pieces, fn, {pieces.ok: np.array(-1.0)})
    with pytest.raises(GuardError) as caught:
        fn(*data.arguments)
    assert "sqrt" in str(caught.value)
    caught.value.explanation.save_repro(tmp_path / "repro.py")
    theanoguard.find_masked(fn, *data.arguments)
    assert data.changed() == []
    same(kept(pieces), originals)


def test_test_values_leave_the_data():
    with testvalue.test_values("ignore"):
        pieces = Pieces()
    data = Data(pieces)
    changed = [
        v.name for v in pieces.inputs if state_of(v.tag.test_value) != state_of(pieces.inputs[v])
    ]
    same(kept(pieces), kept(Pieces()))
    assert changed == []
    testvalue.eval_intermediate_values(pieces.outputs)
    assert data.changed() == []
