"""Names and provenance of the variables of a call, inner graphs included."""

import re

from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.shape import Reshape, SpecifyShape

from theanoguard._provenance import lookup, lookup_inner
from theanoguard._pytensor import FinalizedOpFromGraph
from theanoguard.explain.naming import ALIASES, INDEXING, name_of, op_name
from theanoguard.explain.records import user_line

VIEWS = (DimShuffle, Reshape, SpecifyShape, *INDEXING)
"""Operations that only move elements."""


MOVES = ("squeeze", "dropDims", "expandDims", "dimShuffle", "reshape")
"""What rewrites leave in place of an operation that they have moved inside of a view."""


def role_of(variable):
    """Return whether a leaf is an input, a shared variable or a constant."""
    if isinstance(variable, Constant):
        return "constant"
    return "shared" if isinstance(variable, SharedVariable) else "input"


def lookup_in(scope, variable):
    """Return the provenance of a variable of a scope's graph, which may be an inner one."""
    if scope.parent is None:
        return lookup(scope.fgraph, variable)
    if isinstance(scope.node.op, FinalizedOpFromGraph) and variable.owner is not None:
        fused = lookup_in(scope.parent, scope.node.outputs[0]).inner
        if fused:
            return fused[scope.fgraph.toposort().index(variable.owner)]
    return lookup_inner(scope.node.op, scope.fgraph, variable)


def provenance_of(place, step=None):
    """Return the provenance of a place, or of a scalar operation fused into its node."""
    found = lookup_in(place.scope, place.variable)
    node = place.variable.owner
    if step is None or step.node is None or not found.inner:
        return found
    nodes = list(node.op.scalar_op.fgraph.toposort())
    return found.inner[nodes.index(step.node)]


def line_around(scope):
    """Return the user's line of the innermost inner graph that has one."""
    while scope.parent is not None:
        line = user_line(lookup_in(scope.parent, scope.node.outputs[0]))
        if line is not None:
            return line
        scope = scope.parent
    return None


def name_in(scope, variable, provenance):
    """Return the user's name of a variable or a short expression, and whether it is a name."""
    if provenance.own_name and provenance.name:
        return provenance.name, True

    def known(v):
        if v.owner is None:
            return _outer_name(scope, v)
        found = lookup_in(scope, v)
        if found.own_name:
            return found.name
        op = user_op(found, v.owner)
        rewritten = found.history and op != op_name(v.owner.op)
        return op if rewritten and not isinstance(v.owner.op, VIEWS) else None

    return name_of(variable, own=known), False


def _outer_name(scope, variable):
    """Return the name of an inner graph's input: that of what it was taken from."""
    if scope.parent is None:
        return None
    ran = scope.parent.replay.inner(scope.node)
    position = list(scope.fgraph.inputs).index(variable)
    outer = ran.outer_input(position)
    return "state" if outer is None else display_name(scope.parent, outer)


def display_name(scope, variable):
    """Return the user's name of a variable of a compiled graph, or a short expression."""
    if isinstance(variable, Constant):
        return name_of(variable)
    return name_in(scope, variable, lookup_in(scope, variable))[0]


def user_op(provenance, node):
    """Return the name of the user's operation that a node was rewritten from."""
    name = user_op_name(provenance.op) if provenance.op else ""
    return op_name(node.op) if not name or name in MOVES else name


def user_op_name(text):
    """Return the short name of an operation from PyTensor's text for it.

    Examples
    --------
    >>> user_op_name("Softmax{axis=(1,)}"), user_op_name("Blockwise{MatrixInverse, (m,m)->(m,m)}")
    ('softmax', 'matrixInverse')
    """
    head, _, inside = text.partition("{")
    if head == "Blockwise":
        return user_op_name(re.match(r"\w*", inside)[0])
    return ALIASES.get(head, head[:1].lower() + head[1:])
