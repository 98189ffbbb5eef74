"""What JAX traces for the checks; loaded with JAX, when a graph is compiled for it."""

from collections import defaultdict
from functools import partial

import jax.numpy as jnp
import numpy as np
from jax import lax
from pytensor.link.jax.dispatch import jax_funcify
from pytensor.link.jax.dispatch.shape import JAXShapeTuple
from pytensor.tensor.random.op import RandomVariable

from theanoguard._pytensor import CheckedBody, CheckedIfElse, inner_graphs_for_jax
from theanoguard.explain.replay import compute
from theanoguard.guard.graph.checks import floor_to
from theanoguard.guard.jax.linker import BAD, LARGEST, SHAPE, CarryStatus, NoStatus, Status

# Values are first reduced to at most so many elements, one by one, and then together.
SMALL = 256
# So many parts of an array are laid over each other at a time, which is one loop that the vector
# units run; XLA's own reduction of a whole array takes two to three times as long on a processor.
PARTS = 16


inner_graphs = partial(inner_graphs_for_jax, compiled_by=jax_funcify.dispatch)


def real_type():
    """Return the widest floating type that JAX is set to have."""
    return jnp.zeros(0, float).dtype


def magnitude(op, v):
    """Return what exceeds the limit, or is NaN, where an element is bad, as ``Policy.mask``."""
    if jnp.issubdtype(v.dtype, jnp.integer):
        return jnp.abs(v.astype(real_type()))
    if jnp.issubdtype(v.dtype, jnp.complexfloating) and not op.big:
        size = jnp.maximum(jnp.abs(v.real), jnp.abs(v.imag))
    else:
        size = jnp.abs(v)
    if not (op.inf or op.big):
        return jnp.where(jnp.isnan(v), size.dtype.type(np.nan), size.dtype.type(0))
    if not op.nan:
        return jnp.where(jnp.isnan(v), size.dtype.type(0), size)
    if jnp.issubdtype(v.dtype, jnp.complexfloating):  # |inf + nan i| is infinite
        return jnp.where(jnp.isnan(v), size.dtype.type(np.nan), size)
    return size


def largest_allowed(op):
    """Return the largest magnitude that is not bad, in `real_type`."""
    dtype = np.dtype(real_type())
    return floor_to(op.limit, dtype.type) if op.big else np.finfo(dtype).max


def is_bad(op, size):
    return ~(size.astype(real_type()) <= largest_allowed(op))


def words_of(value):
    """Return the bits of a number of 32 or 64 bits as one or two integers along a last axis."""
    words = lax.bitcast_convert_type(value, jnp.int32)
    return words if words.ndim > value.ndim else words[..., None]


def largest(op, values):
    """Return the largest magnitude of each value, NaN being the largest, as one vector."""
    alike = defaultdict(list)  # by whether they are magnitudes already, dtype and length
    for i, v in enumerate(values):
        if v.size == 0:
            v = jnp.zeros(1, v.dtype)
        if v.size <= SMALL:
            alike[False, v.dtype, v.size].append((i, v.ravel()))
        else:
            # (Of the parts, since XLA would write the magnitudes of the whole into memory.)
            size = overlaid(v.ravel(), lambda part: magnitude(op, part))
            while size.size > SMALL:
                size = overlaid(size)
            alike[True, size.dtype, size.size].append((i, size))
    order, found = [], []
    for (are_sizes, _, _), several in alike.items():
        together = jnp.concatenate([v for _, v in several]).reshape(len(several), -1)
        if not are_sizes:
            together = magnitude(op, together)
        while together.shape[-1] > 1:
            together = overlaid(together)
        order += [i for i, _ in several]
        found.append(together[:, 0].astype(real_type()))
    if not found:
        return jnp.zeros(0, real_type())
    found = jnp.concatenate(found)
    return found if order == sorted(order) else found[np.argsort(order)]


