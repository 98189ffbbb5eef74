"""Tensors under the shim behave as it is recorded of Theano 1.0.5: see ``shim_cases.py``."""

import base64
import pickle

import numpy as np
import pytest
from shim_compare import RECORDED, assert_as_recorded, parametrize


@pytest.mark.parametrize(("section", "case"), parametrize("tensor", "linalg", "scalar"))
def test_as_recorded(section, case, shim):
    assert_as_recorded(shim, section, case)


@pytest.fixture
def loaded(shim):
    """What pickles that Theano 1.0.5 wrote give."""
    pickles = RECORDED["pickles"]
    return {name: pickle.loads(base64.b64decode(text)) for name, text in pickles.items()}


def test_pickled_types(shim, loaded):
    matrix, row, number, sparse = loaded["types"]
    assert matrix == shim.tensor.fmatrix
    assert row == shim.tensor.drow
    assert number == shim.scalar.float32
    assert sparse == shim.sparse.csr_matrix().type
    assert pickle.loads(pickle.dumps(row)) == row


def test_pickled_shared_variables(shim, loaded):
    shared, row, number = (loaded[name] for name in ("shared", "row", "number"))
    assert (shared.name, shared.dtype, row.broadcastable) == ("w", "float32", (True, False))
    update = [(shared, shared + 1)]
    function = shim.function([], [shared * number, row], updates=update, mode="FAST_COMPILE")
    scaled, _ = function()
    np.testing.assert_array_equal(scaled, np.full((2, 3), 2.5))
    np.testing.assert_array_equal(shared.get_value(), np.full((2, 3), 2.0))


def test_a_pickled_expression(shim, loaded):
    (x,) = (v for v in shim.gof.graph.inputs([loaded["expression"]]) if v.name == "x")
    function = shim.function([x], [loaded["expression"], loaded["constant"]], mode="FAST_COMPILE")
    value = np.array([[0.5, -1.0], [2.0, 0.0]])
    total, constant = function(value)
    np.testing.assert_allclose(total, np.tanh(value + 1).sum())
    np.testing.assert_array_equal(constant, [0, 1, 2])


def test_join_along_an_axis_that_is_not_known(shim):
    T = shim.tensor
    a, b, axis = T.dmatrix("a"), T.dmatrix("b"), T.lscalar("axis")
    joined = T.concatenate([a, b], axis=axis)
    gradient = T.grad((joined**2).sum(), a)
    f = shim.function([a, b, axis], [joined, gradient], mode="FAST_COMPILE")
    one, other = np.ones((1, 3)), np.zeros((2, 3))
    for where in (0, -2):
        result, gradient = f(one, other, where)
        np.testing.assert_array_equal(result, np.concatenate([one, other], where))
        np.testing.assert_array_equal(gradient, 2 * one)
    assert f(one, one, -1)[0].shape == (1, 6)
    for where in (2, -3):
        with pytest.raises(IndexError, match="out of bounds"):
            f(one, one, where)


def test_a_transposed_tensor_has_a_name(shim):
    x = shim.tensor.dmatrix("x")
    assert x.T.name == shim.tensor.transpose(x).name == "x.T"
    assert shim.tensor.transpose(shim.tensor.dtensor3("y"), (0, 2, 1)).name is None
    assert shim.tensor.dmatrix().T.name is None
    vector = shim.tensor.dvector("v")
    assert (vector.T.name, vector.name) == ("v.T", "v")


def test_operations_of_old(shim):
    T = shim.tensor
    r = T.dscalar("r")
    f = shim.function([r], [T.complex_from_polar(r, 0.0), T.conj(r)], mode="FAST_COMPILE")
    assert f(2.0) == [2.0 + 0j, 2.0]
    with pytest.raises(ValueError, match="non-negative"):
        f(-1.0)


