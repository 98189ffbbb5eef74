"""Remedies that are tried on the failing call.

The graph as the user built it is changed in one place and evaluated again.  If the function
computes a gradient, the gradient is evaluated as well.  A remedy that does not help is not shown.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytensor.tensor as pt

from theanoguard._provenance import source_place
from theanoguard._pytensor import without_traces
from theanoguard.explain.derivatives import derivative_text
from theanoguard.explain.exact import exact_forms
from theanoguard.explain.naming import number_text, op_name, shown_op
from theanoguard.explain.replay import NotRun
from theanoguard.explain.source_edit import edited, replaced
from theanoguard.explain.trials import as_built

logger = logging.getLogger("theanoguard")


@dataclass(frozen=True)
class Remedy:
    """Another way to compute a variable of the graph as built.

    Parameters
    ----------
    text : str
        What to write, such as ``"log_softmax(h, axis=1)"``.
    builders : dict of Variable to callable
        The variables that are computed differently, as
        :func:`theanoguard.stable.patterns.rebuild` takes them.
    operand : int or None
        Position of the operand that the remedy changes, if it changes only one operand.  `text`
        then has ``{x}`` for the operand and ``{pt}`` for PyTensor's module.
    """

    text: str
    builders: dict = field(repr=False)
    operand: int | None = None


@dataclass(frozen=True)
class Outcome:
    """The result of trying remedies.

    Parameters
    ----------
    text : str or None
        A sentence for the user; empty if nothing helps, None if nothing was tried.
    change : tuple of str
        The user's old and new line, or nothing.
    fact : str
        A sentence on the derivative, if a gradient is bad.
    node : Apply or None
        The operation of the graph as built on which remedies were tried.
    """

    text: str | None
    change: tuple[str, ...] = ()
    fact: str = ""
    node: Any = None


# ---------------------------------------------------------------- the table


@dataclass(frozen=True)
class _Guarded:
    """A change to one operand of an operation, with a small number such as an eps.

    `sizes` are tried in order, from the smallest change of the values to the largest.
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
    """Whether a power is undefined, or has no derivative, at a base of 0 or below."""
    exponent = np.asarray(values[1])
    return bool(np.any((exponent != np.floor(exponent)) | (exponent < 1)))


def _is_even(values):
    """Whether a power has a negative base, but is equal for the base's absolute value."""
    base, exponent = map(np.asarray, values)
    return bool(np.any(base < 0) and np.all(exponent % 2 == 0))


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
    (700.0, 80.0, 20.0),
)

WITH_JITTER = ("cholesky", "matrixInverse", "det", "sLogDet", "slogdet", "solve")
"""Operations on a matrix that may be singular."""

GUARDED: dict[str, tuple[_Guarded, ...]] = {
    **dict.fromkeys(("log", "log2", "log10", "sqrt", "gammaln", "psi"), (_AT_LEAST,)),
    "pow": (
        _Guarded(0, "abs({x})", lambda x, size: abs(x), when=_is_even),
        replace(_AT_LEAST, when=_may_guard_base),
    ),
    "eigh": (
        _Guarded(
            0,
            "{x} + {size} * {pt}.diag({pt}.arange({x}.shape[0]))",
            lambda x, size: x + np.asarray(size, x.type.dtype) * pt.diag(pt.arange(x.shape[0])),
            (1e-8, 1e-6, 1e-4),
        ),
    ),
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
    **dict.fromkeys(WITH_JITTER, (_JITTER,)),
}
"""Changes to an operand, by the user's operation."""


def remedies_for(spot, underflowed=False):
    """Yield possible remedies for an operation of the graph as built, the smallest change first.

    Parameters
    ----------
    spot : Spot
    underflowed : bool
        Whether an operand has underflowed.  A bound on that operand would hide the underflow.

    Yields
    ------
    Remedy
    """
    node, values = spot.node, spot.values
    for variable in _around(spot):
        for form in exact_forms(variable):
            name = spot.name_of(form.x)
            text = form.template.replace("{x}", _inside(name, form.template)) if name else ""
            yield Remedy(text or form.template, {variable: form.build})
    if underflowed:
        return
    for guarded in GUARDED.get(op_name(node.op), ()):
        if len(node.inputs) > guarded.operand and guarded.when(values):
            whole = node.inputs[guarded.operand].type.dtype[:3] in ("int", "uin")
            for size in (1,) if whole else guarded.sizes:
                yield _guarded(spot, guarded, size)


def _inside(name, template):
    """Return a name for insertion into a template, in parentheses if that is needed."""
    plain = all(c.isalnum() or c in "_.[](), :" for c in name)
    return name if plain or "{x}." not in template and "{x} " not in template else f"({name})"


def _guarded(spot, guarded, size):
    def builder(node):
        def build(new):
            inputs = [new(v) for v in node.inputs]
            inputs[guarded.operand] = guarded.make(inputs[guarded.operand], size)
            return node.clone_with_new_inputs(inputs, strict=False).outputs[0]

        return build

    template = guarded.template.replace("{size}", _number(size))
    builders = {node.outputs[0]: builder(node) for node in spot.nodes}
    return Remedy(template, builders, guarded.operand)


