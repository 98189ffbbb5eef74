"""Remedies that are tried on the failing call.

The graph as the user built it is changed in one place and evaluated again.  If the function
computes a gradient, the gradient is evaluated as well.  A remedy that does not help is not shown.
"""

import itertools
import logging
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.extra_ops import CumOp

from theanoguard._evaluate.replay import NotRun
from theanoguard._graph import VIEWS, constant_number, scalar_class, viewed
from theanoguard._provenance import lookup, module_of, source_place
from theanoguard._provenance.designating import is_written
from theanoguard._provenance.places import short_file
from theanoguard._pytensor import without_traces
from theanoguard.explain.advice.exact import exact_forms, log_of_sigmoid
from theanoguard.explain.advice.hints import GROWS, UNDERFLOWED
from theanoguard.explain.advice.logarithms import in_logs
from theanoguard.explain.advice.source_edit import (
    assigned,
    bare,
    edited,
    replaced,
    rewritten,
    with_keyword,
)
from theanoguard.explain.advice.trials import NARROW, as_built, made_by_grad
from theanoguard.explain.facts.derivatives import derivative_text
from theanoguard.explain.facts.labels import role_of
from theanoguard.explain.facts.naming import name_of, number_text, op_name, shown_op
from theanoguard.explain.facts.restated import in_forward_pass, unmoved
from theanoguard.explain.records import ROLES, called_function
from theanoguard.stable.patterns import squared_base

logger = logging.getLogger("theanoguard")


@dataclass(frozen=True)
class Remedy:
    """Another way to compute a variable of the graph as built.

    Parameters
    ----------
    spot : Spot
        The operation that the remedy is for.
    text : str
        What to write, such as ``"log_softmax(h, axis=1)"``; with `in_words`, what to compute.
    builders : dict of Variable to callable
        The variables that are computed differently, as
        :func:`theanoguard.stable.patterns.rebuild` takes them.
    operand : int or None
        Position of the operand that the remedy changes, if it changes only one operand.  `text`
        then has ``{x}`` for the operand and ``{pt}`` for PyTensor's module.
    in_words : bool
        Whether `text` is no code, because the remedy changes several lines.
    change : tuple of str
        With `in_words`, the user's old and new line, or nothing.
    keyword : str
        An argument with its value, such as ``"jitter=1e-10"``, with which a function of a library
        does the same.
    """

    spot: Any = field(repr=False)
    text: str
    builders: dict = field(repr=False)
    operand: int | None = None
    in_words: bool = False
    change: tuple[str, ...] = ()
    keyword: str = ""


@dataclass(frozen=True)
class Outcome:
    """The result of trying remedies.

    Parameters
    ----------
    text : str or None
        A sentence for the user; empty if nothing helps, None if nothing was tried.
    change : tuple of str
        The user's old and new lines, in turn, or nothing.
    fact : str
        A sentence on the derivative, if a gradient is bad.
    node : Apply or None
        The operation of the graph as built on which remedies were tried.
    spots : tuple of Spot
        The operations of the graph as built that made the bad values.
    cause : Cause or None
        The cause in the forward pass, if it was taken for one in the gradient.
    lines : tuple of SourceLine
        The lines of all forward operations whose derivative may be the bad value, if several may
        be.
    """

    text: str | None
    change: tuple[str, ...] = ()
    fact: str = ""
    node: Any = None
    spots: tuple = ()
    cause: Any = None
    lines: tuple = ()

    @property
    def helps(self):
        """Whether a remedy makes the call sound."""
        return bool(self.text) and self.text not in _NO_HELP.values()


# ---------------------------------------------------------------- the table


