"""Theano's ``theano.tensor.opt``: rewrites of tensors, and how new ones are registered."""

import pytensor.tensor.rewriting.math as pt_rewrites
from pytensor.graph.basic import Apply
from pytensor.graph.basic import Constant as Constant
from pytensor.graph.basic import Variable as Variable
from pytensor.graph.rewriting.basic import copy_stack_trace as copy_stack_trace
from pytensor.graph.rewriting.basic import in2out as in2out
from pytensor.raise_op import Assert as PyTensorAssert
from pytensor.tensor.basic import Alloc as Alloc
from pytensor.tensor.basic import MakeVectorPrinter as MakeVectorPrinter
from pytensor.tensor.basic import alloc, as_tensor_variable, cast, fill
from pytensor.tensor.basic import make_vector as make_vector
from pytensor.tensor.exceptions import NotScalarConstantError as NotScalarConstantError
from pytensor.tensor.exceptions import ShapeError as ShapeError
from pytensor.tensor.rewriting.basic import MakeVector as MakeVector
from pytensor.tensor.rewriting.basic import constant_folding as constant_folding
from pytensor.tensor.rewriting.basic import is_an_upcast as is_an_upcast
from pytensor.tensor.rewriting.basic import local_alloc_empty_to_zeros as local_alloc_empty_to_zeros
from pytensor.tensor.rewriting.basic import local_alloc_unary as local_alloc_unary
from pytensor.tensor.rewriting.basic import local_cast_cast as local_cast_cast
from pytensor.tensor.rewriting.basic import local_elemwise_alloc as local_elemwise_alloc
from pytensor.tensor.rewriting.basic import local_join_1 as local_join_1
from pytensor.tensor.rewriting.basic import local_join_empty as local_join_empty
from pytensor.tensor.rewriting.basic import local_join_make_vector as local_join_make_vector
from pytensor.tensor.rewriting.basic import local_merge_alloc as local_merge_alloc
from pytensor.tensor.rewriting.basic import (
    local_merge_switch_same_cond as local_merge_switch_same_cond,
)
from pytensor.tensor.rewriting.basic import local_remove_all_assert as local_remove_all_assert
from pytensor.tensor.rewriting.basic import (
    local_remove_useless_assert as local_remove_useless_assert,
)
from pytensor.tensor.rewriting.basic import local_scalar_tensor_scalar as local_scalar_tensor_scalar
from pytensor.tensor.rewriting.basic import local_tensor_scalar_tensor as local_tensor_scalar_tensor
from pytensor.tensor.rewriting.basic import local_useless_alloc as local_useless_alloc
from pytensor.tensor.rewriting.basic import local_useless_elemwise as local_useless_elemwise
from pytensor.tensor.rewriting.basic import local_useless_fill as local_useless_fill
from pytensor.tensor.rewriting.basic import local_useless_split as local_useless_split
from pytensor.tensor.rewriting.basic import local_useless_switch as local_useless_switch
from pytensor.tensor.rewriting.basic import local_view_op as local_view_op
from pytensor.tensor.rewriting.basic import register_canonicalize as register_canonicalize
from pytensor.tensor.rewriting.basic import register_specialize as register_specialize
from pytensor.tensor.rewriting.basic import register_stabilize as register_stabilize
from pytensor.tensor.rewriting.basic import register_uncanonicalize as register_uncanonicalize
from pytensor.tensor.rewriting.basic import register_useless as register_useless
from pytensor.tensor.rewriting.basic import topo_constant_folding as topo_constant_folding
from pytensor.tensor.rewriting.elemwise import FusionOptimizer as FusionOptimizer
from pytensor.tensor.rewriting.elemwise import InplaceElemwiseOptimizer as InplaceElemwiseOptimizer
from pytensor.tensor.rewriting.elemwise import (
    apply_local_dimshuffle_lift as apply_local_dimshuffle_lift,
)
from pytensor.tensor.rewriting.elemwise import fuse_seqopt as fuse_seqopt
from pytensor.tensor.rewriting.elemwise import is_dimshuffle_useless as is_dimshuffle_useless
from pytensor.tensor.rewriting.elemwise import local_dimshuffle_lift as local_dimshuffle_lift
from pytensor.tensor.rewriting.elemwise import (
    local_upcast_elemwise_constant_inputs as local_upcast_elemwise_constant_inputs,
)
from pytensor.tensor.rewriting.math import add_calculate as add_calculate
from pytensor.tensor.rewriting.math import add_canonizer as add_canonizer
from pytensor.tensor.rewriting.math import attempt_distribution as attempt_distribution
from pytensor.tensor.rewriting.math import check_for_x_over_absX as check_for_x_over_absX
from pytensor.tensor.rewriting.math import distribute_greedy as distribute_greedy
from pytensor.tensor.rewriting.math import local_0_dot_x as local_0_dot_x
from pytensor.tensor.rewriting.math import local_abs_lift as local_abs_lift
from pytensor.tensor.rewriting.math import local_abs_merge as local_abs_merge
from pytensor.tensor.rewriting.math import local_add_canonizer as local_add_canonizer
from pytensor.tensor.rewriting.math import local_div_switch_sink as local_div_switch_sink
from pytensor.tensor.rewriting.math import local_elemwise_sub_zeros as local_elemwise_sub_zeros
from pytensor.tensor.rewriting.math import local_erf_minus_one as local_erf_minus_one
from pytensor.tensor.rewriting.math import local_erf_neg_minus_one as local_erf_neg_minus_one
from pytensor.tensor.rewriting.math import local_expm1 as local_expm1
from pytensor.tensor.rewriting.math import local_grad_log_erfc_neg as local_grad_log_erfc_neg
from pytensor.tensor.rewriting.math import local_greedy_distributor as local_greedy_distributor
from pytensor.tensor.rewriting.math import (
    local_lift_transpose_through_dot as local_lift_transpose_through_dot,
)
from pytensor.tensor.rewriting.math import local_log1p as local_log1p
from pytensor.tensor.rewriting.math import local_log_erfc as local_log_erfc
from pytensor.tensor.rewriting.math import local_mul_canonizer as local_mul_canonizer
from pytensor.tensor.rewriting.math import local_mul_specialize as local_mul_specialize
from pytensor.tensor.rewriting.math import local_mul_switch_sink as local_mul_switch_sink
from pytensor.tensor.rewriting.math import local_mul_to_sqr as local_mul_to_sqr
from pytensor.tensor.rewriting.math import local_mul_zero as local_mul_zero
from pytensor.tensor.rewriting.math import local_neg_div_neg as local_neg_div_neg
from pytensor.tensor.rewriting.math import local_neg_to_mul as local_neg_to_mul
from pytensor.tensor.rewriting.math import local_one_minus_erf as local_one_minus_erf
from pytensor.tensor.rewriting.math import local_one_minus_erfc as local_one_minus_erfc
from pytensor.tensor.rewriting.math import local_one_plus_erf as local_one_plus_erf
from pytensor.tensor.rewriting.math import local_pow_canonicalize as local_pow_canonicalize
from pytensor.tensor.rewriting.math import local_pow_specialize as local_pow_specialize
from pytensor.tensor.rewriting.math import local_reduce_broadcastable as local_reduce_broadcastable
from pytensor.tensor.rewriting.math import local_reduce_join as local_reduce_join
from pytensor.tensor.rewriting.math import local_sum_prod_all_to_none as local_sum_prod_all_to_none
from pytensor.tensor.rewriting.math import local_sumsqr2dot as local_sumsqr2dot
from pytensor.tensor.rewriting.math import (
    local_useless_elemwise_comparison as local_useless_elemwise_comparison,
)
from pytensor.tensor.rewriting.math import local_useless_reduce as local_useless_reduce
from pytensor.tensor.rewriting.math import local_zero_div as local_zero_div
from pytensor.tensor.rewriting.math import mul_calculate as mul_calculate
from pytensor.tensor.rewriting.math import mul_canonizer as mul_canonizer
from pytensor.tensor.rewriting.math import scalarconsts_rest as scalarconsts_rest
from pytensor.tensor.rewriting.shape import ShapeFeature as ShapeFeature
from pytensor.tensor.rewriting.shape import ShapeOptimizer as ShapeOptimizer
from pytensor.tensor.rewriting.shape import UnShapeOptimizer as UnShapeOptimizer
from pytensor.tensor.rewriting.shape import local_reshape_chain as local_reshape_chain
from pytensor.tensor.rewriting.shape import local_reshape_lift as local_reshape_lift
from pytensor.tensor.rewriting.shape import (
    local_reshape_to_dimshuffle as local_reshape_to_dimshuffle,
)
from pytensor.tensor.rewriting.shape import local_shape_to_shape_i as local_shape_to_shape_i
from pytensor.tensor.rewriting.shape import local_track_shape_i as local_track_shape_i
from pytensor.tensor.rewriting.shape import local_useless_expand_dims_in_reshape
from pytensor.tensor.rewriting.shape import local_useless_reshape as local_useless_reshape
from pytensor.tensor.rewriting.subtensor import (
    local_incsubtensor_of_zeros as local_incsubtensor_of_zeros,
)
from pytensor.tensor.rewriting.subtensor import (
    local_incsubtensor_of_zeros_to_setsubtensor as local_incsubtensor_of_zeros_to_setsubtensor,
)
from pytensor.tensor.rewriting.subtensor import (
    local_IncSubtensor_serialize as local_IncSubtensor_serialize,
)
from pytensor.tensor.rewriting.subtensor import (
    local_inplace_setsubtensor as local_inplace_setsubtensor,
)
from pytensor.tensor.rewriting.subtensor import (
    local_set_to_inc_subtensor as local_set_to_inc_subtensor,
)
from pytensor.tensor.rewriting.subtensor import (
    local_setsubtensor_of_constants as local_setsubtensor_of_constants,
)
from pytensor.tensor.rewriting.subtensor import (
    local_subtensor_remove_broadcastable_index as local_subtensor_remove_broadcastable_index,
)
from pytensor.tensor.rewriting.subtensor import (
    local_useless_inc_subtensor as local_useless_inc_subtensor,
)
from pytensor.tensor.rewriting.subtensor import (
    local_useless_inc_subtensor_alloc as local_useless_inc_subtensor_alloc,
)
from pytensor.tensor.rewriting.subtensor import local_useless_slice as local_useless_slice
from pytensor.tensor.rewriting.subtensor import local_useless_subtensor as local_useless_subtensor
from pytensor.tensor.rewriting.subtensor import merge_two_slices as merge_two_slices
from pytensor.tensor.shape import Reshape as Reshape
from pytensor.tensor.shape import Shape as Shape
from pytensor.tensor.shape import Shape_i as Shape_i