def _number(size):
    """Return a number as code.

    Examples
    --------
    >>> _number(1e-9), _number(0.001), _number(20.0)
    ('1e-9', '0.001', '20')
    """
    return f"{size:g}".replace("e-0", "e-").replace("e+0", "e")


def _around(spot, depth=4):
    """Return the outputs of a spot, and the variables a few steps down- and upstream of them."""
    down = up = list(spot.node.outputs)
    found = down[:]
    for _ in range(depth):
        down = [c.outputs[0] for v in down for c in spot.clients.get(v, ())][:20]
        up = [i for v in up if v.owner is not None for i in v.owner.inputs][:20]
        found += down + up
    return list(dict.fromkeys(found))


UNDERFLOWED = ("probability-underflow", "softmax-then-log")
"""Hints for operands that have underflowed to 0."""


def try_remedies(trip, cause, mask):
    """Try possible remedies on the call that failed.

    Parameters
    ----------
    trip : Trip
    cause : Cause
    mask : callable
        Returns the mask of the bad elements of an array.

    Returns
    -------
    Outcome or None
        The remedy that helps.  Its text is empty if nothing helps.  None if nothing could be
        tried.
    """
    tried = None
    try:
        with without_traces():
            built = as_built(trip, mask)
            for spot in built.spots_of(cause) if built else ():
                found = _tried_on(built, spot, cause)
                if found.change or found.text:
                    return found
                tried = tried or found
            if built and tried is None:
                return _finite_as_written(built, cause)
    except NotRun:  # the values need an operation with side effects
        pass
    except Exception as error:  # a user-defined op may fail when it is run or differentiated
        logger.debug("a remedy could not be tried: %r", error)
    return tried


FOLDS_SUMS = "local_add_canonizer"
"""PyTensor's rewrite that adds up the constants of a sum."""


def _finite_as_written(built, cause):
    """Return the rewrite that made a bad value, if the graph as written is finite; else None."""
    found = built.finite_as_written(cause)
    if found is None:
        return None
    spot, position = found
    name = spot.name_of(spot.node.inputs[position]) or "the operand"
    value = built.least(spot.values[position])
    source = source_place(spot.node.outputs[0])
    where = f" on line {source.line}" if source is not None else ""
    constant = built.folded_away(spot.node.inputs[position])
    if constant is None:
        names = [step.reason for step in cause.provenance.history]
        changed = f"PyTensor's rewrite {names[0]} changed it" if names else "a rewrite changed it"
    else:
        changed = f"`{constant}` was folded away by {FOLDS_SUMS}, which puts constants together"
    text = f"As it is written, {name}{where} is {number_text(value)}, and the result is finite;"
    text += f" {changed}."
    if constant is not None:
        text += " A maximum(x, eps) in its place stays."
    return Outcome(text, node=built.original(spot))


def _tried_on(built, spot, cause):
    """Return the :class:`Outcome` of the remedies for one operation."""
    op = op_name(spot.node.op)
    fact = derivative_text(op, spot.values) if cause.backward else ""
    outcome = Outcome("" if fact else None, fact=fact, node=built.original(spot))
    underflowed = cause.hint.key in UNDERFLOWED
    for remedy in remedies_for(spot, underflowed):
        got = built.attempt(spot, remedy, cause.backward)
        if got is not None:
            return replace(outcome, **_outcome(spot, remedy, got, cause))
        outcome = replace(outcome, text=None if underflowed else "")
    if outcome.text == "" and op in WITH_JITTER:
        return replace(outcome, text="A jitter of up to 0.01 on its diagonal does not help.")
    return outcome


def _outcome(spot, remedy, got, cause):
    """Return a sentence on a remedy that helps, and the user's line with that change."""
    variables = list(remedy.builders)
    places = [place for v in variables if (place := source_place(v)) is not None]
    source = places[0] if places else source_place(spot.node.outputs[0])
    if source is None and op_name(spot.node.op) == cause.op:  # (PyMC's copies have no traces)
        source = cause.source
        places = [source] if source is not None else []
    where = f" on line {source.line}" if source is not None else ""
    here = [p.marked for p in places if (p.file, p.line) == (source.file, source.line)]
    change, what = (), None
    if source is not None and remedy.operand is None:
        found = replaced(source.text, here[0] if here else None, remedy.text)
    elif source is not None:
        op = op_name(spot.node.op)
        found = edited(source.text, op, remedy.operand, remedy.text, here)
    else:
        found = None
    if found is not None:
        what, line = found
        change = source.text.partition("  #")[0], line
    elif remedy.operand is None:
        what = remedy.text.format(pt="pt", x="x")
    else:
        name = spot.name_of(spot.node.inputs[remedy.operand])
        what = remedy.text.format(pt="pt", x=name or "x")
        if not name:
            what += f" for the argument x of {shown_op(op_name(spot.node.op))}"
    return {"text": f"With {what}{where} {got}.", "change": change}
