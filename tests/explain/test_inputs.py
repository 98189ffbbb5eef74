"""Errors on arguments: they name the input, its line, what it takes and what it got."""

import numpy as np
import pytensor
import pytensor.sparse
import pytensor.tensor as pt
import pytest

import theanoguard  # noqa: F401  (it adds the notes)

pytestmark = pytest.mark.on_30

ARGUMENTS = {
    "dtype": (
        lambda: pt.fvector("x"),
        np.ones(3),
        "in the input x: it takes float32 with 1 dimension, and got float64 of shape (3,)",
        "Pass np.asarray(x, dtype='float32'), declare x as float64",
    ),
    "decimals": (
        lambda: pt.lscalar("n"),
        2.5,
        "in the input n: it takes int64 with 0 dimensions, and got float64 of shape ()",
        "(this cuts off decimals)",
    ),
    "fewer dimensions": (
        lambda: pt.dmatrix("X"),
        np.ones(3),
        "in the input X: it takes float64 with 2 dimensions, and got float64 of shape (3,)",
        "pass X[None, ...] or X[:, None].",
    ),
    "more dimensions": (
        lambda: pt.dvector("x"),
        np.ones((3, 1)),
        "in the input x: it takes float64 with 1 dimension, and got float64 of shape (3, 1)",
        "or declare x with 2.",
    ),
    "shape": (
        lambda: pt.tensor("x", dtype="float64", shape=(2, None)),
        np.ones((3, 4)),
        "in the input x: it takes float64 of shape (2, ?), and got float64 of shape (3, 4)",
        "declare x without a fixed length.",
    ),
    "text": (
        lambda: pt.dvector("x"),
        ["a", "b"],
        "ValueError in the input x: it takes float64 with 1 dimension, and got <U1 of shape (2,)",
        "Pass numbers",
    ),
    "rows of different lengths": (
        lambda: pt.dmatrix("x"),
        [[1.0], [2.0, 3.0]],
        "in the input x: it takes Matrix(float64, shape=(?, ?)), and got list",
        "",
    ),
    "an object for a sparse matrix": (
        lambda: pytensor.sparse.csr_matrix("S"),
        {"a": 1},
        "in the input S: it takes ",
        "",
    ),
    "no name": (
        pt.fvector,
        np.ones(3),
        "TypeError in an input: it takes float32",
        "",
    ),
}


@pytest.mark.parametrize("case", ARGUMENTS.values(), ids=ARGUMENTS)
def test_an_argument_that_an_input_does_not_take(case):
    declare, argument, said, advice = case
    x = declare()
    fn = pytensor.function(
        [pt.dscalar("first"), x], x, on_unused_input="ignore", mode="FAST_COMPILE"
    )
    with pytest.raises((TypeError, ValueError)) as caught:
        fn(1.0, argument)
    note = caught.value.__notes__[0]
    assert said in note.splitlines()[0]
    assert "test_inputs.py" in note
    assert advice in " ".join(note.split())


def test_a_fault_in_the_note_leaves_the_error(monkeypatch, caplog):
    from theanoguard._pytensor import recording

    def broken(*_):
        raise KeyError("broken")

    monkeypatch.setattr(recording, "NOTES_ON_INPUTS", [broken])
    x = pt.fvector("x")
    fn = pytensor.function([x], x, mode="FAST_COMPILE")
    with pytest.raises(TypeError, match="float32"):
        fn(np.ones(3))
    assert "could not be explained" in caplog.text