@dataclass(frozen=True)
class _Guarded:
    """A change to one operand of an operation, with a small number such as an eps.

    `sizes` are tried in order, from the smallest change of the values to the largest.  A function
    of a library that applies the operation may take the number as an argument named `keyword`.
    """

    operand: int
    template: str
    make: Callable
    sizes: tuple = (0.0,)
    when: Callable = lambda values: True
    keyword: str = ""

    @property
    def function(self):
        """The function that the template calls, such as ``"maximum"``; else an empty text."""
        called, _, _ = self.template.partition("({x}, ")
        return called.removeprefix("{pt}.")


def _at_least(x, size):
    return pt.maximum(x, np.asarray(size, x.type.dtype))


def _inside_one(x, size):
    return pt.clip(x, np.asarray(-1 + size, x.type.dtype), np.asarray(1 - size, x.type.dtype))


def _jitter(x, size):
    return x + np.asarray(size, x.type.dtype) * pt.eye(x.shape[-1], dtype=x.type.dtype)


def _not_zero(x, size):
    return pt.switch(pt.eq(x, 0), np.asarray(1, x.type.dtype), x)


def _positive(values):
    return not np.any(values[1] < 0)  # (a NaN may come from the operation that fails first)


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
    0,
    "{x} + {size} * {pt}.eye({x}.shape[-1])",
    _jitter,
    (1e-10, 1e-8, 1e-6, 1e-4, 1e-2),
    keyword="jitter",
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
    "sub": (
        _Guarded(
            1,
            "{pt}.switch({pt}.isinf({x}), 0, {x})",
            lambda x, size: pt.switch(pt.isinf(x), np.asarray(0, x.type.dtype), x),
            when=lambda values: all(bool(np.any(np.isinf(v))) for v in values),
        ),
    ),
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
    yield from _from_logits(spot)
    for variable in _around(spot):
        for form in exact_forms(variable):
            name = spot.name_in(form.x, variable)
            text = form.template.replace("{x}", _inside(name, form.template)) if name else ""
            yield Remedy(spot, text or form.template, _forms_like(form, variable, spot))
    for variable in _around(spot):
        yield from _in_logs(spot, variable)
    if underflowed:
        return
    yield from _from_one(spot)
    yield from _finite_masks(spot)
    yield from guards_of(spot)
    if op_name(spot.node.op) in ("true_div", "reciprocal"):
        root = viewed(spot.node.inputs[-1]).owner
        if root is not None and op_name(root.op) in ("sqrt", "pow"):
            yield from guards_of(spot.at(root))
    yield from _throughout(spot)


_LOWEST = -1e9
"""What takes the place of -inf in a mask."""


def _from_logits(spot):
    """Yield ``log(p)`` and ``log(1 - p)`` from z together, where p is sigmoid(z)."""
    own = log_of_sigmoid(spot.node.outputs[0])
    if own is None:
        return
    users = [node for node in spot.all_nodes if not made_by_grad(node)]
    found = [log for node in users if (log := log_of_sigmoid(node.outputs[0])) is not None]
    found = [log for log in found if log.z is own.z]
    if len(found) == 1 and not own.views:
        return  # (an exact form of one operation)
    name, pt_ = spot.name_of(own.z), _module(spot)
    z = name if name and name.isidentifier() else "z"
    written = {}
    for log in sorted(found, key=lambda log: not log.rises):
        known = spot.name_of(log.variable) or ("log(p)" if log.rises else "log(1 - p)")
        written[f"{pt_}.softplus({'-' * log.rises}{z})"] = known
    text = listed([f"-{new} in place of {old}" for new, old in written.items()])
    shape = f"the shape of {spot.name_of(own.variable) or 'p'}" if own.views else ""
    if z == name:
        text += f", where {z} has {shape}," if shape else ""
    else:
        text += f", where z is {name or 'what sigmoid gets'}{f' in {shape}' if shape else ''},"
    yield Remedy(spot, text, {log.variable: log.build for log in found}, in_words=True)


_INSIDE_UNIT = _Guarded(
    0,
    "{pt}.clip({x}, {size}, 1 - {size})",
    lambda x, size: pt.clip(x, np.asarray(size, x.type.dtype), np.asarray(1 - size, x.type.dtype)),
    _TINY,
)

