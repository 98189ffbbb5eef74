"""Operations of the user's own that return a view of one operand and overwrite another."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from guarding import backend
from pytensor.compile.ops import as_op
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.link.c.op import COp

from theanoguard import GuardError, GuardMode

pytestmark = pytest.mark.not_on(
    jax="has no code for operations of one's own", pytorch="has no code for operations of one's own"
)


class AddInto(Op):
    """Return a view of the first operand, and the second, to which it has added the first.

    So one output is a view, and another is an operand that has been overwritten.
    """

    __props__ = ()
    view_map = {0: [0]}
    destroy_map = {1: [1]}

    def make_node(self, x, state):
        return Apply(self, [x, state], [x.type(), state.type()])

    def perform(self, node, inputs, storage):
        x, state = inputs
        state += x
        storage[0][0] = x[::-1]
        storage[1][0] = state


class AddIntoInC(COp, AddInto):
    """The same in C; the view is the operand itself."""

    def perform(self, node, inputs, storage):
        x, state = inputs
        state += x
        storage[0][0] = x
        storage[1][0] = state

    def c_code(self, node, name, inputs, outputs, sub):
        (x, state), (view, result), fail = inputs, outputs, sub["fail"]
        return f"""
        Py_XDECREF({view});
        {view} = {x};
        Py_INCREF({view});
        Py_XDECREF({result});
        {result} = {state};
        Py_INCREF({result});
        if (PyArray_DIM({x}, 0) != PyArray_DIM({state}, 0)) {{
            PyErr_SetString(PyExc_ValueError, "lengths differ");
            {fail}
        }}
        for (npy_intp i = 0; i < PyArray_DIM({x}, 0); i++)
            *(double *)PyArray_GETPTR1({state}, i) += *(double *)PyArray_GETPTR1({x}, i);
        """

    def c_code_cache_version(self):
        return (1,)


@pytest.fixture(scope="module", params=[AddInto, AddIntoInC])
def step(request):
    """A function that overwrites a shared variable, with operations before and after."""
    state = pytensor.shared(np.ones(3), name="state")
    x, y = pt.dvector("x"), pt.dvector("y")
    view, added = request.param()(pt.log(x), state)
    f = pytensor.function(
        [x, y], view * 2 + pt.sqrt(y), updates={state: added}, mode=GuardMode(), accept_inplace=True
    )
    assert any(n.op.destroy_map for n in f.maker.fgraph.apply_nodes)
    return state, f


GOOD, FOUR = np.array([1.0, 2.0, 3.0]), np.full(3, 4.0)


def test_good_calls_do_what_the_operation_does(step):
    state, f = step
    state.set_value(np.ones(3))
    for calls in (1, 2):
        f(GOOD, FOUR)
        np.testing.assert_allclose(state.get_value(), 1 + calls * np.log(GOOD))


@pytest.mark.parametrize(
    "x, y, old, blamed",
    [
        ([1.0, -1.0, 1.0], FOUR, 1.0, "Log"),  # before it
        ([1.0, 1e9, 1.0], FOUR, 1e10 - 1.0, "AddInto"),  # in it: its sum becomes big
        (GOOD, [4.0, -4.0, 4.0], 1.0, "Sqrt"),  # after it has overwritten the state
        ([np.nan, 1.0, 1.0], FOUR, 1.0, None),  # what enters
    ],
)
def test_a_fault_is_found_blamed_and_undone(step, x, y, old, blamed):
    state, f = step
    state.set_value(np.full(3, old))
    held = state.get_value(borrow=True)
    with pytest.raises(GuardError) as caught:
        f(np.array(x), np.array(y))
    event = caught.value.event
    assert event.role == ("node" if blamed else "input")
    if blamed is not None:
        text = str(caught.value)
        assert blamed.lower() in text.lower() or event.op.startswith(blamed)
    np.testing.assert_array_equal(state.get_value(), np.full(3, old))
    if backend() == "c":  # Numba's guard puts a copy in its place
        assert state.get_value(borrow=True) is held
    state.set_value(np.ones(3))
    f(GOOD, FOUR)  # the next call is as any other
    np.testing.assert_allclose(state.get_value(), 1 + np.log(GOOD))


def test_a_state_that_is_bad_when_it_enters(step):
    state, f = step
    state.set_value(np.array([1.0, np.nan, 1.0]))
    with pytest.raises(GuardError) as caught:
        f(GOOD, FOUR)
    assert (caught.value.event.role, caught.value.event.variable) == ("shared", "state")


def test_an_error_of_the_operation_changes_nothing(step):
    state, f = step
    state.set_value(np.ones(3))
    with pytest.raises(ValueError):
        f(np.ones(2), FOUR)
    np.testing.assert_array_equal(state.get_value(), np.ones(3))


CALLED = []


@as_op(itypes=[pt.dvector], otypes=[pt.dvector])
def doubled(x):
    CALLED.append(x)
    return 2 * x


def test_a_function_of_the_users_own_is_called_once_in_a_bad_call():
    """Nor is it called again to find the cause, or a remedy."""
    CALLED.clear()
    x = pt.dvector("x")
    fn = pytensor.function([x], pt.log(doubled(x)), mode=GuardMode(backend=backend()))
    fn([1.0])
    assert len(CALLED) == 1
    with pytest.raises(GuardError) as caught:
        fn([0.0])
    assert len(CALLED) == 2
    assert "where  doubled(x)[0] = 0.0" in str(caught.value)
