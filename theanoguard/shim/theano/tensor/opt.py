"""Theano's ``theano.tensor.opt``: rewrites of tensors, and how new ones are registered."""

import pytensor.tensor.rewriting.math as pt_rewrites
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.rewriting.basic import (
    PatternNodeRewriter,
    copy_stack_trace,
    node_rewriter,
)
from pytensor.raise_op import Assert as PyTensorAssert
from pytensor.tensor.basic import alloc, as_tensor_variable, cast, fill
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import add, erf, erfc, mul, true_div
from pytensor.tensor.rewriting.basic import local_useless_alloc
from pytensor.tensor.rewriting.shape import local_useless_expand_dims_in_reshape

from theanoguard.ops.asserts import Assert as AssertWithOperands

from .._rebroadcast import rebroadcast
from .elemwise import All, Any, CAReduce, Prod, ProdWithoutZeros, Sum

local_add_specialize = pt_rewrites.local_add_remove_zeros
local_canonicalize_alloc = local_useless_alloc
local_useless_dimshuffle_in_reshape = local_useless_expand_dims_in_reshape
ALL_REDUCE = [CAReduce, All, Any, Sum, Prod, ProdWithoutZeros]


class Canonizer(pt_rewrites.AlgebraicCanonizer):
    """Simplifies products and quotients, or sums and differences; the names are Theano's."""

    def __init__(self, main, inverse, reciprocal, calculate, use_reciprocal=True):
        super().__init__(main, inverse, reciprocal, calculate, use_reciprocal)


class _AssertType(type(PyTensorAssert)):
    """The type of `Assert`, whose instances are also those that replace it in a function."""

    def __instancecheck__(cls, instance):
        return super().__instancecheck__(instance) or isinstance(instance, AssertWithOperands)


class Assert(PyTensorAssert, metaclass=_AssertType):
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


@node_rewriter([Assert])
def local_assert_with_operands(fgraph, node):
    """Let the error say which operands made a condition false."""
    if type(node.op) is not Assert or not any(cond.owner for cond in node.inputs[1:]):
        return None
    checked = AssertWithOperands(node.op.msg)(*node.inputs)
    copy_stack_trace(node.outputs[0], checked)
    return [checked]


# Functions, by class, of which one undoes the other: for Theano whatever the number is.
INVERSES = [
    {"Deg2Rad", "Rad2Deg"},
    {"Cosh", "ArcCosh"},
    {"Tanh", "ArcTanh"},
    {"Sinh", "ArcSinh"},
    {"Conj"},
]


@node_rewriter([Elemwise])
def local_func_inv(fgraph, node):
    """Replace a function of its inverse by the argument, as in ``arctanh(tanh(x))``."""
    inner = node.inputs[0].owner
    if inner is None or not isinstance(inner.op, Elemwise):
        return None
    functions = {type(op.scalar_op).__name__ for op in (node.op, inner.op)}
    same_type = node.outputs[0].type.is_super(inner.inputs[0].type)
    return inner.inputs if functions in INVERSES and same_type else None


@node_rewriter([Sum, Prod])
def local_sum_prod_div_dimshuffle(fgraph, node):
    """Divide after a sum instead of before it, by what is broadcast along the axis.

    PyTensor does so in `specialize`.  Theano also does so in `canonicalize`, whose other rewrites
    then cancel the divisor, as in the gradient of ``exp(x) / exp(x).sum(axis=1, keepdims=True)``.
    """
    quotient = node.inputs[0].owner
    if quotient is None or quotient.op != true_div:
        return None
    divisor = quotient.inputs[1].owner
    if divisor is None or not isinstance(divisor.op, DimShuffle):
        return None
    return pt_rewrites.local_sum_prod_of_mul_or_div.transform(fgraph, node)


# A negation is a product with -1 where this is reached.
local_erf_neg_minus_one2 = PatternNodeRewriter(
    (add, -1, (erfc, (mul, -1, "x"))),
    (erf, "x"),
    allow_multiple_clients=True,
    name="local_erf_neg_minus_one2",
    tracks=[erfc],
    get_nodes=pt_rewrites.get_clients_at_depth1,
)


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