MAX_SHARED = 3
"""Largest number of operands for each of which a bound is tried."""


def _on_shared_operands(spot, underflowed):
    """Yield bounds on an operand that several operations read, such as p of log(p) and log(1 - p).

    Each bound holds wherever the operand is read.
    """
    found = {}
    for variable in _upstream(spot.node):
        name = spot.name_of(variable)
        readers = [c for c in spot.clients.get(variable, ()) if not made_by_grad(c)]
        if len(readers) < 2 or not name or not name.isidentifier() or variable in found:
            continue
        guarded = _bound_for(spot, variable, underflowed)
        if guarded is not None:
            found[variable] = (name, guarded, readers)
    chosen = list(found.items())[:MAX_SHARED]
    together = [chosen] if len(chosen) > 1 else []
    for group in [*([one] for one in chosen), *together]:
        for size in _TINY:
            yield [_on_shared(spot, variable, size, *how) for variable, how in group]


def _upstream(node, depth=5):
    """Return the operands of elementwise operations and views upstream, nearest first."""
    level, found = list(node.inputs), []
    for _ in range(depth):
        found += level
        nodes = [v.owner for v in level if v.owner is not None]
        nodes = [n for n in nodes if isinstance(n.op, (Elemwise, *VIEWS))]
        level = [v for n in nodes for v in n.inputs if constant_number(v) is None][:8]
    return list(dict.fromkeys(found))


def _bound_for(spot, variable, underflowed):
    """Return the bound that keeps an operand from the edges of its domain, or None."""
    if not getattr(variable.type, "dtype", "").startswith("float"):
        return None
    value = np.asarray(spot.replay.value(variable))
    if not value.size or not np.all(np.abs(value) <= 1):  # (a NaN is no probability)
        return None
    subtracted = _subtracted_from_one(spot, variable)
    if subtracted == "square" or np.any(value < 0):
        return _CLIP if subtracted else None
    if subtracted:
        return _INSIDE_UNIT
    return None if underflowed else _AT_LEAST


def _subtracted_from_one(spot, variable, depth=4):
    """Return "itself" or "square" if a variable or its square is subtracted from 1; else None."""
    level = {variable: "itself"}
    for _ in range(depth):
        following = {}
        for v, what in level.items():
            for node in spot.clients.get(v, ()):
                kind = scalar_class(node.outputs[0])
                from_one = kind is ps.Sub and constant_number(node.inputs[0]) == 1
                if made_by_grad(node):
                    continue
                if from_one or kind is ps.Log1p:
                    return what
                if kind is ps.Neg or isinstance(node.op, VIEWS):
                    following[node.outputs[0]] = what
                elif squared_base(node.outputs[0]) is not None:
                    following[node.outputs[0]] = "square"
        level = following
    return None


def _on_shared(spot, variable, size, name, guarded, readers):
    """Return the remedy that bounds an operand wherever it is read."""

    def builder(node):
        def build(new):
            inputs = [guarded.make(new(v), size) if v is variable else new(v) for v in node.inputs]
            return node.clone_with_new_inputs(inputs, strict=False).outputs[0]

        return build

    template = guarded.template.replace("{size}", _number(size))
    module = _module(spot)
    text = f"{template.format(pt=module, x=name)} in place of {name} throughout"
    place = source_place(variable) if variable.owner is not None else None
    new = assigned(place.text, name, template, module) if place is not None else None
    change = (place.text.partition("  #")[0], new) if new is not None else ()
    builders = {node.outputs[0]: builder(node) for node in readers}
    return Remedy(spot, text, builders, in_words=True, change=change)


