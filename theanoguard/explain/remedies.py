"""Remedies that are tried on the failing call.

The graph as the user built it is changed in one place and evaluated again, with its gradient
where the function takes one.  A remedy that does not help is not mentioned.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytensor
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.graph.basic import Constant
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import ancestors, toposort
from pytensor.tensor.elemwise import CAReduce
from pytensor.tensor.random.op import RandomVariable

from theanoguard._graph import scalar_class, viewed
from theanoguard._provenance import source_line, source_place, stack_traces, tracker_of
from theanoguard._provenance.backward import gradient_frame
from theanoguard.explain import culprit
from theanoguard.explain.naming import number_text, op_name
from theanoguard.explain.replay import Kernels, NotRun, Replay, has_effects
from theanoguard.explain.source_edit import edited
from theanoguard.stable.patterns import PATTERNS, rebuild, squared_base

logger = logging.getLogger("theanoguard")

MAX_NODES = 1500
"""Nodes of a graph as built up to which remedies are tried."""

MAX_DIFFERENTIATED = 250
"""Nodes of a cost up to which its gradient is taken again, which costs a millisecond for each."""

MAX_ELEMENTS = 1_000_000
"""Elements of the inputs of a call up to which it is evaluated again."""


@dataclass(frozen=True)
class Remedy:
    """Another way to compute a variable of the graph as built.

    Parameters
    ----------
    text : str
        What to write, such as ``"log_softmax"``.
    variable : Variable
        What is computed otherwise.
    build : callable
        ``build(new)``, as :func:`theanoguard.stable.patterns.rebuild` takes it.
    operand, template : int, str
        Where the change is one to an operand of the operation: which, and what to write for it.
    """

    text: str
    variable: object
    build: Callable
    operand: int | None = None
    template: str = ""


@dataclass(frozen=True)
class Outcome:
    """What a remedy did for the failing call.

    Parameters
    ----------
    text : str
        A sentence for the user; empty if nothing helps.
    change : tuple of str
        The old and the new line of the user, or nothing.
    fact : str
        What is to be said of the derivative, where a gradient is bad.
    node : Apply or None
        The operation of the graph as built that the remedy was tried on.
    """

    text: str
    change: tuple[str, ...] = ()
    fact: str = ""
    node: Any = None


# ---------------------------------------------------------------- the table


@dataclass(frozen=True)
class _Guarded:
    """A change to one operand of an operation, with a small number to be chosen.

    `sizes` are tried in order: the first that helps changes the values least.
    """

    operand: int
    template: str
    make: Callable
    sizes: tuple = (0.0,)
    when: Callable = lambda values: True


def _at_least(x, size):
    return pt.maximum(x, np.asarray(size, x.type.dtype))


def _inside_one(x, size):
    return pt.clip(x, np.asarray(-1 + size, x.type.dtype), np.asarray(1 - size, x.type.dtype))


def _jitter(x, size):
    return x + np.asarray(size, x.type.dtype) * pt.eye(x.shape[-1], dtype=x.type.dtype)


def _not_zero(x, size):
    return pt.switch(pt.eq(x, 0), np.asarray(1, x.type.dtype), x)


def _positive(values):
    return bool(np.all(values[1] >= 0))


def _may_guard_base(values):
    """Whether a power has no value, or no derivative, at a base of 0 or below."""
    exponent = np.asarray(values[1])
    return bool(np.any((exponent != np.floor(exponent)) | (exponent < 1)))


def _has_negative(values):
    return not _positive(values)


_TINY = (1e-12, 1e-9, 1e-6, 1e-3)
_AT_LEAST = _Guarded(0, "{pt}.maximum({x}, {size})", _at_least, _TINY)
_CLIP = _Guarded(0, "{pt}.clip({x}, -1 + {size}, 1 - {size})", _inside_one, _TINY)
_CLIP_CLOSED = _Guarded(0, "{pt}.clip({x}, -1, 1)", _inside_one, (0.0,))
_JITTER = _Guarded(
    0, "{x} + {size} * {pt}.eye({x}.shape[-1])", _jitter, (1e-10, 1e-8, 1e-6, 1e-4, 1e-2)
)
_CAP = _Guarded(
    0,
    "{pt}.minimum({x}, {size})",
    lambda x, size: pt.minimum(x, np.asarray(size, x.type.dtype)),
    (20.0,),
)

GUARDED: dict[str, tuple[_Guarded, ...]] = {
    **dict.fromkeys(("log", "log2", "log10", "sqrt", "gammaln", "psi"), (_AT_LEAST,)),
    "pow": (replace(_AT_LEAST, when=_may_guard_base),),
    "true_div": (
        _Guarded(1, "{pt}.maximum({x}, {size})", _at_least, _TINY, _positive),
        _Guarded(1, "{pt}.switch({pt}.eq({x}, 0), 1, {x})", _not_zero, (0.0,), _has_negative),
    ),
    "reciprocal": (_AT_LEAST,),
    "log1p": (
        _Guarded(
            0,
            "{pt}.maximum({x}, -1 + {size})",
            lambda x, size: pt.maximum(x, np.asarray(-1 + size, x.type.dtype)),
            _TINY,
        ),
    ),
    **dict.fromkeys(("arccos", "arcsin"), (_CLIP_CLOSED, _CLIP)),
    **dict.fromkeys(("arctanh", "erfinv"), (_CLIP,)),
    "arccosh": (
        _Guarded(
            0,
            "{pt}.maximum({x}, 1 + {size})",
            lambda x, size: _at_least(x, 1 + size),
            (0.0, *_TINY),
        ),
    ),
    "arctan2": (
        _Guarded(
            1,
            "{pt}.switch({pt}.eq({x}, 0), {size}, {x})",
            lambda x, size: pt.switch(pt.eq(x, 0), np.asarray(size, x.type.dtype), x),
            _TINY,
        ),
    ),
    **dict.fromkeys(("exp", "exp2", "expm1", "sinh", "cosh"), (_CAP,)),
    **dict.fromkeys(
        ("softmax", "logSoftmax"),
        (_Guarded(0, "{pt}.maximum({x}, {size})", _at_least, (-1e9,)),),
    ),
    **dict.fromkeys(
        ("cholesky", "matrixInverse", "det", "sLogDet", "slogdet", "solve"), (_JITTER,)
    ),
}
"""Changes to an operand, by the operation of the user."""


class _NoBounds:
    """What a pattern is told of the values of a graph: nothing."""

    positive, zero, hi = False, True, np.inf

    def __getitem__(self, variable):
        return self


EXACT = ("log_softmax", "logsumexp", "-softplus", "softplus", "softmax", "norm")
"""Forms of :mod:`theanoguard.stable` that compute the same."""


SPELT = {"-softplus": "-pt.softplus(-x)", "softplus": "pt.softplus(x)"}
"""What to write for a form that :mod:`theanoguard.stable` has not under its name."""


def remedies_for(node, values, clients):
    """Yield what may help an operation of the graph as built, what changes least first.

    Parameters
    ----------
    node : Apply
    values : list
        Of its operands.
    clients : dict of Variable to list of Apply
        What reads a variable.

    Yields
    ------
    Remedy
    """
    for variable in _downstream(node, clients):
        match = PATTERNS.get(scalar_class(variable))
        found = match and match(variable, _NoBounds())
        if found and found[0] in EXACT:
            yield Remedy(SPELT.get(found[0], f"theanoguard.stable.{found[0]}"), variable, found[1])
    yield from _variances(node)
    for guarded in GUARDED.get(op_name(node.op), ()):
        if len(node.inputs) > guarded.operand and guarded.when(values):
            whole = node.inputs[guarded.operand].type.dtype[:3] in ("int", "uin")
            for size in (1,) if whole else guarded.sizes:
                yield _guarded(node, guarded, size)


def _guarded(node, guarded, size):
    def build(new):
        inputs = [new(v) for v in node.inputs]
        inputs[guarded.operand] = guarded.make(inputs[guarded.operand], size)
        return node.clone_with_new_inputs(inputs, strict=False).outputs[0]

    template = guarded.template.replace("{size}", f"{size:g}")
    return Remedy(template, node.outputs[0], build, guarded.operand, template)


def _downstream(node, clients, depth=4):
    """Return the outputs of a node and what is computed from them in a few operations."""
    found = level = [node.outputs[0]]
    for _ in range(depth):
        level = [client.outputs[0] for v in level for client in clients.get(v, ())][:20]
        found = found + level
    return list(dict.fromkeys(found))


def _variances(node, depth=4):
    """Yield the variance in place of a difference E[x^2] - E[x]^2 upstream of a node."""
    level = [node.outputs[0]]
    for _ in range(depth):
        for variable in level:
            x, axes = _as_variance(variable) or (None, None)
            if x is not None:
                yield Remedy(
                    "x.var()", variable, lambda new, x=x, axes=axes: pt.var(new(x), axis=axes)
                )
                return
        level = [i for v in level if v.owner is not None for i in v.owner.inputs]


def _as_variance(variable):
    """Return ``x`` and the axes where a variable is ``mean(x**2) - mean(x)**2``, else None."""
    if scalar_class(variable) is not ps.Sub:
        return None
    of_squares, squared = map(viewed, variable.owner.inputs)
    mean = squared_base(squared)
    sums = [_mean_of(viewed(v)) if v is not None else None for v in (of_squares, mean)]
    if None in sums:
        return None
    (squares, axes), (x, other_axes) = sums
    same = squared_base(squares) is x and axes == other_axes
    return (x, axes) if same else None


def _mean_of(variable):
    """Return what a mean is taken of, and its axes."""
    total = viewed(variable.owner.inputs[0]) if scalar_class(variable) is ps.TrueDiv else variable
    node = total.owner
    if node is None or not isinstance(node.op, CAReduce) or op_name(node.op) not in ("sum", "mean"):
        return None
    return node.inputs[0], node.op.axis


# ---------------------------------------------------------------- derivatives

DERIVATIVES = {
    "sqrt": ("sqrt at {0}", "1 / (2 * sqrt({0}))"),
    "log": ("log at {0}", "1 / {0}"),
    "log1p": ("log1p at {0}", "1 / (1 + {0})"),
    "arcsin": ("arcsin at {0}", "1 / sqrt(1 - {0}**2)"),
    "arccos": ("arccos at {0}", "-1 / sqrt(1 - {0}**2)"),
    "arctanh": ("arctanh at {0}", "1 / (1 - {0}**2)"),
    "arccosh": ("arccosh at {0}", "1 / sqrt({0}**2 - 1)"),
    "pow": ("x ** {1} at x = {0}", "{1} * {0} ** ({1} - 1)"),
    "true_div": ("x / y at y = {1}", "1 / {1} by x, and -x / {1}**2 by y"),
    "reciprocal": ("1 / x at {0}", "-1 / {0}**2"),
    "arctan2": ("arctan2(y, x) at y = {0}, x = {1}", "x / (x**2 + y**2) by y"),
    "exp": ("exp at {0}", "exp({0})"),
}
"""The derivative of an operation at its operands, as the user would write it."""

_EDGES = {
    "arcsin": lambda x: 1 - np.abs(x),
    "arccos": lambda x: 1 - np.abs(x),
    "arctanh": lambda x: 1 - np.abs(x),
    "arccosh": lambda x: np.abs(x - 1),
    "log1p": lambda x: np.abs(1 + x),
    "exp": lambda x: -x,
}
"""How far an operand is from where the derivative is infinite; by default from 0."""


def derivative_text(op, values):
    """Return a sentence on the derivative of an operation where it is worst, or an empty text.

    Examples
    --------
    >>> derivative_text("sqrt", [np.array([4.0, 0.0])])
    'The derivative of sqrt at 0.0 is 1 / (2 * sqrt(0.0)), which is not finite'
    """
    if op == "eigh":
        gaps = np.diff(np.linalg.eigvalsh(values[0]))
        gap = number_text(gaps.min()) if gaps.size else "0.0"
        return (
            "The derivative of eigh divides by the differences of the eigenvalues, and the"
            f" smallest is {gap}"
        )
    if op not in DERIVATIVES:
        return ""
    arrays = np.broadcast_arrays(*values)
    decides = arrays[1] if op == "true_div" else arrays[0]
    if op == "arctan2":
        decides = np.hypot(*arrays)
    if op == "pow" and np.any(arrays[0] < 0):
        base = number_text(arrays[0].min())
        return f"The derivative of x ** p by p is x ** p * log(x), which is NaN at x = {base}"
    at = int(np.argmin(_EDGES.get(op, np.abs)(np.ravel(decides))))
    if op == "pow" and np.ravel(arrays[1])[at] >= 1:
        return ""
    texts = [number_text(np.ravel(a)[at]) for a in arrays]
    where, formula = (part.format(*texts) for part in DERIVATIVES[op])
    return f"The derivative of {where} is {formula}, which is not finite"


# ---------------------------------------------------------------- the graph as built


class PureKernels(Kernels):
    """Kernels of operations that do nothing but compute.

    Nobody may notice a trial: it ends at an operation with side effects, and draws no numbers.
    """

    def run(self, node, inputs):
        if has_effects(node.op) or isinstance(node.op, RandomVariable):
            raise NotRun
        return super().run(node, inputs)


class AsBuilt:
    """The graph of a failing call as the user built it, with the values of the call.

    Parameters
    ----------
    fgraph : FunctionGraph
        The compiled graph, whose rewriting was tracked.
    inputs : mapping of Variable to value
        Of the call.
    """

    def __init__(self, fgraph, inputs):
        self.tracker = tracker_of(fgraph)
        self.outputs, self.copies = self.tracker.before()
        self._originals = {copy: node for node, copy in self.copies.items()}
        self._inputs = inputs
        self._kernels = PureKernels("py")
        self._replay = self._run(self.outputs)
        self.clients = {}
        for copy in self.copies.values():
            for v in copy.inputs:
                self.clients.setdefault(v, []).append(copy)

    def _run(self, outputs):
        leaves = [v for v in ancestors(outputs) if v.owner is None and not isinstance(v, Constant)]
        values = {v: self._inputs[v] if v in self._inputs else v.get_value() for v in leaves}
        return Replay(FunctionGraph(leaves, outputs, clone=False), values, self._kernels)

    def value(self, variable):
        """Return the value of a variable of the graph as built in the failing call."""
        return culprit.dense(self._replay.value(variable))

    def node_of(self, cause, is_bad):
        """Return the user's operation that a cause comes from, of a gradient the forward one.

        Parameters
        ----------
        cause : Cause
        is_bad : callable
            Whether a value holds what the guard reports.
        """
        if cause.backward:
            return self._forward_of_bad(is_bad)

        def fits(node):
            same = op_name(node.op) == cause.op or str(node.op) == cause.provenance.op
            here = source_place(node.outputs[0]) == cause.source
            return same + here, same  # both, then the operation alone, then the line alone

        found = sorted(
            (copy for node, copy in self.copies.items() if any(fits(node))),
            key=lambda copy: fits(self._originals[copy]),
            reverse=True,
        )
        bad = (copy for copy in found if is_bad(self.value(copy.outputs[0])))
        makers = (self._maker(copy, is_bad) for copy in bad)
        return next((m for m in makers if not made_by_grad(self._originals[m])), None)

    def _maker(self, copy, is_bad):
        """Return the first operation upstream that makes something bad of what is not."""
        while True:
            inputs = (v for v in copy.inputs if v.owner is not None)
            bad = next((v for v in inputs if is_bad(self.value(v))), None)
            if bad is None:
                return copy
            copy = bad.owner

    def _forward_of_bad(self, is_bad):
        """Return the operation whose derivative is the first bad value of a gradient."""
        for copy in toposort(self.outputs):
            node = self._originals[copy]
            if made_by_grad(node) and any(is_bad(self.value(v)) for v in copy.outputs):
                forward = self.tracker.differentiated_by(node)
                known = forward is not None and forward.owner in self.copies
                return self.copies[forward.owner] if known else None
        return None

    def original(self, copy):
        """Return the node of the user's graph that a copy stands for."""
        return self._originals[copy]

    def costs(self):
        """Return what gradients were taken of."""
        return [
            v if v.owner is None else self.copies[v.owner].outputs[v.index]
            for v in self.tracker.costs()
        ]

    def attempt(self, remedy, is_bad, gradient):
        """Return what the call gives with a remedy, as text; None if that is bad as well.

        Parameters
        ----------
        remedy : Remedy
        is_bad : callable
        gradient : bool
            Whether the gradient of what the function differentiates must be finite.
        """
        costs = [v for v in self.costs() if depends_on(v, remedy.variable)]
        outputs = costs or [v for v in self.outputs if depends_on(v, remedy.variable)]
        if not outputs or (gradient and not costs):
            return None
        new = rebuild(outputs, {remedy.variable: remedy.build})
        slopes = []
        if costs and len(list(ancestors(new))) <= MAX_DIFFERENTIATED:
            leaves = [v for v in ancestors(new) if is_differentiable(v)]
            slopes = pytensor.grad(sum(v.sum() for v in new), leaves, disconnected_inputs="ignore")
        elif gradient:
            return None
        run = self._run([*new, *slopes])
        values = run.values(new)
        if any(map(is_bad, values)) or any(map(is_bad, run.values(slopes))):
            return None
        single = np.size(values[0]) == 1
        text = number_text(np.asarray(values[0]).item()) if single else "finite values"
        return f"{text} and a finite gradient" if slopes else text


