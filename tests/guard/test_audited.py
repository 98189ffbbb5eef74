"""``audit=True`` compares what the user receives and keeps with an unguarded call."""

import numpy as np
import pytensor
import pytensor.sparse as sparse
import pytensor.tensor as pt
import pytest
import scipy.sparse
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.io import In, Out
from pytensor.graph.basic import Constant

from theanoguard import GuardError, GuardMode, MeasuredCalls
from theanoguard._pytensor import ifelse

x, y = pt.dvectors("x", "y")
k = pt.ivector("k")
BACKENDS = ["c", "numba", "jax"]


@pytest.fixture(params=BACKENDS)
def backend(request):
    if request.param == "jax":
        pytest.importorskip("jax")
    return request.param


def audited(backend, inputs, outputs, **named):
    mode = GuardMode(backend=backend, audit=True, optimizer="fast_run")
    return pytensor.function(inputs, outputs, mode=mode, **named)


class Spoilt:
    """A machine that spoils what the guarded function has done."""

    def __init__(self, machine, fn, spoil):
        self.machine, self.fn, self.spoil = machine, fn, spoil

    def __getattr__(self, name):
        return getattr(self.machine, name)

    def __call__(self):
        return self.spoil(self.fn, self.machine())


def of_output(fn, results):
    return [results[0] + 1, *results[1:]]


def of_class(fn, results):
    return [np.asarray(results[0]).tolist(), *results[1:]]


def of_input(fn, results):
    fn.input_storage[0].storage[0][1] = 5.0
    return results


def of_constant(fn, results):
    vectors = (v for v in fn.maker.fgraph.variables if isinstance(v, Constant) and v.ndim)
    next(v for v in vectors if v.data.tolist() == [3.0, 4.0, 7.0]).data[0] = 9.0
    return results


def of_state(fn, results):
    cell = cell_of(fn, "state")
    cell[0] = cell[0] + 1
    return results


def of_read(fn, results):
    cell = cell_of(fn, "read")
    cell[0] = cell[0] + 1
    return results


def of_failed(fn, results):
    of_state(fn, results)
    raise ValueError("at the end")


def cell_of(fn, name):
    names = [spec.variable.name for spec in fn.maker.inputs]
    return fn.input_storage[names.index(name)].storage


PLANTED = {
    of_output: "output 0 of the call is not the unguarded one",
    of_class: "output 0 of the call is not the unguarded one",
    of_input: "the call has written to the argument x",
    of_constant: "the call has written to the constant",
    of_state: "the shared variable state is not as without the guard",
    of_read: "the shared variable read is not as without the guard",
    of_failed: "the failed call has changed the shared variable state",
}


def test_planted_differences_are_found(backend):
    state = pytensor.shared(np.zeros(3), name="state")
    read = pytensor.shared(np.ones(3), name="read")
    constant = pt.as_tensor(np.array([3.0, 4.0, 7.0]))
    fn = audited(backend, [x], [x + state * read + constant, x], updates={state: state + x})
    machine = fn.vm
    fn(np.arange(3.0))
    for spoil, message in PLANTED.items():
        fn.vm = Spoilt(machine, fn, spoil)
        with pytest.raises(RuntimeError, match=f"^audit: {message}") as caught:
            fn(np.arange(3.0))
        assert "please report it" in str(caught.value)
        assert state.get_value().tolist() == [0, 1, 2] and read.get_value().tolist() == [1, 1, 1]
        if spoil is of_constant:
            constant.data[0] = 3.0


def states():
    """Return programs: inputs, outputs, updates, arguments."""
    state = pytensor.shared(np.ones(3), name="state")
    count = pytensor.shared(0, name="count")
    yield "states", [x], [state, state + x, x], {state: state + x, count: count + 1}, [np.ones(3)]
    row = pt.inc_subtensor(state[1:], x[1:])
    yield "rows", [In(x, mutable=True)], [Out(row, borrow=True)], {state: row}, [np.ones(3)]
    yield "kinds", [x, k], [x[k], x > 1, k, pt.isnan(x)], {}, [np.ones(3), np.array([2, 0], "i4")]
    body = OpFromGraph([y], [pt.exp(y), y])
    yield "body", [x], body(x), {}, [np.arange(3.0)]
    yield "branch", [x], [ifelse(pt.gt(x[0], 0), x * 2, x)], {}, [np.ones(3)]
    yield "nothing", [x], [], {state: state * x}, [np.ones(3)]