def _finite_masks(spot):
    """Yield a finite number in place of each -inf that ``where`` puts in, for ``-inf - (-inf)``."""
    if op_name(spot.node.op) != "sub" or not all(np.any(np.isneginf(v)) for v in spot.values):
        return
    for variable in _around(spot):
        if scalar_class(variable) is not ps.Switch or _least(variable.type.dtype) > _LOWEST:
            continue
        for i in (1, 2):
            if constant_number(variable.owner.inputs[i]) == -np.inf:
                found = spot.at(variable.owner)
                builders = {node.outputs[0]: _with_lowest(node, i) for node in found.nodes}
                yield Remedy(found, _number(_LOWEST), builders, i)


def _least(dtype):
    return np.finfo(dtype).min if np.dtype(dtype).kind == "f" else np.inf


def _with_lowest(node, position):
    def build(new):
        inputs = [new(v) for v in node.inputs]
        inputs[position] = pt.full_like(inputs[position], _LOWEST)
        return node.clone_with_new_inputs(inputs, strict=False).outputs[0]

    return build


def _throughout(spot):
    """Yield a bound on an operand that other operations read as well, for all of them."""
    for guarded in GUARDED.get(op_name(spot.node.op), ()):
        operand = spot.node.inputs[guarded.operand : guarded.operand + 1]
        name = spot.name_in(operand[0], spot.node.outputs[0]) if operand else None
        if not name or not name.isidentifier() or operand[0].owner is None:
            continue
        if all(client in spot.nodes for client in spot.clients.get(operand[0], ())):
            continue
        for size in guarded.sizes if guarded.when(spot.values) else ():
            bound = guarded.template.format(pt=_module(spot), x=name, size=_number(size))
            build = _bounded(operand[0], guarded, size)
            text = f"{bound} in place of {name} throughout"
            yield Remedy(spot, text, {operand[0]: build}, in_words=True)


def _bounded(variable, guarded, size):
    def build(new):
        inputs = [new(v) for v in variable.owner.inputs]
        made = variable.owner.clone_with_new_inputs(inputs, strict=False)
        return guarded.make(made.outputs[variable.index], size)

    return build


MAX_CUMULATED = 1_000
"""Largest size of a cumulative sum for which all partial sums are computed on their own."""


def _in_logs(spot, variable):
    """Yield the logarithm from the logarithms of its parts, if a variable is a logarithm."""
    if scalar_class(variable) is not ps.Log:
        return
    found = in_logs(variable.owner.inputs[0])
    cumulated = [v for _, v in found.parts if isinstance(v.owner.op, CumOp)]
    if any(np.size(spot.replay.value(v)) > MAX_CUMULATED for v in cumulated):
        return
    if found.parts:
        line = source_place(variable)
        yield Remedy(spot, _parts_text(found.parts, line), {variable: found.build}, in_words=True)


MAX_PARTS = 6
"""Largest number of parts of a logarithm that a report lists."""


def _parts_text(parts, line):
    """Return what is computed in place of what, and on which line."""
    places = {}
    for what, variable in parts:
        places.setdefault(_where(source_place(variable), line), {})[what] = None
    if len(places) > 1:
        places.pop("", None)  # (the user did not write what has no line, such as a transform)
    texts = [listed(what) + where for where, what in places.items()]
    more = [f"{len(texts) - MAX_PARTS} more"] if len(texts) > MAX_PARTS else []
    return f"logarithms throughout ({'; '.join([*texts[:MAX_PARTS], *more])})"


def _where(place, line):
    """Return where an operation is, with the file if it is not the file of `line`."""
    if place is None:
        return ""
    same = line is None or line.file == place.file
    return f" on line {place.line}" if same else f" at {short_file(place.file)}:{place.line}"


