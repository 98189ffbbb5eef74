"""Let a call raise that Theano lets raise, although a rewrite removes the operation that does.

PyTensor's rewrites take indices to be in bounds and shapes to match.  Theano's check.  And Theano
does not rewrite inverses, determinants and the like, which a singular matrix does not have.
"""

from functools import wraps
from itertools import product

import numpy as np
from pytensor.compile.mode import optdb
from pytensor.graph.basic import Constant, equal_computations
from pytensor.graph.rewriting.basic import WalkingGraphRewriter, copy_stack_trace
from pytensor.raise_op import Assert, CheckAndRaise
from pytensor.scan.op import Scan
from pytensor.tensor.basic import Alloc, MakeVector, switch
from pytensor.tensor.elemwise import CAReduce
from pytensor.tensor.math import and_, eq, ge, lt, maximum
from pytensor.tensor.rewriting import subtensor as rewriting
from pytensor.tensor.subtensor import Subtensor, get_canonical_form_slice

from theanoguard._pytensor.for_theano import lengths_of, registered

from ..tensor.opt import (
    local_assert_with_operands,
    local_erf_neg_minus_one2,
    local_func_inv,
    local_sum_prod_div_dimshuffle,
)
from ..tensor.subtensor import get_idx_list
from . import Patch, Rewrite
from .withheld import Withheld

PHASES = ("canonicalize", "stabilize", "specialize")

_merge = rewriting._merge_scalar_into_slice_unsafe


def length_of_slice(entry, length):
    """Return how many elements a slice with a step of 1 or -1 takes, as a variable or a number."""
    form, _ = get_canonical_form_slice(entry, length)
    return maximum(form.stop - form.start, 0)


def merge_in_bounds(inner_slice, scalar_index, dim, xshape):
    """Return the index into the sliced tensor, which is out of bounds if it was for the slice."""
    merged = _merge(inner_slice, scalar_index, dim, xshape)
    if merged is None or (inner_slice.start is None and inner_slice.stop is None):
        return merged
    length = length_of_slice(inner_slice, xshape[dim])
    in_bounds = and_(ge(scalar_index, -length), lt(scalar_index, length))
    return switch(in_bounds, merged, xshape[dim])


_merge_nodes = rewriting._local_subtensor_merge_rewrite


def step_of_loop(node):
    """Return ``out[k:][i]`` of a loop with `k` initial values as an index into ``out``.

    PyTensor computes and stores only the steps that are read, if it sees constant indices.
    """
    u = node.inputs[0]
    x = u.owner.inputs[0] if u.owner and isinstance(u.owner.op, Subtensor) else u
    if x is u or x.owner is None or not isinstance(x.owner.op, Scan):
        return None
    info, place = x.owner.op.info, x.owner.outputs.index(x) - x.owner.op.info.n_mit_mot
    states = [*info.mit_sot_in_slices, *info.sit_sot_in_slices]
    first, *rest = get_idx_list(node.inputs, node.op.idx_list)
    skipped, *others = get_idx_list(u.owner.inputs, u.owner.op.idx_list)
    if not (
        0 <= place < len(states)
        and isinstance(first, Constant)
        and (first.data >= -1 or not info.as_while)
        and not others
        and isinstance(skipped, slice)
        and isinstance(skipped.start, Constant)
        and (skipped.start.data, skipped.stop, skipped.step) == (-min(states[place]), None, None)
    ):
        return None
    index = int(first.data)
    out = x[(index if index < 0 else index + int(skipped.start.data), *rest)]
    copy_stack_trace([node.outputs[0], u], out)
    if index == -1:  # of no steps, the initial value, as in Theano
        return [out]
    is_there = ge(x.owner.inputs[0], -index if index < 0 else index + 1)
    return [CheckAndRaise(IndexError, "index out of bounds")(out, is_there)]


def merge_nodes(fgraph, node, **kwargs):
    """Merge two indices into one."""
    return step_of_loop(node) or _merge_nodes(fgraph, node, **kwargs)


def unproved(pairs):
    """Return conditions for those pairs of lengths that are not known to be equal."""
    return [
        eq(one, other)
        for one, other in pairs
        if not (
            one is other
            or (
                isinstance(one, Constant) and isinstance(other, Constant) and one.data == other.data
            )
            or equal_computations([one], [other])
        )
    ]


def of_dot(fgraph, node):
    """The lengths over which a product sums are equal."""
    x, y = node.inputs
    return unproved([(lengths_of(fgraph, x)[-1], lengths_of(fgraph, y)[0])])


def of_writing(fgraph, node):
    """What is written to every place has the lengths of what it is written to."""
    x, value, *_ = node.inputs
    if x.ndim != value.ndim:
        return []
    lengths = zip(lengths_of(fgraph, x), lengths_of(fgraph, value), strict=True)
    return unproved(
        pair for pair, one in zip(lengths, value.type.broadcastable, strict=True) if not one
    )


def is_filled(x):
    """Whether a tensor is one constant number everywhere."""
    return (
        x.owner is not None
        and isinstance(x.owner.op, Alloc)
        and isinstance(x.owner.inputs[0], Constant)
    )


