"""Compute the logarithm of an expression from the logarithms of its parts.

``log(sum(p * exp(x)))`` is -inf where ``exp(x)`` underflows.  ``logsumexp(log(p) + x)`` is not.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytensor.scalar as ps
import pytensor.scalar.math as psm
import pytensor.tensor as pt
from pytensor.graph.replace import clone_replace
from pytensor.scan.op import Scan
from pytensor.tensor.basic import ExtractDiag, Join, MakeVector
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import CAReduce
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.math import Dot
from pytensor.tensor.special import Softmax

from theanoguard._graph import VIEWS, constant_number, is_buffer, scalar_class, scan_of
from theanoguard._pytensor import thawed_graph
from theanoguard.explain.advice.exact import LOGARITHMS, as_softmax
from theanoguard.explain.advice.source_edit import bare
from theanoguard.explain.facts.naming import INDEXING, op_name, shown_op
from theanoguard.stable.forms import logsumexp
from theanoguard.stable.patterns import rebuild

MAX_VARIABLES = 60
"""Largest number of variables of an expression whose logarithms are computed from their parts."""


@dataclass(frozen=True)
class InLogs:
    """The logarithm of a variable, computed without the variable.

    Parameters
    ----------
    build : callable
        ``build(new)``, as :func:`theanoguard.stable.patterns.rebuild` takes it.
    parts : tuple of (str, Variable)
        What is computed in place of which variable.
    """

    build: Callable
    parts: tuple = ()


def in_logs(variable):
    """Return the logarithm of a variable of the graph as built, from the logarithms of its parts.

    Parameters
    ----------
    variable : Variable

    Returns
    -------
    InLogs
        Its `parts` are empty if nothing can be computed otherwise.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> x, w = pt.dvectors("x", "w")
    >>> [what for what, _ in in_logs((w * pt.exp(-x)).sum()).parts]
    ['logsumexp for sum', '+ for *', 'the exponent for exp']
    """
    return _in_logs(variable, {})


def _in_logs(variable, known):
    """Return what :func:`in_logs` returns; the logarithms of some variables are known."""

    def log(v):
        if v not in known:
            known[v] = InLogs(lambda new: pt.log(new(v)))
            rule = _rule_of(v) if len(known) <= MAX_VARIABLES else None
            found = rule and rule(v, log)
            if found is not None:
                known[v] = InLogs(_once(found.build), tuple(dict.fromkeys(found.parts)))
        return known[v]

    return log(variable)


def _once(build):
    """Return a builder that builds a variable only once for each graph."""
    last = [None, None]

    def built(new):
        if last[0] is not new:
            last[:] = new, build(new)
        return last[1]

    return built


def _rule_of(variable):
    op = getattr(variable.owner, "op", None)
    op = op.core_op if isinstance(op, Blockwise) and isinstance(op.core_op, Dot) else op
    rules = (rule for kind, rule in _OF_OPS.items() if isinstance(op, kind))
    return _OF_SCALARS.get(scalar_class(variable)) or next(rules, None)


def _joined(variable, what, build, *operands):
    """Return a form computed from the logarithms of some operands."""
    own = ((f"{what} for {_shown(variable)}", variable),) if what else ()
    parts = (*own, *(part for operand in operands for part in operand.parts))
    return InLogs(lambda new: build(*(operand.build(new) for operand in operands)), parts)


def _direct(variable, what, build):
    """Return a form computed from the first operand of the node of a variable."""
    (x, *_) = variable.owner.inputs
    return InLogs(lambda new: build(new(x)), ((f"{what} for {_shown(variable)}", variable),))


def _shown(variable):
    return _SIGNS.get(scalar_class(variable)) or shown_op(op_name(variable.owner.op))


_SIGNS = {ps.Mul: "*", ps.TrueDiv: "/", ps.Add: "+", ps.Sub: "-", ps.Pow: "**"}


def _product(variable, log):
    factors = [log(v) for v in variable.owner.inputs]
    return _joined(variable, "+", lambda *logs: sum(logs[1:], logs[0]), *factors)


def _quotient(variable, log):
    matched = as_softmax(variable)
    if matched is not None:
        x, axis = matched
        part = ("log_softmax for the quotient", variable)
        return InLogs(lambda new: pt.special.log_softmax(new(x), axis=axis), (part,))
    return _joined(variable, "-", lambda a, b: a - b, *map(log, variable.owner.inputs))


def _sum_of_two(variable, log):
    terms = [log(v) for v in variable.owner.inputs]
    if len(terms) != 2 or not any(term.parts for term in terms):
        return None
    return _joined(variable, "logaddexp", _logaddexp, *terms)


def _logaddexp(a, b):
    return pt.maximum(a, b) + pt.softplus(-pt.abs(a - b))


def _difference(variable, log):
    """log(a - b) from the logarithms of a and b, which are positive."""
    one, x = variable.owner.inputs
    if constant_number(one) != 1:
        terms = log(one), log(x)
        if not all(term.parts for term in terms):
            return None
        return _joined(variable, "log1mexp", lambda a, b: a + pt.log1mexp(b - a), *terms)
    if scalar_class(x) is psm.Sigmoid:
        (z,) = x.owner.inputs
        return InLogs(lambda new: -pt.softplus(new(z)), (("-softplus for 1 - sigmoid", variable),))
    if scalar_class(x) is ps.Exp:
        (z,) = x.owner.inputs
        return InLogs(lambda new: pt.log1mexp(new(z)), (("log1mexp for 1 - exp", variable),))
    return None


def _chosen(variable, log):
    condition, *branches = variable.owner.inputs
    terms = [log(v) for v in branches]
    if not any(term.parts for term in terms):
        return None
    chosen = InLogs(lambda new: new(condition))
    return _joined(variable, "", pt.switch, chosen, *terms)


def _power(variable, log):
    base, exponent = variable.owner.inputs
    return _joined(variable, "*", lambda x, p: p * x, log(base), InLogs(lambda new: new(exponent)))


def _root(factor, what=""):
    def rule(variable, log):
        return _joined(variable, what, lambda x: factor * x, log(variable.owner.inputs[0]))

    return rule


def _of_sinh(x):  # for x > 0
    return x + pt.log(-pt.expm1(-2 * x)) - np.asarray(np.log(2), x.type.dtype)


def _of_cosh(x):
    x = pt.abs(x)
    return x + pt.softplus(-2 * x) - np.asarray(np.log(2), x.type.dtype)


def _reduction(variable, log):
    node = variable.owner
    axes, inner = node.op.axis, log(node.inputs[0])
    if isinstance(node.op.scalar_op, ps.Add):
        return _joined(variable, "logsumexp", lambda v: logsumexp(v, axes), inner)
    if isinstance(node.op.scalar_op, ps.Mul):
        return _joined(variable, "the sum of logs", lambda v: v.sum(axis=axes), inner)
    return None


def _cumulated(variable, log):
    node = variable.owner
    inner, axis = log(node.inputs[0]), node.op.axis
    if node.op.mode == "mul":
        return _joined(variable, "cumsum of logs", lambda v: pt.cumsum(v, axis=axis), inner)

    if variable.type.ndim != 1:
        return None

    def build(v):
        rows = pt.arange(v.shape[0])
        some = pt.switch(rows <= rows[:, None], v, np.asarray(-np.inf, v.type.dtype))
        return logsumexp(some, axis=1)

    return _joined(variable, "logsumexp(where(tri(n, n), x, -inf), axis=1)", build, inner)


def _matrix_product(variable, log):
    """A product with a vector, as a matrix with one row or column: it has few terms."""
    left, right = variable.owner.inputs
    if left.ndim != 2 or right.ndim != 2 or 1 not in (left.type.shape[0], right.type.shape[1]):
        return None

    def build(a, b):
        return logsumexp(a[:, :, None] + b[None, :, :], axis=1)

    return _joined(variable, "logsumexp", build, log(left), log(right))


def _moved(variable, log):
    """Views and indexing: the logarithm is moved in the same way."""
    node = variable.owner
    inner = log(node.inputs[0])
    if not inner.parts:
        return None

    def build(new):
        inputs = [inner.build(new), *map(new, node.inputs[1:])]
        return node.clone_with_new_inputs(inputs, strict=False).outputs[0]

    return InLogs(build, inner.parts)


def _put_together(variable, log):
    node = variable.owner
    first = isinstance(node.op, Join)  # (the first input of a Join may be the axis)
    arrays = [v for v in node.inputs if not (first and v is node.inputs[0] and v.ndim == 0)]
    terms = {v: log(v) for v in arrays}
    parts = tuple(part for term in terms.values() for part in term.parts)
    if not parts:
        return None

    def build(new):
        inputs = [terms[v].build(new) if v in terms else new(v) for v in node.inputs]
        return node.clone_with_new_inputs(inputs, strict=False).outputs[0]

    return InLogs(build, parts)


def _state(variable, log):
    """The states of a loop: a loop computes their logarithms."""
    node = variable.owner
    op, graph = node.op, thawed_graph(node.op)
    states = op.outer_sitsot_outs(node.outputs)
    if variable not in states:
        return None
    k = states.index(variable)
    state, after = op.inner_sitsot(graph.inputs)[k], op.inner_sitsot_outs(graph.outputs)[k]
    buffer = op.outer_sitsot(node.inputs)[k]
    if not is_buffer(buffer):
        return None
    own, part = state.type(), ("logarithms for the state of the loop", variable)
    inside = _in_logs(after, {state: InLogs(lambda new: own, (part,))})
    first = log(buffer.owner.inputs[1])
    if not inside.parts:
        return None

    def build(new):
        outputs = list(graph.outputs)
        before = (*op.inner_mitmot_outs(outputs), *op.inner_mitsot_outs(outputs))
        outputs[len(before) + k] = last = pt.tensor_copy(after)  # (other outputs may read `after`)
        outputs = clone_replace(rebuild(outputs, {last: inside.build}), {state: pt.exp(own)})
        inputs = [own if v is state else v for v in graph.inputs]
        started = buffer.owner.clone_with_new_inputs(
            [new(buffer.owner.inputs[0]), first.build(new), *map(new, buffer.owner.inputs[2:])]
        )
        outer = [started.outputs[0] if v is buffer else new(v) for v in node.inputs]
        return scan_of(op, inputs, outputs).make_node(*outer).outputs[variable.index]

    return InLogs(build, (part, *inside.parts, *first.parts))


_OF_SCALARS = {
    **{
        kind: lambda v, log, known=known: _direct(
            v, bare(known.template.replace("{pt}.", "").format(x="x")), known.build
        )
        for kind, known in LOGARITHMS.items()
    },
    ps.Exp: lambda v, log: _direct(v, "the exponent", lambda x: x),
    psm.Sigmoid: lambda v, log: _direct(v, "-softplus(-x)", lambda x: -pt.softplus(-x)),
    ps.Sinh: lambda v, log: _direct(v, "x + log(-expm1(-2 * x)) - log(2)", _of_sinh),
    ps.Cosh: lambda v, log: _direct(v, "abs(x) + softplus(-2 * abs(x)) - log(2)", _of_cosh),
    ps.Mul: _product,
    ps.TrueDiv: _quotient,
    ps.Add: _sum_of_two,
    ps.Sub: _difference,
    ps.Switch: _chosen,
    ps.Pow: _power,
    ps.Sqr: _root(2, "*"),
    ps.Sqrt: _root(0.5),
}
"""The rules, by the scalar operation that computes a variable."""

_OF_OPS = {
    Softmax: lambda v, log: _direct(
        v, "log_softmax", lambda x: pt.special.log_softmax(x, axis=v.owner.op.axis)
    ),
    CAReduce: _reduction,
    CumOp: _cumulated,
    Dot: _matrix_product,
    (*VIEWS, *INDEXING, ExtractDiag): _moved,
    (Join, MakeVector): _put_together,
    Scan: _state,
}
"""The rules for other operations."""