def guards_of(spot):
    """Yield changes to one operand of an operation, the smallest change first.

    Parameters
    ----------
    spot : Spot

    Yields
    ------
    Remedy
    """
    node, values = spot.node, spot.values
    for guarded in GUARDED.get(op_name(node.op), ()):
        if len(node.inputs) > guarded.operand and guarded.when(values):
            whole = node.inputs[guarded.operand].type.dtype[:3] in ("int", "uin")
            for size in (1,) if whole else guarded.sizes:
                yield _tightened(spot, guarded, size) or _guarded(spot, guarded, size)


_IS_WIDER = {
    "clip": lambda bounds, size: bounds[0] <= -1 and bounds[1] >= 1,
    "maximum": lambda bounds, size: bounds[0] <= size,
    "minimum": lambda bounds, size: bounds[0] >= size,
}
"""Whether bounds that the user has written allow more than a new one of the same kind."""


def _tightened(spot, guarded, size):
    """Return the change of a bound that the user has written already, or None.

    So ``arccos(clip(x, -1, 1))`` does not get a second clip.
    """
    bounded = spot.node.inputs[guarded.operand]
    node, is_wider = bounded.owner, _IS_WIDER.get(guarded.function)
    if is_wider is None or node is None or op_name(node.op) != guarded.function:
        return None
    numbers = [constant_number(v) for v in node.inputs]
    inside = [v for v, number in zip(node.inputs, numbers, strict=True) if number is None]
    if len(inside) != 1 or not is_wider([n for n in numbers if n is not None], size):
        return None
    name = spot.name_in(inside[0], bounded)
    if not name:
        return None
    text = guarded.template.replace("{size}", _number(size)).replace("{x}", name)
    found, position = spot.at(node), numbers.index(None)

    def builder(node):
        return lambda new: guarded.make(new(node.inputs[position]), size)

    return Remedy(found, text, {n.outputs[0]: builder(n) for n in found.nodes})


def _forms_like(form, variable, spot):
    """Return builders of the same form for all variables that the same line has built."""
    builders = {variable: form.build}
    for node in spot.at(variable.owner).nodes if variable.owner is not None else ():
        same = (f for f in exact_forms(node.outputs[0]) if f.template == form.template)
        builders.update((node.outputs[0], f.build) for f in same)
    return builders


def _from_one(spot):
    """Yield the correction of ``m / (1 - beta ** t)`` where the count t begins at 0."""
    if op_name(spot.node.op) != "true_div":
        return
    rest = viewed(spot.node.inputs[1])
    terms = rest.owner.inputs if scalar_class(rest) is ps.Sub else (None, None)
    power = viewed(terms[1]) if terms[1] is not None and constant_number(terms[0]) == 1 else None
    if power is None or scalar_class(power) is not ps.Pow:
        return
    count = viewed(power.owner.inputs[1])
    if np.any(np.asarray(spot.replay.value(count)) != 0):
        return
    powers = [
        node
        for node in spot.all_nodes
        if scalar_class(node.outputs[0]) is ps.Pow and viewed(node.inputs[1]) is count
    ]

    def builder(node):
        return lambda new: new(node.inputs[0]) ** (new(node.inputs[1]) + 1)

    found = spot.at(power.owner)
    yield Remedy(found, "({x} + 1)", {c.outputs[0]: builder(c) for c in powers}, 1)


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
    if guarded is _JITTER and _module(spot) != "pt":  # (labelled arrays have no `eye`)
        name = spot.name_in(spot.node.inputs[guarded.operand], spot.node.outputs[0])
        text = f"{_number(size)} added to the diagonal of {name or 'its operand'}"
        return Remedy(spot, text, builders, in_words=True)
    keyword = f"{guarded.keyword}={_number(size)}" if guarded.keyword else ""
    return Remedy(spot, template, builders, guarded.operand, keyword=keyword)


def _number(size):
    """Return a number as code.

    Examples
    --------
    >>> _number(1e-9), _number(0.001), _number(20.0)
    ('1e-9', '0.001', '20')
    """
    return f"{size:g}".replace("e-0", "e-").replace("e+0", "e")


