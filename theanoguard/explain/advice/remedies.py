"""Remedies: changes of the user's formula that are tried on the failing call.

The graph as the user built it is changed in one place (:mod:`.candidates`) and evaluated again.
A change that helps is written in the user's lines (:mod:`.sentences`).
"""

import itertools
import logging
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from theanoguard._evaluate import culprit
from theanoguard._graph import role_of
from theanoguard._provenance import SourceLine, source_place
from theanoguard._provenance.designating import made_by_grad
from theanoguard._pytensor import without_traces
from theanoguard._steps import ForeignError, attempt
from theanoguard._text import number_text
from theanoguard.explain.advice.candidates import (
    WITH_JITTER,
    other_functions,
    same_functions,
)
from theanoguard.explain.advice.claims import proposal
from theanoguard.explain.advice.hints import GROWS, UNDERFLOWED, WITHOUT_TRIAL, with_hint
from theanoguard.explain.advice.judge import Judge
from theanoguard.explain.advice.sentences import is_same_around, sentence
from theanoguard.explain.advice.trials import NARROW, AsBuilt, Spot, as_built
from theanoguard.explain.facts.derivatives import derivative_text
from theanoguard.explain.facts.handed import Facts
from theanoguard.explain.facts.records import ROLES, Cause
from theanoguard.explain.facts.restated import in_forward_pass, place_like
from theanoguard.operations.names import op_name

logger = logging.getLogger("theanoguard")


@dataclass(frozen=True)
class Outcome:
    """The result of trying remedies."""

    text: str | None  # a sentence for the user; empty if nothing helps, None if nothing was tried
    change: tuple[str, ...] = ()  # the user's old and new lines, in turn, or nothing
    fact: str = ""  # a sentence on the derivative, if a gradient is bad
    node: Any = None  # the operation of the graph as built on which remedies were tried
    spots: tuple = ()  # the operations of the graph as built that made the bad values
    cause: Any = None  # the cause in the forward pass, if it was taken for one in the gradient
    #: The lines of all forward operations whose derivative may be the bad value, if several may be.
    lines: tuple = ()
    judge: Any = None  # knows the exact value of what the call should have returned
    #: One of "", "same", "changes".  As for :class:`~theanoguard.explain.advice.hints.Hint`.
    grade: str = ""
    proposal: str = ""  # a formula that general advice proposes, and that helps, as a sentence


def try_remedies(facts: Facts) -> Outcome | None:
    """Try possible remedies on the call that failed.

    Return the remedy that helps.  Its text is empty if nothing helps.  The result is None if
    nothing could be tried.
    """
    last = deque[Outcome](maxlen=1)
    search = _as_far_as_it_runs(_search(facts))
    attempt("a change that helps", None, last.extend, search)
    return last[0] if last else None


def _as_far_as_it_runs(search: Iterator[Outcome]) -> Iterator[Outcome]:
    """Yield what a search finds until it needs something of the user's that cannot be run."""
    try:
        with without_traces(), np.errstate(all="ignore"):
            yield from search
    except ForeignError as error:
        logger.debug("a remedy could not be tried: %r", error)


def _search(facts: Facts) -> Iterator[Outcome]:
    """Yield outcomes, each of which knows more than the one before."""
    cause, mask = facts.blamed, facts.mask
    trial = cause.hint is not None and cause.hint.key not in WITHOUT_TRIAL
    built = as_built(facts)
    if built is None:
        return
    failed = built.failed_forward() if cause.backward else None
    if failed is not None:
        cause = in_forward_pass(cause, failed, built.original(failed), mask)
        cause = with_hint(cause, unless=UNDERFLOWED)
        tried = replace(_tried_on(built, failed, cause), spots=(failed,), cause=cause)
        yield tried
        for spot in () if tried.text else _makers_of_infinity(built, failed):
            here = in_forward_pass(cause, spot, built.original(spot), culprit.not_finite)
            found = _tried_on(built, spot, here)
            if found.grade == "same":
                yield replace(tried, text=found.text, change=found.change, grade="same")
        return
    own = tuple(built.spots_of(cause))
    if not own:  # (a rewrite has made the operation, such as exp(x**2) of a quotient)
        cause = facts.cause
        own = tuple(built.spots_of(cause))
    spots = own if cause is facts.cause else (*own, *built.spots_of(facts.cause))
    lines = _lines_of(own) if cause.backward and len(own) > 1 else ()
    known = Outcome(None, spots=spots, lines=lines) if own else None
    if known is not None:
        yield known
    if own and not trial:
        judge = Judge(built, own[0], place_like(cause, own[0]))
        trial = judge.kind == "lost"
        text = "" if cause.kind == "big" else None
        known = Outcome(text, spots=spots, lines=lines, judge=judge)
        yield known
    for spot in own if trial else ():
        found = replace(_tried_on(built, spot, cause), spots=spots, lines=lines)
        if found.text:
            yield found
            return
        if known is None or known.node is None:
            known = found
            yield known
    is_lost = known is not None and known.judge is not None and known.judge.kind == "lost"
    smaller = None if is_lost else _with_less_growth(built, cause, known)
    if smaller is not None:
        yield smaller
    elif known is None and trial and (as_written := _finite_as_written(built, cause)) is not None:
        yield as_written


