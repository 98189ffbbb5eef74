"""Print: what is printed, from which backend, and what a transparent one leaves alone."""

import pickle

import numpy as np
import pytensor
import pytensor.printing
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import get_mode

from theanoguard._pytensor import IfElse
from theanoguard.ops.print import Print, PrintBeside

pytestmark = pytest.mark.on_30

CVM = get_mode("CVM")


def scalar_ops(f):
    """Names of the scalar operations left in `f`, those inside a Composite too."""
    text = pytensor.printing.debugprint(f, file="str", print_op_info=False)
    return text.lower()


@pytest.mark.parametrize("mode", ["CVM", "NUMBA", "FAST_COMPILE"])
def test_prints_and_lets_through(mode, capsys):
    x = pt.dvector("x")
    f = pytensor.function([x], Print("the x")(x) * 2, mode=mode)
    np.testing.assert_array_equal(f([1.0, 2.0]), [2.0, 4.0])
    assert capsys.readouterr().out == "the x __str__ = [1. 2.]\n"


@pytest.mark.parametrize("mode", ["CVM", "NUMBA"])
def test_attributes_methods_and_functions(mode, capsys):
    x = pt.dmatrix("x")

    def spread(value):
        return value.max() - value.min()

    f = pytensor.function([x], Print("x:", attrs=("shape", "mean", spread))(x), mode=mode)
    f([[1.0, 2.0, 6.0]])
    assert capsys.readouterr().out == "x: shape = (1, 3)\nx: mean = 3.0\nx: spread = 5.0\n"


def test_attribute_that_does_not_exist_is_refused_when_applied():
    with pytest.raises(AttributeError, match="no attribute 'shap'"):
        Print(attrs=("shap",))(pt.dvector())


def test_global_fn_gets_operation_and_value():
    seen = []
    x = pt.dscalar("x")
    out = Print("m", global_fn=lambda op, value: seen.append((op.message, float(value))))(x)
    assert pytensor.function([x], out, mode=CVM)(3.0) == 3.0
    assert seen == [("m", 3.0)]


def test_gradient_ignores_it(capsys):
    x = pt.dscalar("x")
    g = pt.grad(Print("p")(x) ** 2, x)
    assert pytensor.function([x], g, mode=CVM)(3.0) == 6.0


def test_is_the_print_of_pytensor_and_pickles():
    op = Print("m", attrs=("shape",))
    assert isinstance(op, pytensor.printing.Print)
    again = pickle.loads(pickle.dumps(op))
    assert again == op and hash(again) == hash(op)
    assert op != Print("m", attrs=("shape",), transparent=True)
    # Two prints of the same value are told apart by their message, as in Theano.
    x = pt.dscalar()
    assert Print("a")(x).owner.op != Print("b")(x).owner.op


def test_ordinary_print_stands_in_the_way():
    x = pt.dvector("x")
    f = pytensor.function([x], pt.log(Print("1+x")(1 + x)), mode=CVM)
    assert "log1p" not in scalar_ops(f)


@pytest.mark.parametrize("mode", ["CVM", "NUMBA"])
def test_transparent_print_does_not(mode, capsys):
    x = pt.dvector("x")
    f = pytensor.function([x], pt.log(1 + Print("x", transparent=True)(x)), mode=mode)
    assert "log1p" in scalar_ops(f)
    np.testing.assert_array_equal(f([1e-20]), [1e-20])
    assert capsys.readouterr().out == "x __str__ = [1.e-20]\n"


def test_value_that_rewriting_removes_is_still_printed(capsys):
    x = pt.dvector("x")
    shown = Print("1+x", transparent=True)(1 + x)
    f = pytensor.function([x], pt.log(shown), mode=CVM)
    assert "log1p" in scalar_ops(f)
    np.testing.assert_array_equal(f([1e-20]), [1e-20])
    assert capsys.readouterr().out == "1+x __str__ = [1.]\n"