def _around(spot, depth=5):
    """Return the outputs of a spot, and the variables a few steps down- and upstream of them."""
    down = up = list(spot.node.outputs)
    found = down[:]
    for _ in range(depth):
        down = [c.outputs[0] for v in down for c in spot.clients.get(v, ())][:20]
        up = [i for v in up if v.owner is not None for i in v.owner.inputs][:20]
        found += down + up
    return list(dict.fromkeys(found))


def try_remedies(trip, cause, mask, other=None, trial=True):
    """Try possible remedies on the call that failed.

    Parameters
    ----------
    trip : Trip
    cause : Cause
    mask : callable
        Returns the mask of the bad elements of an array.
    other : Cause, optional
        The cause that is not repaired, of which only the operation is wanted.
    trial : bool
        Whether to try remedies at all.

    Returns
    -------
    Outcome or None
        The remedy that helps.  Its text is empty if nothing helps.  None if nothing could be
        tried.
    """
    tried, spots = None, ()
    try:
        with without_traces(), np.errstate(all="ignore"):
            built = as_built(trip, mask)
            if not built:
                return None
            failed = built.failed_forward() if cause.backward else None
            if failed is not None:
                cause = in_forward_pass(cause, failed, built.original(failed), mask)
                tried = _tried_on(built, failed, cause)
                return replace(tried, spots=(failed,), cause=cause)
            own = tuple(built.spots_of(cause))
            spots = own if other is None else (*own, *built.spots_of(other))
            lines = _lines_of(own) if cause.backward and len(own) > 1 else ()
            tried = Outcome(None, spots=spots, lines=lines) if own else None
            for spot in own if trial else ():
                found = replace(_tried_on(built, spot, cause), spots=spots, lines=lines)
                if found.change or found.text:
                    return found
                tried = found if tried.node is None else tried
            if _has_grown(cause) and not (tried is not None and tried.helps):
                tried = _with_less_growth(built, cause, tried)
            if tried is None and trial:
                return _finite_as_written(built, cause)
    except NotRun:  # the values need an operation with side effects
        pass
    except Exception as error:  # a user-defined op may fail when it is run or differentiated
        logger.debug("a remedy could not be tried: %r", error)
    return tried


def _lines_of(spots):
    places = (source_place(spot.node.outputs[0]) for spot in spots)
    return tuple(dict.fromkeys(place for place in places if place is not None))


_SMALLER = (2, 10, 100)
"""By how much a number is divided that may let the values of a loop grow."""


def _has_grown(cause):
    """Return whether a loop may have made a value large."""
    of_loop = bool(cause.path) and cause.hint is not None
    return of_loop and (cause.hint.key in GROWS or cause.kind == "big")


def _with_less_growth(built, cause, tried):
    """Return the outcome with a number that, if it is smaller, keeps a loop from growing."""
    bad = "no such value" if cause.kind == "big" else "finite values"
    for leaf, size in itertools.product(built.leaves_of_loops(), _SMALLER):
        if leaf.name and built.is_sound_with(leaf, lambda value, size=size: value / size):
            what = f"{leaf.name} / {size} in place of the {ROLES[role_of(leaf)]} {leaf.name}"
            fact, otherwise, _ = cause.hint.text.partition("; else ")
            outcome = tried or Outcome(None)
            return replace(
                outcome, text=f"With {what} this call gives {bad}.", fact=fact if otherwise else ""
            )
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
    fact = derivative_text(op, spot.values, position(cause)) if cause.backward else ""
    outcome = Outcome("" if fact else None, fact=fact, node=built.original(spot))
    underflowed = cause.hint.key in UNDERFLOWED
    for remedies in _combined(built, spot, underflowed):
        got = built.attempt(remedies, cause.backward)
        if got is not None:
            return replace(outcome, **_outcome(remedies, got, cause))
        outcome = replace(outcome, text=None if underflowed else "")
    for text in _on_whole_call(built, spot, cause):
        return replace(outcome, text=text)
    if outcome.text == "" and op != "eigh" and next(guards_of(spot), None) is not None:
        kind = "jitter" if op in WITH_JITTER else "big" if cause.kind == "big" else "bound"
        return replace(outcome, text=_NO_HELP[kind])
    return outcome