def overlaid(size, of_part=lambda part: part):
    """Return the larger ones of elements that are far apart along the last axis."""
    n = size.shape[-1]
    length = -(-n // PARTS)
    starts = sorted({min(i * length, n - length) for i in range(PARTS)})
    parts = [of_part(size[..., start : start + length]) for start in starts]
    while len(parts) > 1:
        parts = [*map(jnp.maximum, parts[0::2], parts[1::2]), *parts[len(parts) // 2 * 2 :]]
    return parts[0]


def own_status(op, values, detail):
    """Return the rows of a graph's own checks, without steps."""
    if detail is None:
        sizes = largest(op, values)
        bad = is_bad(op, sizes).astype(jnp.int32)
        return jnp.concatenate([bad[:, None], words_of(sizes)], axis=1)
    nothing = jnp.zeros(SHAPE + detail.ndim, jnp.int32)
    rows = [
        describe(op, v) if row == detail.row else nothing
        for row, v in zip(op.rows, values, strict=True)
    ]
    return jnp.stack(rows) if rows else jnp.zeros((0, *nothing.shape), jnp.int32)


def describe(op, v):
    """Return the row with the details of a value."""
    flat = v.ravel()
    isnan, isinf = jnp.isnan(flat), jnp.isinf(flat)
    isinf &= ~isnan
    bad = is_bad(op, magnitude(op, flat))
    big = bad & ~isnan & ~isinf
    negative = isinf & (flat.real < 0)
    at = jnp.argmax(bad)
    numbers = [
        bad.any(),
        v.size,
        isnan.sum(),
        isinf.sum() - negative.sum(),
        negative.sum(),
        big.sum(),
        at,
    ]
    if jnp.issubdtype(v.dtype, jnp.integer):
        signed = jnp.issubdtype(v.dtype, jnp.signedinteger)
        widest = jnp.zeros(0, int if signed else np.uint).dtype
        parts = [words_of(flat[at].astype(widest))] * 2
    else:
        parts = [words_of(part.astype(real_type())) for part in (flat[at].real, flat[at].imag)]
    n_words = parts[0].size
    numbers.append(n_words)
    words = [jnp.pad(part, (0, 2 - n_words)) for part in parts]
    numbers = jnp.stack([jnp.asarray(n, jnp.int32) for n in numbers])
    return jnp.concatenate([numbers, *words, np.array(v.shape, np.int32)])


def base(detail):
    """Return how many columns come before the steps."""
    return LARGEST + words_of(real_type().type(0)).size if detail is None else SHAPE + detail.ndim


@jax_funcify.register(Status)
def jax_funcify_status(op, detail=None, **kwargs):
    n_own = len(op.rows)
    width = base(detail) + op.depth

    def status(*inputs):
        values = [jnp.asarray(v) for v in inputs[:n_own]]
        parts = [own_status(op, values, detail), *inputs[n_own:]]
        parts = [jnp.pad(p, ((0, 0), (0, width - p.shape[1]))) for p in parts if p.shape[0]]
        return jnp.concatenate(parts) if parts else jnp.zeros((0, width), jnp.int32)

    return status


def found_first(traced):
    """Return a function whose status comes as a vector, with whether it tells of anything first.

    Most calls look at that number alone.
    """

    def run(*values):
        *results, status = traced(*values)
        found = jnp.any(status[:, BAD] != 0).astype(status.dtype)
        return *results, jnp.concatenate([found[None], status.ravel()])

    return run


@jax_funcify.register(NoStatus)
def jax_funcify_no_status(op, detail=None, **kwargs):
    return lambda: jnp.zeros((op.rows, base(detail) + op.depth), jnp.int32)


@jax_funcify.register(CarryStatus)
def jax_funcify_carry_status(op, detail=None, **kwargs):
    at = base(detail)

    def carry(carried, of_step):
        step = carried[0, at]
        steps = jnp.broadcast_to(step, (of_step.shape[0], 1))
        found = jnp.concatenate([of_step[:, :at], steps, of_step[:, at:]], axis=1)
        is_new = (carried[1:, BAD] == 0) & (found[:, BAD] != 0)
        inside = jnp.where(is_new[:, None], found, carried[1:])
        return jnp.concatenate([carried[:1].at[0, at].set(step + 1), inside])

    return carry


@jax_funcify.register(CheckedBody)
def jax_funcify_checked_body(op, node=None, storage_map=None, **kwargs):
    return jax_funcify(op.fgraph, **kwargs)


@jax_funcify.register(CheckedIfElse)
def jax_funcify_checked_if_else(op, node=None, storage_map=None, detail=None, **kwargs):
    graphs = [branch.fgraph for branch in (op.true_branch, op.false_branch)]
    width = base(detail) + max(graph.depth for graph in graphs)
    n_rows = [len(graph.rows) for graph in graphs]

    def branch(graph, n_before, n_after):
        traced = jax_funcify(graph, detail=detail, **kwargs)

        def run(*inputs):
            *outputs, status = traced(*inputs)
            more = width - status.shape[1]
            return (*outputs, jnp.pad(status, ((n_before, n_after), (0, more))))

        return run

    true_branch = branch(graphs[0], 0, n_rows[1])
    false_branch = branch(graphs[1], n_rows[0], 0)
    return lambda condition, *inputs: lax.cond(condition, true_branch, false_branch, *inputs)


@compute.register(JAXShapeTuple)
def _(op, node, replay):
    return [np.array([int(replay[v]) for v in node.inputs], node.outputs[0].type.dtype)]


@compute.register(RandomVariable)
def _(op, node, replay):
    """Draw what JAX has drawn, where the random state is one of JAX's."""
    values = [replay[v] for v in node.inputs]
    if not isinstance(values[0], dict):
        return compute.dispatch(object)(op, node, replay)
    state, size, *parameters = values
    size = size if size is None else tuple(int(n) for n in size)
    state, sample = jax_funcify(op, node=node)(dict(state), size, *parameters)
    return [state, np.asarray(sample, node.outputs[1].type.dtype)]