@pytest.mark.parametrize("linker", ["py", "c"])
def test_a_specified_shape_is_checked(shim, linker, has_cxx):
    if linker == "c" and not has_cxx:
        pytest.skip("PyTensor has no C++ compiler")
    x, shape = shim.tensor.matrix(), shim.tensor.ivector()
    specified = shim.tensor.specify_shape(x, shape)
    assert specified.type == x.type
    function = shim.function([x, shape], specified, mode=shim.Mode(linker, "fast_run"))
    value = np.ones((2, 3), x.dtype)
    np.testing.assert_array_equal(function(value, [2, 3]), value)
    with pytest.raises(AssertionError, match="expected"):
        function(value, [2, 2])
    for wrong in ([2], [2, 3, 1]):
        with pytest.raises(AssertionError, match=f"has {len(wrong)} elements"):
            function(value, wrong)
        with pytest.raises(AssertionError, match=f"has {len(wrong)} elements"):
            shim.tensor.SpecifyShape()(x, wrong)


def test_a_specified_shape_is_taken_for_granted(shim):
    x = shim.tensor.matrix()
    specified = shim.tensor.specify_shape(x, (2, 3))
    function = shim.function([x], [specified.shape, shim.grad(specified.sum(), x)])
    length, _ = function(np.zeros((4, 5), x.dtype))
    np.testing.assert_array_equal(length, [2, 3])


def test_the_shape_of_a_sum_is_read_from_one_operand(shim):
    T = shim.tensor
    x, y, v, column = T.dmatrix("x"), T.dmatrix("y"), T.dvector("v"), T.dcol("column")
    lengths = (x * y + v + column).shape
    ones = T.alloc(1.0, 2, 3) + x
    f = shim.function([x, y, v, column], [lengths, ones.shape, (column + x).shape])
    kinds = {type(node.op).__name__ for node in f.maker.fgraph.toposort()}
    assert not kinds & {"Assert", "Elemwise"}
    values = np.zeros((2, 3)), np.zeros((2, 3)), np.zeros(3), np.zeros((2, 1))
    for shape in f(*values):
        np.testing.assert_array_equal(shape, [2, 3])
    wrong = shim.function([x, y], x + y)
    with pytest.raises(ValueError, match="mis-match"):
        wrong(np.zeros((2, 3)), np.zeros((2, 4)))


def test_only_a_slice_from_the_start_stays_broadcastable(shim):
    row = shim.tensor.drow()
    for part in (row[:1], row[0:], row[::-1], row[:, 1:]):
        assert part.broadcastable == (True, False)
    for part in (row[-1:], row[1:], row[-1:, 1:], row[: shim.tensor.lscalar()]):
        assert part.broadcastable == (False, False)