_NO_HELP = {
    "bound": "A bound on its operand alone does not make this call finite.",
    "big": "A bound on its operand alone does not help.",
    "jitter": "A jitter of up to 0.01 on its diagonal does not help.",
}


DEFINED_ABOVE_ZERO = ("pow-at-zero", "log-zero", "division-by-zero", "zero-by-zero")
"""Hints for an operand that is 0, which may be the 0 of an input."""

OVERFLOWED = ("product-overflow", "sum-overflow", "dot-overflow")
"""Hints for results that exceed the largest number of their dtype."""


def _on_whole_call(built, spot, cause):
    """Yield sentences on changes that help, but that are not a change to one operation."""
    if cause.dtype in NARROW:
        got = built.in_float64()
        if got is not None:
            yield f"With float64 in place of {cause.dtype} {got}."
    if cause.hint.key in OVERFLOWED:
        for leaf, size in built.large_leaves(spot):
            if leaf.name and built.is_sound_with(leaf, lambda value, size=size: value / size):
                name, role = leaf.name, ROLES[role_of(leaf)]
                yield (
                    f"With {name} / {_number(size)} in place of the {role} {name} this call gives"
                    " finite values."
                )

    if cause.hint.key in DEFINED_ABOVE_ZERO:
        for leaf, size in itertools.product(built.leaves_with_zeros(spot), _TINY[1:]):
            if leaf.name and built.is_sound_with(leaf, lambda v, size=size: np.maximum(v, size)):
                name, role = leaf.name, ROLES[role_of(leaf)]
                yield (
                    f"With maximum({name}, {_number(size)}) in place of the {role} {name} this call"
                    " gives finite values."
                )


MAX_NODES_FOR_PAIRS = 600
"""Largest number of nodes of a graph as built for which two remedies are tried together."""

MAX_SECOND = 4
"""Number of other operations that are tried together with the first."""


_CALLED = re.compile(r"\w+(?=\()").findall


def _takes_labels(text):
    """Return whether labelled arrays have all functions of a remedy.  They have no axes."""
    math = sys.modules["pytensor.xtensor.math"]
    return "axis" not in text and all(hasattr(math, name) for name in _CALLED(text))


def _combined(built, spot, underflowed):
    """Yield lists of remedies to try together: single ones, then pairs."""
    of_tensors = _module(spot) == "pt"
    for remedy in remedies_for(spot, underflowed):
        if of_tensors or remedy.in_words or _takes_labels(remedy.text):
            yield [remedy]
    if len(built.copies) > MAX_NODES_FOR_PAIRS:
        return
    yield from _on_shared_operands(spot, underflowed)
    if underflowed:
        return
    guards = list(guards_of(spot))
    seconds = (other for other in built.further(spot) if op_name(other.node.op) in GUARDED)
    for other in itertools.islice(seconds, MAX_SECOND if guards else 0):
        for i, remedy in enumerate(guards_of(other)):
            yield [guards[min(i, len(guards) - 1)], remedy]


def position(cause):
    """Return the position of the bad element among all elements."""
    return int(np.ravel_multi_index(cause.index, cause.shape)) if cause.shape else 0


def _outcome(remedies, got, cause):
    """Return a sentence on remedies that help, and the user's lines with these changes."""
    lines, change = {}, ()
    for remedy in remedies:
        for what, number, edit in sorted(_changes(remedy, cause), key=lambda c: c[1] or 0):
            lines.setdefault(what, []).append(number)
            change += edit
    if len(set(change[::2])) < len(change[::2]):  # (two changes of one line)
        change = ()
    together = {}
    for what, numbers in lines.items():
        together.setdefault(_on_lines(numbers), []).append(what)
    told = " and ".join(listed(what) + where for where, what in together.items())
    return {"text": f"With {told} {got}.", "change": change}