from .. import scalar as scalar
from .._rebroadcast import rebroadcast
from .basic import extract_constant as extract_constant
from .basic import get_scalar_constant_value as get_scalar_constant_value
from .elemwise import All, Any, CAReduce, Prod, ProdWithoutZeros, Sum
from .elemwise import DimShuffle as DimShuffle
from .elemwise import Elemwise as Elemwise
from .subtensor import AdvancedIncSubtensor as AdvancedIncSubtensor
from .subtensor import AdvancedIncSubtensor1 as AdvancedIncSubtensor1
from .subtensor import AdvancedSubtensor1 as AdvancedSubtensor1
from .subtensor import IncSubtensor as IncSubtensor
from .subtensor import Subtensor as Subtensor
from .subtensor import get_canonical_form_slice as get_canonical_form_slice
from .subtensor import get_idx_list as get_idx_list

Canonizer = pt_rewrites.AlgebraicCanonizer
local_add_specialize = pt_rewrites.local_add_remove_zeros
local_canonicalize_alloc = local_useless_alloc
local_useless_dimshuffle_in_reshape = local_useless_expand_dims_in_reshape
ALL_REDUCE = [CAReduce, All, Any, Sum, Prod, ProdWithoutZeros]


class Assert(PyTensorAssert):
    """Pass the first input on if all the others are true, else raise `AssertionError`."""

    def __init__(self, msg="Theano Assert failed!"):
        super().__init__(msg)

    def make_node(self, value, *conds):
        """Apply it; the conditions stay tensors, which PyTensor makes truth values first."""
        value, *conds = [
            given if isinstance(given, Variable) else as_tensor_variable(given)
            for given in (value, *conds)
        ]
        if any(cond.type.ndim for cond in conds):
            raise AssertionError("The conditions of an Assert have no dimensions.")
        return Apply(self, [value, *conds], [value.type()])

    def c_code(self, node, name, inames, onames, sub):
        value, *conds = inames
        read = [
            f"((npy_{variable.dtype}*)PyArray_DATA({cond}))[0]"
            for cond, variable in zip(conds, node.inputs[1:], strict=True)
        ]
        return super().c_code(node, name, [value, *read], onames, sub)

    def c_code_cache_version(self):
        return (1, super().c_code_cache_version())


