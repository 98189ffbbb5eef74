"""What the tests of the guard share: compiling, tripping, counting."""

import inspect

import numpy as np
import pytensor
import pytest
from pytensor.compile.mode import Mode
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op

from theanoguard import GuardError, GuardMode

ALL = {"nan_is_error": True, "inf_is_error": True, "big_is_error": True}


NO_LOOPS = "PyTensor converts no loops to PyTorch"


def backend():
    """Return the backend that GuardMode takes when a test does not say it."""
    return inspect.unwrap(GuardMode.__init__).__kwdefaults__["backend"]


def computes_both_branches():
    """Whether an ``IfElse`` chooses between values that have both been computed."""
    return backend() != "c" and pytensor.__version__.startswith("3.0")


def left_out(names, reasons):
    """Return the parameters of a test; ``reasons[name]`` says on which backends one is left out."""
    return [pytest.param(n, marks=pytest.mark.not_on(**reasons.get(n, {}))) for n in names]


def plain_mode():
    """Return the mode that compiles without a guard what GuardMode compiles with one."""
    c_linker = "cvm" if pytensor.config.cxx else "vm"
    mode = Mode({"c": c_linker}.get(backend(), backend()), "fast_run")
    # PyTensor's own mode for JAX fuses nothing.
    return mode.excluding("fusion") if backend() == "jax" else mode


def guarded(inputs, outputs, updates=None, givens=None, mode=None, **settings):
    """Compile under a guard that looks for all three kinds; `settings` are the mode's."""
    mode = mode or GuardMode(**{**ALL, **settings})
    return pytensor.function(inputs, outputs, updates=updates, givens=givens, mode=mode)


def trip(fn, *args):
    """Call `fn`, which must trip; return the event."""
    with pytest.raises(GuardError) as caught:
        fn(*args)
    return caught.value.event


class CountedIdentity(Op):
    """A copy of its input that counts its runs, in Python: an op without C code."""

    __props__ = ()

    def __init__(self):
        self.runs = 0

    def __eq__(self, other):
        return self is other

    def __hash__(self):
        return id(self)

    def make_node(self, x):
        return Apply(self, [x], [x.type()])

    def perform(self, node, inputs, output_storage):
        self.runs += 1
        output_storage[0][0] = np.array(inputs[0])