def listed(texts):
    """Return texts as a list in a sentence.

    Examples
    --------
    >>> listed(["a"]), listed(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    *first, last = texts
    return f"{', '.join(first)} and {last}" if first else last


def _on_lines(numbers):
    """Return where a change is.

    Examples
    --------
    >>> _on_lines([3]), _on_lines([13, 14]), _on_lines([None])
    (' on line 3', ' on lines 13 and 14', '')
    """
    known = [str(n) for n in dict.fromkeys(numbers) if n is not None]
    return f" on line{'s' * (len(known) > 1)} {listed(known)}" if known else ""


def _changes(remedy, cause):
    """Yield what a remedy writes, the line, and the user's line before and after it."""
    if remedy.in_words:
        yield remedy.text, None, remedy.change
        return
    spot = remedy.spot
    own = [v for v in remedy.builders if not made_by_grad(v.owner)] or remedy.builders
    places = [place for v in own if (place := source_place(v)) is not None]
    if not places and remedy.operand is not None:
        places = [place for place in [source_place(spot.node.outputs[0])] if place is not None]
    if not places and op_name(spot.node.op) == cause.op:  # (PyMC's copies have no traces)
        recorded = lookup(None, spot.node.outputs[0])
        places = [recorded.source if recorded.own_source else cause.source]
        places = [place for place in places if place is not None]
    by_line = {}
    for place in places:
        by_line.setdefault((place.file, place.line), []).append(place)
    for here in by_line.values():
        yield _change_of_line(remedy, cause, here[0], [p.marked for p in here])
    if not by_line:
        yield _in_words(remedy), None, ()


def _module(spot):
    return module_of(spot.node.outputs[0])


def _change_of_line(remedy, cause, source, marked):
    module = _module(remedy.spot)
    if remedy.operand is None:
        found = replaced(source.text, marked[0], remedy.text, module)
    else:
        op = op_name(remedy.spot.node.op)
        found = edited(source.text, op, remedy.operand, remedy.text, marked, module)
    inside = None
    if found is None and remedy.operand is not None:
        inside = called_function(replace(source, marked=marked[0]))
        found = with_keyword(source.text, marked[0], remedy.keyword) if inside else None
    if found is None and remedy.operand is not None:
        written = _operand_texts(remedy, cause)
        tried = (rewritten(source.text, text, remedy.text, module) for text in written)
        found = next(filter(None, tried), None)
    if found is None:
        return _in_words(remedy, inside), source.line, ()
    what, line = found
    return bare(what), source.line, (source.text.partition("  #")[0], line)


def _operand_texts(remedy, cause):
    """Yield how the user may have written the operand that a remedy changes."""
    spot, position = remedy.spot, remedy.operand
    yield name_of(unmoved(spot.node.inputs[position]), own=spot.name_of)
    if op_name(spot.node.op) == cause.op and position < len(cause.operands):
        operand = cause.operands[position]
        if operand.value is not None and np.any(np.equal(spot.values[position], operand.value)):
            yield operand.name


def _in_words(remedy, inside=None):
    """Return what a remedy writes if the user's line cannot be edited.

    `inside` is the function that the line calls, which applies the operation.
    """
    if remedy.operand is None:
        return remedy.text.format(pt=_module(remedy.spot), x="x")
    spot = remedy.spot
    name = spot.name_of(spot.node.inputs[remedy.operand])
    what = remedy.text.format(pt=_module(spot), x=name or "x")
    if name:
        return what
    op = shown_op(op_name(spot.node.op))
    within = f" inside {inside}" if inside and not is_written(inside, op) else ""
    return f"{what} for the argument x of {op}{within}"