assert_op = assert_ = Assert()


def encompasses_broadcastable(b1, b2):
    """Whether a tensor of pattern `b2` is broadcast to the shape of one of pattern `b1`."""
    if len(b1) < len(b2):
        return False
    return not any(one and not other for one, other in zip(b1[-len(b2) :], b2, strict=True))


def merge_broadcastables(broadcastables):
    """Return the pattern of what tensors of these patterns give together."""
    return [all(column) for column in zip(*broadcastables, strict=True)]


def broadcast_like(value, template, fgraph, dtype=None):
    """Return `value` as a tensor with the shape, the pattern and the dtype of `template`."""
    value = cast(as_tensor_variable(value), dtype or template.dtype)
    if value.type == template.type:
        return value
    full = alloc(value, *template.shape)
    return rebroadcast(full, dict(enumerate(template.broadcastable)))


def apply_rebroadcast_opt(rval):
    """Return `rval`: a `Rebroadcast` that changes nothing is not made in the first place."""
    return rval


def get_clients(node):
    """Return what uses the first output of `node`: pairs of a node and an input's number."""
    return node.fgraph.clients[node.outputs[0]]


def _fill_chain(new_out, orig_inputs):
    for i in orig_inputs:
        new_out = fill(i, new_out)
    return [new_out]