def made_by_grad(node):
    """Return whether ``grad`` made a node."""
    return gradient_frame(stack_traces(node.outputs[0])) is not None


def is_differentiable(variable):
    """Return whether a gradient may be taken by a variable: a leaf that holds real numbers."""
    leaf = variable.owner is None and not isinstance(variable, Constant)
    return leaf and getattr(variable.type, "dtype", "").startswith("float")


def depends_on(variable, other):
    """Return whether a variable is computed from another."""
    return any(v is other for v in ancestors([variable]))


def try_remedies(trip, cause, mask):
    """Try what may help on the call that failed.

    Parameters
    ----------
    trip : Trip
    cause : Cause
    mask : callable
        From an array to the mask of its bad elements.

    Returns
    -------
    Outcome or None
        What helps; an empty one if nothing does, None where nothing could be tried.
    """
    built = as_built(trip)
    if built is None or cause.path:
        return None

    def is_bad(value):
        value = np.asarray(culprit.dense(value))
        return culprit.is_numeric(value) and bool(
            np.any(mask(value)) or np.any(culprit.not_finite(value))
        )

    tried = None
    try:
        node = built.node_of(cause, is_bad)
        if node is None:
            return None
        values = [built.value(v) for v in node.inputs]
        op = op_name(node.op)
        fact = derivative_text(op, values) if cause.backward else ""
        original = built.original(node)
        tried = Outcome("", fact=fact, node=original)
        attempted = bool(fact)
        for remedy in remedies_for(node, values, built.clients):
            attempted = True
            got = built.attempt(remedy, is_bad, cause.backward)
            if got is not None:
                return replace(_outcome(remedy, got, original, op, fact), node=original)
        if not attempted:
            return replace(tried, text=None)
    except NotRun:  # the general advice stays, unless the derivative says more
        if tried is not None and not tried.fact:
            return replace(tried, text=None)
    except Exception as error:  # whatever an op of the user's does when it is run or differentiated
        logger.debug("a remedy could not be tried: %r", error)
    return tried


def as_built(trip):
    """Return the graph of a failing call as it was built, None where it is not known or large."""
    tracker = tracker_of(trip.fgraph)
    if tracker is None or len(tracker.original) > MAX_NODES:
        return None
    if sum(np.size(v) for v in trip.inputs.values()) > MAX_ELEMENTS:
        return None
    return AsBuilt(trip.fgraph, trip.inputs)


def _outcome(remedy, got, node, op, fact):
    source = source_line(remedy.variable) or source_line(node.outputs[0])
    change, what = (), remedy.text
    if remedy.operand is not None:
        found = edited(source.text, op, remedy.operand, remedy.template) if source else None
        if found is None:
            what = f"{remedy.template.format(pt='pt', x='x')} for the argument x of {op}"
        else:
            new_argument, line = found
            what, change = new_argument, (source.text.partition("  #")[0], line)
    where = f" on line {source.line}" if source is not None else ""
    return Outcome(f"With {what}{where} this call gives {got}.", change, fact)
