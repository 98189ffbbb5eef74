"""PyTensor's errors on a graph name the line where the variable is used."""

import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.rebuild import UnusedInputError
from pytensor.gradient import DisconnectedInputError, NullTypeGradError
from pytensor.graph.utils import MissingInputError

import theanoguard

HERE = theanoguard.GuardMode  # (which records the lines)


def line_of(text):
    with open(__file__) as file:
        return next(i for i, line in enumerate(file, 1) if text in line)


def note_of(kind, build):
    with pytest.raises(kind) as caught:
        build()
    (note,) = [n for n in caught.value.__notes__ if "line " in n]
    return note


def test_a_missing_input_is_named_with_the_line_that_reads_it():
    x, z = pt.dscalars("xz")
    y = x**2 + z  # (reads z)
    note = note_of(MissingInputError, lambda: pytensor.function([x], y))
    assert note.startswith(f"z is used on line {line_of('# (reads z)')}, and the function has no")
    assert "givens={z: value}" in note
    assert pytensor.function([x], y, givens={z: pt.constant(2.0, dtype="float64")})(1.0) == 3


def test_an_input_that_a_loop_reads_is_named_with_the_line_of_the_step():
    x, sub = pt.dscalars("x", "sub")

    def step(v):
        return v * sub  # (reads sub)

    path = pytensor.scan(step, outputs_info=[x], n_steps=3, return_updates=False)
    note = note_of(MissingInputError, lambda: pytensor.function([x], path))
    line = line_of("# (reads sub)")
    assert note.startswith(f"sub is used in the step of a loop on line {line}, and the function")


def test_an_unused_input_is_named():
    x, z = pt.dscalars("x", "z")  # (makes z)
    note = note_of(UnusedInputError, lambda: pytensor.function([x, z], x + 1))
    assert f"do not depend on z (line {line_of('# (makes z)')})." in note
    assert 'on_unused_input="ignore"' in note


def test_a_gradient_by_another_variable_says_so():
    x, z = pt.dscalars("x", "z")
    y = x**2  # (the cost)
    note = note_of(DisconnectedInputError, lambda: pytensor.grad(y, [x, z]))
    assert note.startswith(f"The cost (line {line_of('# (the cost)')}) does not depend on z")


def test_a_gradient_that_an_operation_cuts_names_the_operation():
    x = pt.dvector("x")
    y = x.shape[0] * pt.constant(2.0)  # (cuts)
    note = note_of(DisconnectedInputError, lambda: pytensor.grad(y, x))
    assert f"to x: shape on line {line_of('# (cuts)')} has none." in note


def test_a_gradient_that_is_not_defined_names_the_operation():
    x = pt.dvector("x")
    draw = pt.random.normal(x, 1.0)  # (draws)
    note = note_of(NullTypeGradError, lambda: pytensor.grad(draw.sum(), x))
    assert note.startswith("The gradient by x goes through normal")
    assert f"on line {line_of('# (draws)')}, which has none." in note