def _lines_of(spots: Iterable[Spot]) -> tuple[SourceLine, ...]:
    places = (source_place(spot.node.outputs[0]) for spot in spots)
    return tuple(dict.fromkeys(place for place in places if place is not None))


_SMALLER = (2, 10, 100)  # by how much a number is divided that may let the values of a loop grow


def _with_less_growth(built: AsBuilt, cause: Cause, known: Outcome | None) -> Outcome | None:
    """Return the outcome with a number that, if it is smaller, keeps a loop from growing."""
    if not cause.path or cause.hint is None:
        return None
    if cause.hint.key not in GROWS:
        return None
    bad = "no such value" if cause.kind == "big" else "finite values"
    for leaf, size in itertools.product(built.leaves_of_loops(), _SMALLER):
        if leaf.name and built.is_sound_with(leaf, size):
            what = f"{leaf.name} / {size} in place of the {ROLES[role_of(leaf)]} {leaf.name}"
            is_big = cause.hint.key == "big-value"
            allow = "If values of this size are right, raise big_threshold. " if is_big else ""
            text = f"{allow}With {what} this call gives {bad}."
            return replace(known or Outcome(None), text=text)
    return None


FOLDS_SUMS = "local_add_canonizer"  # PyTensor's rewrite that adds up the constants of a sum


def _finite_as_written(built: AsBuilt, cause: Cause) -> Outcome | None:
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
    names = [step.reason for step in cause.provenance.history]
    if constant is None:
        changed = f"PyTensor's rewrite {names[0]} changed it" if names else "a rewrite changed it"
    else:
        changed = f"`{constant}` was folded away by {FOLDS_SUMS}, which puts constants together"
    text = f"As it is written, {name}{where} is {number_text(value)}, and the result is finite;"
    text += f" {changed}."
    if constant is None and names:
        text += f' Compile with mode.excluding("{names[0]}") to leave the rewrite out.'
    if constant is not None:
        text += " Use maximum(x, eps) in its place."
    return Outcome(text, node=built.original(spot))


def _tried_on(built: AsBuilt, spot: Spot, cause: Cause) -> Outcome:
    """Return the :class:`Outcome` of the remedies for one operation."""
    op = op_name(spot.node.op)
    fact = derivative_text(op, spot.values, position(cause)) if cause.backward else ""
    judge = Judge(built, spot, None if cause.backward else place_like(cause, spot))
    outcome = Outcome("", fact=fact, node=built.original(spot), judge=judge)
    # (an infinite operand has no exact value, such as the logarithm of a probability of 0)
    may_be_same = judge.kind != "none" or cause.backward or _reads_infinity(spot)
    for remedy in same_functions(judge, cause.backward) if may_be_same else ():
        told = sentence(remedy, judge, cause)
        if told is None:
            continue
        # (lines were shown to be the same function wherever they have run)
        is_shown = bool(told[1]) and not remedy.around
        if is_shown or is_same_around(remedy, judge):
            return replace(outcome, text=told[0], change=told[1], grade="same")
    # (of a matrix with equal rows, rounded entries cannot show that it is singular)
    if judge.kind == "none" or (judge.kind == "unknown" and op in WITH_JITTER):
        for remedy in other_functions(spot):
            told = sentence(remedy, judge, cause)
            if told is not None:
                return replace(outcome, text=told[0], change=told[1], grade="changes")
    for text in _on_whole_call(judge, cause):
        return replace(outcome, text=text)
    has_none = judge.kind in ("none", "unknown")
    return replace(outcome, proposal=proposal(cause, judge)) if has_none else outcome


def _makers_of_infinity(built: AsBuilt, spot: Spot) -> Iterator[Spot]:
    """Yield the user's operations that made the infinite operands of a NaN from finite numbers."""
    for variable, value in zip(spot.node.inputs, spot.values, strict=True):
        maker = variable.owner
        if maker is None or made_by_grad(built.original(spot.at(maker))):
            continue
        if built.is_bad(value) and not any(map(built.is_bad, spot.at(maker).values)):
            yield spot.at(maker)


def _reads_infinity(spot: Spot) -> bool:
    values = map(np.asarray, spot.values)
    return any(v.dtype.kind == "f" and bool(np.isinf(v).any()) for v in values)


def _on_whole_call(judge: Judge, cause: Cause) -> Iterator[str]:
    """Yield sentences on changes that help, but that are not a change to one operation."""
    if cause.dtype in NARROW:
        trial = judge.built.in_float64()
        if trial is not None and judge.is_mended(trial) and judge.is_right(trial):
            yield f"With float64 in place of {cause.dtype} {trial.text}."


def position(cause: Cause) -> int:
    """Return the position of the bad element among all elements."""
    return int(np.ravel_multi_index(cause.index, cause.shape)) if cause.shape else 0
