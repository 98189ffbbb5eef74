"""Two operations that PyTensor does not have, and all that is stated of them."""

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.tensor.elemwise import Elemwise

import theanoguard


class LogOdds(ps.UnaryScalarOp):
    """``log(p / (1 - p))``"""

    def impl(self, p):
        return np.log(p) - np.log1p(-p)

    def c_code(self, node, name, inputs, outputs, sub):
        return f"{outputs[0]} = log({inputs[0]}) - log1p(-{inputs[0]});"

    def c_code_cache_version(self):
        return (1,)


log_odds = Elemwise(LogOdds(ps.upgrade_to_float, name="log_odds"))
theanoguard.ops.register_operation(
    LogOdds,
    carries="nan inf",
    signals="c",
    domain="0 < x < 1",
    formula=lambda op, p: pt.log(p / (1 - p)),
)


class LogLength(Op):
    """``log(sqrt(sum(x ** 2)))`` along an axis."""

    __props__ = ("axis",)

    def __init__(self, axis):
        self.axis = axis

    def make_node(self, x):
        kept = [n for i, n in enumerate(x.type.shape) if i != self.axis]
        return Apply(self, [x], [pt.tensor(dtype=x.dtype, shape=kept)])

    def perform(self, node, inputs, storage):
        storage[0][0] = np.asarray(0.5 * np.log(np.square(inputs[0]).sum(axis=self.axis)))


theanoguard.ops.register_operation(
    LogLength,
    name="log_length",
    carries="nan inf",
    depends="slices",
    formula=lambda op, x: pt.log(pt.sqr(x).sum(axis=op.axis)) / 2,
)


def log_length(x, axis=-1):
    return LogLength(axis % x.ndim)(x)
