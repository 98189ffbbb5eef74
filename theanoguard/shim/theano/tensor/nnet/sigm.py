"""The sigmoid and its relatives."""

from pytensor.graph.rewriting.basic import PatternNodeRewriter, copy_stack_trace, node_rewriter
from pytensor.scalar.basic import ScalarType, UnaryScalarOp, upgrade_to_float
from pytensor.scalar.math import Sigmoid as ScalarSigmoid
from pytensor.scalar.math import Softplus as ScalarSoftplus
from pytensor.scalar.math import sigmoid as scalar_sigmoid
from pytensor.scalar.math import softplus as scalar_softplus
from pytensor.tensor.basic import constant
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.math import clip, exp, log1p, sigmoid, softplus
from pytensor.tensor.rewriting.math import (
    compute_mul,
    is_1pexp,
    is_exp,
    is_mul,
    is_neg,
    local_1msigmoid,
    local_exp_over_1_plus_exp,
    local_sigm_times_exp,
    log1msigm_to_softplus,
    log1p_neg_sigmoid,
    logsigm_to_softplus,
    parse_mul_tree,
    partition_num_or_denom,
    perform_sigm_times_exp,
    replace_leaf,
    simplify_mul,
)
from pytensor.tensor.rewriting.math import (
    local_reciprocal_1_plus_exp as local_inv_1_plus_exp,
)
from pytensor.tensor.type import TensorType, values_eq_approx_remove_inf

from ...scalar.basic import transfer_type

__all__ = [
    "ScalarSigmoid",
    "ScalarSoftplus",
    "UltraFastScalarSigmoid",
    "compute_mul",
    "hard_sigmoid",
    "is_1pexp",
    "is_exp",
    "is_mul",
    "is_neg",
    "local_1msigmoid",
    "local_exp_over_1_plus_exp",
    "local_hard_sigmoid",
    "local_inv_1_plus_exp",
    "local_sigm_times_exp",
    "local_ultra_fast_sigmoid",
    "log1msigm_to_softplus",
    "log1p_neg_sigmoid",
    "log1pexp_to_softplus",
    "logsigm_to_softplus",
    "parse_mul_tree",
    "partition_num_or_denom",
    "perform_sigm_times_exp",
    "register_local_1msigmoid",
    "replace_leaf",
    "scalar_sigmoid",
    "scalar_softplus",
    "sigmoid",
    "sigmoid_inplace",
    "simplify_mul",
    "softplus",
    "ultra_fast_scalar_sigmoid",
    "ultra_fast_sigmoid",
    "ultra_fast_sigmoid_inplace",
]

# PyTensor always has this rewrite, under another condition than Theano's; see its own name.
register_local_1msigmoid = False

sigmoid_inplace = Elemwise(
    ScalarSigmoid(transfer_type(0)), inplace_pattern={0: 0}, name="sigmoid_inplace"
)


class UltraFastScalarSigmoid(UnaryScalarOp):
    """A sigmoid made of quotients and straight lines, up to 0.05 off."""

    # Where x/2 lies, and the bend there: 1.5 x / (1 + x), a straight line, a constant.
    BEND, LEVEL, SLOPE, END, LIMIT = (
        1.7,
        0.935409070603099,
        0.0458812946797165,
        3.0,
        0.99505475368673,
    )

    @classmethod
    def st_impl(cls, x):
        """Return the value for one number."""
        half = abs(0.5 * x)
        if half < cls.BEND:
            z = 1.5 * half / (1 + half)
        elif half < cls.END:
            z = cls.LEVEL + cls.SLOPE * (half - cls.BEND)
        else:
            z = cls.LIMIT
        return 0.5 * ((z if x >= 0 else -z) + 1.0)

    def impl(self, x):
        """Return the value for one number."""
        return self.st_impl(x)

    def c_code(self, node, name, inputs, outputs, sub):
        """Compute the value in C."""
        (x,), (z,) = inputs, outputs
        dtype = node.outputs[0].type.dtype_specs()[1]
        return f"""
        {{
            {dtype} half = 0.5 * ({x} >= 0 ? {x} : -{x}), value;
            if (half < {self.BEND}) value = 1.5 * half / (1 + half);
            else if (half < {self.END}) value = {self.LEVEL} + {self.SLOPE} * (half - {self.BEND});
            else value = {self.LIMIT};
            {z} = 0.5 * (({x} >= 0 ? value : -value) + 1.);
        }}
        """

    def c_code_cache_version(self):
        """Return the version of the C code."""
        return (1,)


ultra_fast_scalar_sigmoid = UltraFastScalarSigmoid(
    upgrade_to_float, name="ultra_fast_scalar_sigmoid"
)
ultra_fast_sigmoid = Elemwise(ultra_fast_scalar_sigmoid, name="ultra_fast_sigmoid")
ultra_fast_sigmoid_inplace = Elemwise(
    UltraFastScalarSigmoid(transfer_type(0)),
    inplace_pattern={0: 0},
    name="ultra_fast_sigmoid_inplace",
)


def hard_sigmoid(x):
    """Return 0.2 x + 0.5, clipped to [0, 1]: a sigmoid up to 0.1 off.

    Parameters
    ----------
    x : TensorVariable
    """
    (out,) = upgrade_to_float(ScalarType(dtype=x.dtype))
    slope, shift = (constant(c, dtype=out.dtype) for c in (0.2, 0.5))
    return clip(x * slope + shift, 0, 1)


def _local_approximation(approximation, tolerance):
    """Return a rewrite of the sigmoid into another function, for who asks for it by name."""

    def values_eq_approx(a, b):
        return TensorType.values_eq_approx(a, b, atol=tolerance)

    @node_rewriter([sigmoid])
    def rewrite(fgraph, node):
        out = approximation(node.inputs[0])
        copy_stack_trace(node.outputs[0], out)
        out.tag.values_eq_approx = values_eq_approx
        return [out]

    return rewrite


local_ultra_fast_sigmoid = _local_approximation(ultra_fast_sigmoid, 0.02)
local_hard_sigmoid = _local_approximation(hard_sigmoid, 0.1)

log1pexp_to_softplus = PatternNodeRewriter(
    (log1p, (exp, "x")),
    (softplus, "x"),
    values_eq_approx=values_eq_approx_remove_inf,
    allow_multiple_clients=True,
)