def test_transparent_print_changes_no_result(capsys):
    rng = np.random.default_rng(0)
    x, w = pt.dmatrices("x", "w")

    def loss(show):
        hidden = pt.tanh(show("h")(pt.dot(x, w)))
        return pt.log(1 + pt.exp(show("sum")(hidden.sum(axis=1)))).mean()

    plain = loss(lambda name: lambda v: v)
    printed = loss(lambda name: Print(name, attrs=("shape",), transparent=True))
    outs = [plain, *pt.grad(plain, [x, w]), printed, *pt.grad(printed, [x, w])]
    f = pytensor.function([x, w], outs, mode=CVM)
    values = f(rng.normal(size=(4, 3)), rng.normal(size=(3, 2)))
    for a, b in zip(values[:3], values[3:], strict=True):
        np.testing.assert_array_equal(a, b)
    assert sorted(capsys.readouterr().out.splitlines()) == ["h shape = (4, 2)", "sum shape = (4,)"]


def test_transparent_print_prints_once_for_several_outputs(capsys):
    x = pt.dscalar("x")
    y = Print("y", transparent=True)(x * 3)
    f = pytensor.function([x], [y + 1, y * 2, y], mode=CVM)
    assert [float(v) for v in f(1.0)] == [4.0, 6.0, 3.0]
    assert capsys.readouterr().out == "y __str__ = 3.0\n"


def test_transparent_print_with_updates(capsys):
    w = pytensor.shared(np.array([1.0, 2.0]), "w")
    y = Print("w", transparent=True)(w)
    f = pytensor.function([], [], updates={w: y * 2}, mode=CVM)
    f()
    f()
    np.testing.assert_array_equal(w.get_value(), [4.0, 8.0])
    assert capsys.readouterr().out == "w __str__ = [1. 2.]\nw __str__ = [2. 4.]\n"


def test_transparent_print_respects_branches(capsys):
    c, x = pt.bscalar("c"), pt.dvector("x")
    shown = Print("taken", transparent=True)(x + 1)
    f = pytensor.function([c, x], IfElse(n_outs=1)(c, shown.sum() * 2, x.prod()), mode=CVM)
    assert f(0, [1.0, 2.0]) == 2.0
    assert capsys.readouterr().out == ""
    assert f(1, [1.0, 2.0]) == 10.0
    assert capsys.readouterr().out == "taken __str__ = [2. 3.]\n"

    both = pytensor.function([c, x], IfElse(n_outs=1)(c, shown.sum(), shown.prod()), mode=CVM)
    assert (both(0, [1.0, 2.0]), both(1, [1.0, 2.0])) == (6.0, 5.0)
    assert capsys.readouterr().out.count("taken") == 2


def test_transparent_print_without_rewriting(capsys):
    x = pt.dscalar("x")
    mode = pytensor.compile.mode.Mode(linker="vm", optimizer=None)
    f = pytensor.function([x], pt.log(1 + Print("x", transparent=True)(x)), mode=mode)
    assert f(0.0) == 0.0
    assert capsys.readouterr().out == "x __str__ = 0.0\n"


def test_transparent_print_in_scan_prints_each_step(capsys):
    x = pt.dvector("x")

    def step(x_t, acc):
        return Print("acc", transparent=True)(acc + x_t)

    out = pytensor.scan(step, sequences=x, outputs_info=pt.zeros(()), return_updates=False)
    f = pytensor.function([x], out[-1], mode=CVM)
    assert f([1.0, 2.0, 3.0]) == 6.0
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["acc __str__ = 1.0", "acc __str__ = 3.0", "acc __str__ = 6.0"]


def test_token_is_not_folded_away(capsys):
    f = pytensor.function([], Print("c", transparent=True)(pt.constant(2.0)) + 1, mode=CVM)
    assert any(isinstance(n.op, PrintBeside) for n in f.maker.fgraph.apply_nodes)
    assert f() == 3.0
    assert "c __str__ = 2.0" in capsys.readouterr().out