PROGRAMS = {name: rest for name, *rest in states()}


@pytest.mark.parametrize("name", PROGRAMS)
def test_sound_programs_pass(backend, name):
    inputs, outputs, updates, arguments = PROGRAMS[name]
    fn = audited(backend, inputs, outputs, updates=updates)
    for _ in range(3):
        fn(*[value.copy() for value in arguments])
    copied = fn.copy()
    for function in (copied, fn):
        function(*[value.copy() for value in arguments])
    copied.vm = Spoilt(copied.vm, copied, of_output if outputs else of_state)
    with pytest.raises(RuntimeError, match="^audit: "):
        copied(*[value.copy() for value in arguments])


@pytest.mark.filterwarnings("ignore:.*random states of JAX")
def test_random_states(backend):
    rng = pytensor.shared(np.random.default_rng(1), name="rng")
    after, drawn = pt.random.normal(size=(3,), rng=rng).owner.outputs
    fn = audited(backend, [x], drawn * x, updates={rng: after})
    assert len({float(fn(np.ones(3))[0]) for _ in range(3)}) == 3


@pytest.mark.parametrize("backend", ["c", "numba"])
def test_loops_and_sparse_matrices(backend):
    steps = pytensor.scan(
        lambda q, a: pt.inc_subtensor(a[q], 1.0),
        sequences=[k],
        outputs_info=[x],
        return_updates=False,
    )
    fn = audited(backend, [x, k], steps[-1])
    for _ in range(2):
        assert fn(np.zeros(3), np.array([1, 1, 2], "i4")).tolist() == [0, 2, 1]
    matrix = sparse.csr_matrix("matrix", dtype="float64")
    fn = audited(backend, [matrix], [matrix * 2])
    for _ in range(2):
        [found] = fn(scipy.sparse.csr_matrix(np.eye(3)))
    assert found.toarray().tolist() == (2 * np.eye(3)).tolist()


def test_errors_stay_what_they_are(backend):
    state = pytensor.shared(np.ones(3), name="state")
    fn = audited(backend, [x, y], pt.log(x) + y, updates={state: state + x})
    with pytest.raises(GuardError):
        fn(-np.ones(3), np.ones(3))
    with pytest.raises((ValueError, TypeError)):
        fn(np.ones(3), np.ones(2))
    with pytest.raises(TypeError):
        fn(np.ones(3))
    assert state.get_value().tolist() == [1, 1, 1]


def test_an_action_may_set_shared_variables():
    state = pytensor.shared(np.ones(3), name="state")
    mode = GuardMode(audit=True, action=lambda event: state.set_value(np.zeros(3)))
    fn = pytensor.function([x], pt.log(x) + state, mode=mode)
    assert np.isnan(fn(-np.ones(3))).all()
    assert state.get_value().tolist() == [0, 0, 0]


def test_effects_happen_once(capsys):
    fn = audited("c", [x], pytensor.printing.Print("x")(x) * 2)
    fn(np.ones(1))
    assert capsys.readouterr().out.count("x ") == 1


def test_with_measured_calls():
    mode = GuardMode(audit=True, precision=MeasuredCalls(every=2))
    fn = pytensor.function([x], pt.sqrt(x + 1) - pt.sqrt(x), mode=mode)
    with pytest.raises(GuardError) as caught:
        fn(np.array([1e9]))
    assert caught.value.event.kind == "digits"
    fn.vm = Spoilt(fn.vm, fn, of_output)
    with pytest.raises(RuntimeError, match="^audit: output 0"):
        fn(np.array([1.0]))