def of_elemwise(fgraph, node):
    """The operands have the same length wherever they are not broadcast.

    Theano leaves out zeros and ones, whatever their shapes.
    """
    pairs = []
    operands = [
        (x.type.broadcastable, lengths_of(fgraph, x)) for x in node.inputs if not is_filled(x)
    ]
    for axis in range(node.outputs[0].ndim):
        lengths = [known[axis] for pattern, known in operands if not pattern[axis]]
        pairs += [(lengths[0], other) for other in lengths[1:]]
    return unproved(pairs)


def of_index(fgraph, node):
    """The indices into dimensions that are known to have the length 1 are 0 or -1."""
    x, *rest = node.inputs
    entries = get_idx_list(node.inputs, node.op.idx_list) if hasattr(node.op, "idx_list") else rest
    return [
        entry
        for entry, one in zip(entries, x.type.broadcastable, strict=False)
        if one
        and not isinstance(entry, slice)
        and not (isinstance(entry, Constant) and np.isin(entry.data, (0, -1)).all())
    ]


def asserting(rewrite, conditions):
    """Let what a rewrite gives raise if the conditions do not hold that it takes for granted."""

    @wraps(rewrite)
    def checked(fgraph, node):
        new = rewrite(fgraph, node)
        if not new:
            return new
        needed = conditions(fgraph, node)
        return [Assert("The shapes do not match.")(new[0], *needed)] if needed else new

    return checked


def proved(rewrite, conditions):
    """Let a rewrite alone what it takes for granted and nobody knows: a length may be 1 as well."""

    @wraps(rewrite)
    def limited(fgraph, node):
        new = rewrite(fgraph, node)
        return None if new and conditions(fgraph, node) else new

    return limited


def by_slices_only(rewrite):
    """Let a rewrite alone what is read by vectors of indices, which may be out of bounds."""

    @wraps(rewrite)
    def limited(fgraph, node):
        return rewrite(fgraph, node) if isinstance(node.op, Subtensor) else None

    return limited


def changed(name, change, *arguments):
    """Return the patches that change the function of a rewrite, which may be in several phases."""
    found = {registered(optdb[phase], name) for phase in PHASES} - {None}
    return [Patch(one, "fn", change(one.fn, *arguments)) for one in found]


class NoPlaceError(TypeError, AssertionError):
    """A number has no place in the dtype of a vector: PyTensor's error, and Theano's."""


_make_vector = MakeVector.make_node


@wraps(_make_vector)
def make_vector(self, *inputs):
    """Put numbers together in a vector."""
    try:
        return _make_vector(self, *inputs)
    except TypeError as error:
        raise NoPlaceError(str(error)) from None


_make_reduction = CAReduce.make_node


@wraps(_make_reduction)
def make_reduction(self, x):
    """Reduce along axes, which have to be there."""
    node = _make_reduction(self, x)
    ndim = node.inputs[0].type.ndim
    if max(self.axis or (), default=-1) >= ndim:
        raise ValueError(f"Not enough dimensions on {x} to reduce on axis {max(self.axis)}")
    return node


PATCHES = [
    Patch(CAReduce, "make_node", make_reduction),
    Patch(MakeVector, "make_node", make_vector),
    *(
        Rewrite(optdb[phase], rewriter.__name__, rewriter, ("fast_run",))
        for phase in ("canonicalize", "specialize")
        for rewriter in (local_func_inv, local_sum_prod_div_dimshuffle)
    ),
    *(
        Rewrite(optdb[phase], "local_erf_neg_minus_one2", local_erf_neg_minus_one2, ("fast_run",))
        for phase in PHASES
    ),
    Rewrite(
        optdb,
        "theano_assert_with_operands",
        WalkingGraphRewriter(local_assert_with_operands),
        ("fast_run", "fast_compile"),
        {"position": 0.006},
    ),
    Patch(rewriting, "_local_subtensor_merge_rewrite", merge_nodes),
    Patch(rewriting, "_merge_scalar_into_slice_unsafe", merge_in_bounds),
    *changed("local_0_dot_x", asserting, of_dot),
    *changed("local_useless_inc_subtensor", proved, of_writing),
    *changed("local_elemwise_alloc", asserting, of_elemwise),
    *changed("local_subtensor_of_batch_dims", proved, of_index),
    *changed("local_read_of_write_same_indices", by_slices_only),
    *changed("local_subtensor_of_alloc", by_slices_only),
    *(
        Withheld(optdb[phase], name)
        for phase, name in product(
            PHASES,
            (
                "block_diag_solve_to_block_diag_solves",
                "cho_solve_quadratic_form_to_whitened",
                "det_of_blockdiag",
                "det_of_inv",
                "det_of_kronecker",
                "det_of_permutation",
                "det_of_triangular",
                "diagonal_solve_to_division",
                "eig_to_eigh",
                "generic_solve_to_structured_form",
                "inv_of_diag_to_diag_reciprocal",
                "inv_of_inv",
                "inv_of_orthogonal_to_transpose",
                "inv_to_solve",
                "local_subtensor_of_expand_dims",
                "local_subtensor_of_join",
                "psd_solve_to_chol_solve",
                "scalar_solve_to_division",
                "solve_of_inv_to_matmul",
                "svd_of_structured",
            ),
        )
    ),
]