def test_a_type_knows_the_pattern_only(shim):
    """Legacy code takes ``x.type()`` for a variable of any length."""
    T = shim.tensor
    three = T.constant(np.ones((3, 1)))
    v = three.type("v")
    assert v.name == "v" and v.broadcastable == (False, True)
    f = shim.function([v], v.sum(), mode="FAST_COMPILE")
    assert f(np.ones((5, 1))) == 5

    class Half(shim.Op):
        """The first half of a vector."""

        __props__ = ()

        def make_node(self, x):
            return shim.Apply(self, [x], [x.type()])

        def perform(self, node, inputs, outputs):
            outputs[0][0] = inputs[0][: len(inputs[0]) // 2].copy()

    half = Half()(T.constant([1.0, 2.0, 3.0, 4.0]))
    with shim.change_flags(on_opt_error="raise"):
        assert shim.function([], half, mode="FAST_RUN")().tolist() == [1, 2]


def test_a_length_of_one_that_comes_out_at_run_time_may_be_dropped(shim):
    """PyTensor's own rewrites do it; what Theano refuses is refused to legacy code only."""
    T = shim.tensor
    x, a = T.dvector(), T.lscalar()
    with shim.change_flags(on_opt_error="raise"):
        f = shim.function([x, a], T.reshape(x[a : a + 1], ()), mode="FAST_RUN")
    assert f([1, 2, 3], 1) == 2
    with pytest.raises(ValueError, match="cannot drop a non-broadcastable dimension"):
        x.dimshuffle()


def test_scalar_operations_that_pytensor_lacks(shim):
    T, scalar = shim.tensor, shim.scalar
    x, y, z = T.dvectors("xyz")
    c = T.zvector("c")
    outputs = [
        T.Elemwise(scalar.inopenrange)(x, y, z),
        T.Elemwise(scalar.inclosedrange)(x, y, z),
        T.Elemwise(scalar.gammau)(y, x),
        T.Elemwise(scalar.gammal)(y, x),
        T.Elemwise(scalar.angle)(c),
        T.grad(x.sum() + T.Elemwise(scalar.inopenrange)(x, y, z).astype("float64").sum(), x),
    ]
    f = shim.function([x, y, z, c], outputs)
    inside, within, above, below, angle, slope = f([1, 2, 3], [1] * 3, [3] * 3, [1 + 1j, -2j, 3])
    assert inside.dtype == "int8" and inside.tolist() == [0, 1, 0] and within.tolist() == [1] * 3
    np.testing.assert_allclose(above, np.exp([-1, -2, -3]))
    np.testing.assert_allclose(above + below, 1)
    np.testing.assert_allclose(angle, [np.pi / 4, -np.pi / 2, 0])
    assert slope.tolist() == [1] * 3
    assert scalar.unary_out_lookup({scalar.int8: scalar.int32})(scalar.int8) == [scalar.int32]


def test_the_logarithm_of_a_sum_of_exponentials(shim):
    """PyTensor's rewrite of it calls ``max`` with an argument that Theano's has not."""
    T = shim.tensor
    x = T.dmatrix()
    f = shim.function([x], T.log(T.exp(x).sum(axis=0)))
    np.testing.assert_allclose(f([[1000.0], [1000.0]]), 1000 + np.log(2))
    with pytest.raises(TypeError):
        x.max(initial=0.0)


def test_what_an_operation_indexes(shim):
    T, int64 = shim.tensor, shim.scalar.int64
    x, k = T.dmatrix("x"), T.lscalar("k")
    part = x[1:, k]
    node = part.owner
    assert node.op.idx_list == (slice(int64, None, None), int64)
    assert node.op.get_constant_idx(node.inputs, allow_partial=True)[0] == slice(1, None, None)
    with pytest.raises(T.NotScalarConstantError):
        node.op.get_constant_idx(node.inputs)
    assert T.get_idx_list(node.inputs, node.op.idx_list)[1] is node.inputs[2]
    assert T.get_idx_list(node.inputs, node.op.idx_list, get_count=True) == 2
    found = T.Subtensor.collapse(node.op.idx_list, lambda entry: entry == int64)
    assert found == [int64, int64]
    types = [T.Subtensor.convert(slice(T.lscalar(), None)), T.Subtensor.convert(k)]
    assert tuple(types) == node.op.idx_list
    value = np.arange(12.0).reshape(3, 4)
    again = T.Subtensor(types)(x, 1, k)
    more = T.IncSubtensor(types)(x, T.ones(2), 1, k)
    got, increased = shim.function([x, k], [again, more])(value, 2)
    assert got.tolist() == [6, 10]
    assert (increased - value).tolist() == [[0] * 4, [0, 0, 1, 0], [0, 0, 1, 0]]


@pytest.mark.parametrize(("index", "error"), [(1, TypeError), (np.ones(2), IndexError)])
def test_what_cannot_be_indexed_with(index, error, shim):
    error = shim.tensor.AdvancedIndexingError if error is IndexError else error
    with pytest.raises(error):
        shim.tensor.Subtensor.convert(index)


def test_an_operation_that_joins_is_join_(shim):
    T = shim.tensor
    op = T.join(0, T.dvector(), T.dvector()).owner.op
    assert op == T.join_ and T.join_ == op
    assert op != T.exp and op == T.join(0, T.dvector(), T.dvector()).owner.op


def test_a_scalar_constant_equals_one_that_is_made_by_its_type(shim):
    int64 = shim.scalar.int64
    constant = shim.tensor.dvector()[1:2].owner.inputs[1]
    assert constant.equals(shim.Constant(int64, 1))
    assert not constant.equals(shim.Constant(int64, 2))
    assert not constant.equals(shim.Constant(shim.scalar.int32, 1))
    assert not constant.equals(int64())


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_a_sum_of_many_terms_in_python(dtype, shim):
    """As the squared norm of the gradients by many parameters."""
    T = shim.tensor
    terms = [T.vector(dtype=dtype) for _ in range(34)]
    f = shim.function(terms, [sum(terms[1:], terms[0]), T.mul(*terms)], mode="FAST_COMPILE")
    total, product = f(*[np.array([1, 2], dtype=dtype)] * 33, np.array([2, 0], dtype=dtype))
    assert total.tolist() == [35, 66] and product.tolist() == [2, 0]
    assert total.dtype == product.dtype == dtype


@pytest.mark.parametrize("mode", ["FAST_RUN", "FAST_COMPILE"])
@pytest.mark.parametrize(
    ("whole", "written", "index"),
    [
        ((4,), (1,), [3]),
        ((4,), (1,), [1, 3]),
        ((4,), (2,), [3, 3]),
        ((4, 3), (1, 3), [1]),
        ((4, 3), (1, 3), [0, 2]),
        ((4, 3), (2, 1), [1, 2]),
        ((4, 3), (1, 1), [1, 1]),
        ((4, 3), (3,), [0, 2]),
    ],
)
def test_what_is_written_is_broadcast(whole, written, index, mode, shim):
    """Theano goes by the lengths, not by what is known of them when the function is compiled."""
    T = shim.tensor
    whole, ones, index = np.zeros(whole), np.ones(written), np.array(index)
    x, y, i = (T.TensorType(a.dtype, (False,) * a.ndim)() for a in (whole, ones, index))
    outputs = [T.inc_subtensor(x[i], y), T.set_subtensor(x[i], y)]
    f = shim.function([x, y, i], outputs, mode=mode)
    increment, assignment = f(whole, ones, index)
    np.add.at(whole, (index,), ones)
    np.testing.assert_array_equal(increment, whole)
    np.testing.assert_array_equal(assignment, np.minimum(whole, 1))
    with pytest.raises(ValueError, match="broadcast|match"):
        f(whole, np.ones((5,) * y.ndim), index)


def test_sum_set_where_an_index_repeats(shim):
    T = shim.tensor
    x, i, y = T.dmatrix(), T.lvector(), T.dvector()
    row, column = x[i], x[:, i]
    outputs = [T.set_subtensor(row, row + y), T.set_subtensor(column, y[:, None] + column)]
    function = shim.function([x, i, y], outputs, mode=shim.Mode("py", "fast_run"))
    rows, columns = function(np.zeros((2, 2)), [1, 1], [1.0, 2.0])
    # As Theano 1.0.5 computes them; NumPy keeps the last term.
    assert rows.tolist() == [[0.0, 0.0], [2.0, 4.0]]
    assert columns.tolist() == [[0.0, 2.0], [0.0, 4.0]]


def test_an_index_that_is_a_list_of_slices(shim):
    T = shim.tensor
    x = T.dmatrix("x")
    value = np.arange(12.0).reshape(3, 4)
    f = shim.function([x], [x[[slice(1, 3), slice(None, 2)]], x[[2, 0]]])
    by_slices, by_numbers = f(value)
    np.testing.assert_array_equal(by_slices, value[1:3, :2])
    np.testing.assert_array_equal(by_numbers, value[[2, 0]])


@pytest.mark.parametrize("rows", [slice(1, 3), slice(None, None, -1), slice(5, 9), slice(-2, None)])
@pytest.mark.parametrize("mode", ["FAST_COMPILE", "FAST_RUN"])
def test_a_slice_as_an_input(mode, rows, shim):
    T = shim.tensor
    x, part, column = T.dmatrix("x"), T.slicetype(), T.lscalar("column")
    value = np.arange(12.0).reshape(3, 4)
    read = [x[part], x[part, column], x[1:, part]]
    gradient = T.grad((read[0] ** 2).sum(), x)
    f = shim.function([x, part, column], [*read, gradient], mode=mode)
    *found, by_x = f(value, rows, 1)
    for got, expected in zip(found, (value[rows], value[rows, 1], value[1:, rows]), strict=True):
        np.testing.assert_array_equal(got, expected)
    expected = np.zeros_like(value)
    expected[rows] = 2 * value[rows]
    np.testing.assert_array_equal(by_x, expected)
    with pytest.raises(IndexError):
        f(value, rows, 4)


def test_a_value_that_may_be_broadcast_when_called(shim):
    """Writing to every place is not the value itself: one row may be written to all of them."""
    x, y = shim.tensor.matrices("xy")
    for columns in (slice(None), slice(None, None, -1)):
        f = shim.function([x, y], shim.tensor.set_subtensor(x[:, columns], y))
        expected = np.array([[5.0, 6.0], [5.0, 6.0]])[:, columns]
        np.testing.assert_array_equal(f([[2, 3], [3, 4]], [[5, 6]]), expected)
        with pytest.raises((ValueError, AssertionError)):
            f([[2, 3]], [[3, 4], [4, 5]])


def test_make_vector_of_numbers_without_a_place(shim):
    with pytest.raises(AssertionError, match="int8"):
        shim.tensor.opt.MakeVector("int8")(shim.tensor.iscalar())


@pytest.mark.parametrize("linker", ["py", "c"])
@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_a_reduction_of_nothing(name, linker, shim, has_cxx):
    if linker == "c" and not has_cxx:
        pytest.skip("no C compiler")
    x = shim.tensor.bmatrix()
    reduction = shim.tensor.elemwise.CAReduce(getattr(shim.scalar, name), axis=(1,))
    f = shim.function([x], reduction(x), mode=shim.Mode(linker=linker))
    assert f(np.zeros((0, 3), "int8")).shape == (0,)
    with pytest.raises(ValueError, match="zero-size"):
        f(np.zeros((2, 0), "int8"))
    # Over no axis nothing is reduced, and the code of the sum's cast has more parts.
    over_none = shim.tensor.elemwise.CAReduce(getattr(shim.scalar, name), axis=())(x)
    sums = x.sum(axis=[], dtype="int64")
    f = shim.function([x], [over_none, sums], mode=shim.Mode(linker=linker, optimizer=None))
    assert [part.shape for part in f(np.zeros((2, 0), "int8"))] == [(2, 0), (2, 0)]


class Mailbox:
    """Stands for MPI's communicator: what is sent arrives when a request for it waits."""

    def __init__(self):
        self.sent, self.log = {}, []

    def Isend(self, data, dest, tag):  # noqa: N802
        self.sent[dest, tag] = data.copy()
        return Request(self, lambda: None, f"sent {tag}")

    def Irecv(self, data, source, tag):  # noqa: N802
        return Request(self, lambda: np.copyto(data, self.sent[source, tag]), f"received {tag}")


class Request:
    def __init__(self, mailbox, finish, text):
        self.mailbox, self.finish, self.text = mailbox, finish, text
        mailbox.log.append("began")

    def wait(self):
        self.finish()
        self.mailbox.log.append(self.text)


def test_arrays_that_other_processes_send(shim, monkeypatch):
    from theano.gof.sched import sort_schedule_fn
    from theano.tensor import io

    T, mailbox = shim.tensor, Mailbox()
    monkeypatch.setattr(io, "communicator", lambda: mailbox)
    x = T.dmatrix("x")
    outputs = [io.send(x + 1, 1, 12), io.send(x, 1, 11), x * 2]
    linker = shim.OpWiseCLinker(schedule=sort_schedule_fn(*io.mpi_cmps))
    send = shim.function([x], outputs, mode=shim.Mode(linker=linker))
    value = np.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(send(value)[2], value * 2)
    assert mailbox.log == ["began", "began", "sent 11", "sent 12"]
    y = io.recv((2, 3), "float64", 1, 12)
    receive = shim.function([], [y * 2, y.shape])
    for shift in (1, 5):
        mailbox.sent[1, 12] = value + shift
        doubled, shape = receive()
        np.testing.assert_array_equal(doubled, (value + shift) * 2)
        assert tuple(shape) == (2, 3)
