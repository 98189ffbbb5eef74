"""Several features may patch the same method of PyTensor, and end in any order."""

import itertools

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.maker import FunctionMaker
from pytensor.graph.op import Op
from pytensor.graph.rewriting.basic import GraphRewriter

import theanoguard
from theanoguard._lint.every_function import LintedRun
from theanoguard._patching import Patch, apply
from theanoguard.guard.every_function import guarding
from theanoguard.testvalue import test_values


def methods():
    return FunctionMaker.__init__, GraphRewriter.rewrite, Op.__call__


def enter(manager):
    manager.__enter__()
    return lambda: manager.__exit__(None, None, None)


FEATURES = {
    "guard": lambda: guarding().start().stop,
    "test values": lambda: enter(test_values("ignore")),
    "provenance": lambda: enter(theanoguard.track_provenance()),
    "lint": lambda: LintedRun(linked=True).start(),
}


@pytest.mark.parametrize("ends", itertools.permutations(range(3)), ids=str)
@pytest.mark.parametrize("others", itertools.combinations(sorted(FEATURES.keys() - {"guard"}), 2))
def test_features_end_in_any_order(others, ends):
    before = methods()
    x = pt.dvector("x")
    stops = [FEATURES[name]() for name in ("guard", *others)]
    for number in ends:
        if number == 0:
            with pytest.raises(theanoguard.GuardError):
                pytensor.function([x], pt.log(x))(np.array([-1.0]))
        stops[number]()
    assert methods() == before
    assert np.isnan(pytensor.function([x], pt.log(x), mode="FAST_COMPILE")(np.array([-1.0])))


class Owner:
    def method(self):
        return "original"


class Heir(Owner):
    pass


def wrapped(word):
    def wrap(original):
        return lambda self: f"{word} {original(self)}"

    return wrap


def test_the_latest_is_outermost_and_what_is_inherited_is_taken_away_again():
    first, second = (
        Patch(Heir, "method", wrapped("first")),
        Patch(Heir, "method", wrapped("second")),
    )
    undo_first, undo_second = apply([first]), apply([second])
    assert Heir().method() == "second first original"
    undo_first()
    undo_first()
    assert Heir().method() == "second original"
    undo_second()
    assert "method" not in vars(Heir) and Owner().method() == "original"


def test_equal_patches_are_applied_once():
    patch = Patch(Owner, "method", wrapped("only"))
    undo, again = apply([patch]), apply([patch])
    undo()
    assert Owner().method() == "only original"
    again()
    assert Owner().method() == "original"


def test_an_attribute_may_be_new():
    undo = apply([Patch(Owner, "new", lambda original: original is None)])
    assert Owner.new is True
    undo()
    assert not hasattr(Owner, "new")
