"""Hints: why an operation gives a bad value for some operands, and what to write instead.

All hints are rules in one table.  :func:`register_hint` adds a rule for any operation, including
user-defined ones.  The rules of an operation are tried in the order of registration.  The
user's rules come before the rules of the package.
"""

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from theanoguard._arguments import checked
from theanoguard._faults import code_of
from theanoguard._provenance.source import SourceLine, expression_of
from theanoguard._text import number_text
from theanoguard.explain.advice.claims import PROPOSALS
from theanoguard.explain.advice.source_edit import is_compound
from theanoguard.explain.advice.written import in_one_file, in_users_words, on_lines
from theanoguard.explain.facts.records import CameIn, Cause, Hint, Meaning, Situation

_OF_LOST = (
    *("cancellation", "probability-underflow", "softmax-then-log", "exp-overflow"),
    *("softmax-overflow", "inf-by-inf", "inf-minus-inf", "bessel-overflow", "log1p-minus-one"),
    *("arc-out-of-range", "arccosh-out-of-range", "erfinv-out-of-range"),
)
"""Hints with advice for a formula whose value the arithmetic loses."""

GENERAL = {
    "lost": "",
    "too large": "The result itself is this large: keep its logarithm, or scale the inputs.",
    "harmless": 'If that is meant, pass GuardMode(judge="result"): the guard then reports only what'
    " makes a result bad.",
}
"""What to do, by the kind of the fault, if there is no remedy."""


def with_outcome(hint: Hint, outcome: Any, meaning: Meaning) -> Hint:
    """Return the hint with what was found out and tried instead of the general advice.

    `meaning`: its sentence says already what happened.
    """
    if outcome.grade == "changes" and meaning.settled:
        outcome = replace(outcome, text="", change=(), grade="")
    if code_of(hint.key) is None:  # (a hint that the user has registered is shown whole)
        found = [meaning.origin, outcome.text or meaning.kept]
        return replace(
            hint, advice=_joined(hint.advice, *found), change=outcome.change, grade=outcome.grade
        )
    fact = f"{outcome.fact}." if outcome.fact else hint.fact
    text = outcome.text or meaning.kept
    if not outcome.text and meaning.general:
        own = meaning.kind == "lost" and hint.key in _OF_LOST
        general = hint.advice if own else GENERAL.get(meaning.kind, hint.advice)
        text = _joined(text, general)
    if not outcome.text and not meaning.settled:
        text = _joined(text, outcome.proposal)
    return replace(
        hint,
        fact="" if meaning.whole or (meaning.text and not hint.more) else fact,
        origin=meaning.origin,
        advice=text,
        change=outcome.change,
        grade=outcome.grade,
    )


def _joined(*texts: str | None) -> str:
    return " ".join(filter(None, texts))


_FOR_LABELLED = (
    ("pytensor.tensor.special.log_softmax(h, axis=...)", "h - {pt}.logsumexp(h, dim=...)"),
    ("pytensor.tensor.special.", "{pt}."),
    ("h.max(axis=..., keepdims=True)", "h.max(dim=...)"),
    ("axis=...", "dim=..."),
    (" pt.", " {pt}."),
)
"""What to write for labelled arrays in place of a function of tensors."""


def with_module(text: str, module: str) -> str:
    """Return advice with the functions of a module for labelled arrays; it is as it was for ``pt``.

    Examples
    --------
    >>> with_module("For log(sum(exp(x))) use pt.logsumexp.", "px.math")
    'For log(sum(exp(x))) use px.math.logsumexp.'
    """
    if module == "pt":
        return text
    text = text.partition(" Or theanoguard.stable.")[0]
    for tensors, labelled in _FOR_LABELLED:
        text = text.replace(tensors, labelled.format(pt=module))
    return text


def in_module(cause: Cause) -> Cause:
    """Return a cause whose hint has the functions of the module that the user's file imports."""
    hint, source = cause.hint, cause.source
    if hint is None or code_of(hint.key) is None:  # (a hint that the user has registered)
        return cause
    file, line = ("", "") if source is None else (source.file, source.text)
    texts = [hint.fact, hint.advice]
    if cause.op == "true_div":
        texts = [_with_divisor(text, cause) for text in texts]
    fact, advice = (in_users_words(text, file, line) for text in texts)
    return replace(cause, hint=replace(hint, fact=fact, advice=advice))


_MAX_NAME = 40  # length of the longest expression that advice repeats


def _with_divisor(text: str, cause: Cause) -> str:
    """Return advice on a quotient ``x / n`` with the user's names, or with words for them."""
    if "eq(n, 0)" not in text:
        return text
    names = [o.name for o in cause.operands] if len(cause.operands) == 2 else ["", ""]
    x, n = (name if len(name) <= _MAX_NAME and expression_of(name) else "" for name in names)
    text = text.replace("divisor n is", f"divisor {n} is" if n else "divisor is")
    n = n if n.isidentifier() else "divisor"  # (`n` may be another variable's name)
    text = re.sub(r"\bn\b(?=, 0\)|\))", n, text)
    x = f"({x})" if x and is_compound(x) else x or "dividend"
    return text.replace("x / switch(", f"{x} / switch(")


@dataclass(frozen=True)
class Rule:
    """One row of the table: when it applies, what happens there, and what to do about it.

    Parameters
    ----------
    more : bool
        Whether the fact is not in the meaning of the fault.
    """

    key: str
    when: Callable[[Situation], bool]
    fact: str
    advice: str = ""
    more: bool = False


_rules: dict[str, list[Rule]] = {}


@checked
def register_hint(op: str | type, key: str, when: Callable[[Situation], bool], text: str) -> None:
    """Add a rule for an operation.

    Parameters
    ----------
    op : str or type
        Name of the operation as the report prints it, the class of an Op or scalar op, or
        ``"*"`` for any.
    key : str
        Name of the rule.
    when : callable
        Returns whether the rule applies to a :class:`Situation`.
    text : str
        The text of the hint.  ``{0}`` and ``{1}`` stand for the operands.  ``{result}``,
        ``{dtype}``, ``{limit}`` and ``{exp_limit}`` may be used as well.

    Examples
    --------
    >>> import numpy as np
    >>> from theanoguard.explain import register_hint
    >>> from theanoguard.explain.advice.hints import Situation, hint_for
    >>> register_hint("my_op", "my-op-zero", lambda s: s.operands[0] == 0, "never give it {0}")
    >>> hint_for(Situation("my_op", (0.0,), np.nan, "float64")).text
    'never give it 0.0'
    """
    name = op if isinstance(op, str) else op.__name__[0].lower() + op.__name__[1:]
    _rules.setdefault(name, []).insert(0, Rule(key, when, text))


_OF_REWRITTEN = {"log": "log-negative", "sqrt": "sqrt-negative", "pow": "pow-negative-base"}
"""Hints for NaNs that a rewrite chooses with a switch, by the user's operation."""

_OF_OWN_GRADIENT = (
    "The formula in {0} has no value here.",
    "The operation may have a derivative here all the same: check what {0} returns with"
    " pytensor.gradient.verify_grad.",
)


def hint_for(situation: Situation) -> Hint | None:
    """Return the :class:`Hint` of the first rule that applies, or None."""
    if situation.own_gradient:
        fact, what = (text.format(situation.own_gradient) for text in _OF_OWN_GRADIENT)
        return Hint("gradient-at-zero", fact, what)
    key = _OF_REWRITTEN.get(situation.written) if situation.op == "switch" else None
    if key is not None and np.isnan(situation.result):
        fact = f"{situation.written} has no value here."
        return Hint(key, fact, advice(key, situation.written))
    named = {
        "result": number_text(situation.result),
        "dtype": situation.dtype,
        "limit": number_text(situation.limit),
        "exceeds": f"exceeds the largest number of {situation.dtype}"
        f" ({number_text(situation.limit)})",
        "exp_limit": situation.exp_limit,
        "zero_step": next((k for k in situation.zero_steps if k is not None), ""),
        "matrix": situation.matrix or "The matrix has no such decomposition",
        "wrapped": situation.wrapped,
        "diverges": diverges([*situation.update_lines], situation.line),
        "wide_enough": "float64"
        if abs(int(situation.wrapped or 0)) >= 2**63
        else "float64 or int64",
        "wider": _WIDER.get(situation.dtype, ""),
        "above": f"{10.0 ** (np.floor(np.log10(abs(situation.result))) + 1):.0e}"
        if np.isfinite(situation.result) and situation.result
        else "",
    }
    operands = [number_text(v) if np.ndim(v) == 0 else "..." for v in situation.operands]
    operands += [""] * 3
    for rule in (*_rules.get(situation.op, ()), *_rules.get("*", ())):
        if _applies(rule, situation):
            fact, what = (t.format(*operands, **named) for t in (rule.fact, rule.advice))
            return Hint(rule.key, fact, what, more=rule.more)
    return None


_WIDER = {
    "float16": " or compute in float64",
    "float32": " or compute in float64",
    "complex64": " or compute in complex128",
}
"""How the advice for a result that has overflowed ends, by dtype."""


def advice(key: str, op: str | None = None) -> str:
    """Return the advice of a hint, with what it proposes; what happens there, without advice.

    `op`: name of the operation, if several have a hint with this key.

    Raises
    ------
    KeyError
        If there is no such hint.

    Examples
    --------
    >>> advice("division-by-zero", "true_div")
    'Find out why the divisor is 0. If it may be, decide what the result is there: ...'
    """
    texts = {hint.key: hint.advice or hint.fact for hint in CAME_IN.values()}
    for rules in (*_rules.values(), _rules.get(op or "", ())):
        texts.update((rule.key, rule.advice) for rule in rules if rule.advice)
        texts |= {rule.key: rule.fact for rule in rules if rule.key not in texts}
    proposed = PROPOSALS.get(key)
    return texts[key] if proposed is None else f"{texts[key]} {proposed.words.format('x', 'p')}"


def _applies(rule: Rule, situation: Situation) -> bool:
    with np.errstate(all="ignore"):
        try:
            return bool(rule.when(situation))
        except (IndexError, TypeError):  # operands of a shape that the rule does not expect
            return False


def _nan(s: Situation) -> bool:
    return np.isnan(s.result)


def _overflow(s: Situation) -> bool:
    """Whether the operands are finite, and the result is infinite or very large."""
    finite = all(np.isfinite(v).all() for v in s.operands if np.asarray(v).dtype.kind in "fciub")
    return finite and not np.isnan(s.result)


def _first(s: Situation) -> Any:
    return s.operands[0]


def _second(s: Situation) -> Any:
    return s.operands[1]


def _tiny(value: Any) -> bool:
    return 0 < abs(value) < 1e-8


def _of_softmax(s: Situation, position: int) -> bool:
    made_by = s.producers[position].op if position < len(s.producers) else ""
    return made_by == "softmax" or "softmax" in s.source


def _zero_of_softmax(s: Situation) -> bool:
    """Whether a softmax has made the 0, or an operation of a softmax that is written by hand."""
    by_hand = ("exp", "true_div") if "softmax" in s.source else ()
    return s.underflowed(0, "softmax", *by_hand)


def _has_underflowed(s: Situation) -> bool:
    """Whether the argument of a logarithm, or the divisor in its gradient, has underflowed to 0."""
    last = len(s.operands) - 1
    of_log = s.forward in ("log", "log2", "log10") if s.backward else last == 0
    return of_log and s.operands[last] == 0 and s.underflowed(last, *_SHRINKING)


def _has_underflowed_in_loop(s: Situation) -> bool:
    return _has_underflowed(s) and s.zero_steps[-1] is not None


def _of_exp(s: Situation) -> bool:
    return s.made_by(0, "exp") or s.made_by(1, "exp")


def _of_recurrence(s: Situation) -> bool:
    """Whether a loop multiplies its state by a matrix without adding the old state.

    A product that also adds (Gemv) has more than two operands.  It may be a step of a differential
    equation.
    """
    return _after_steps(s) and "dot" in s.body and (s.op != "dot" or len(s.operands) == 2)


def _after_steps(s: Situation) -> bool:
    """Whether the operation is in a loop whose state can have grown in the steps before."""
    return s.in_scan and s.step > 0


def _of_arc(s: Situation) -> bool:
    """Whether a derivative divides by ``sqrt(1 - x**2)``, as those of arcsin and arccos do."""
    return s.forward in ("arcsin", "arccos")


def _has_switch(s: Situation) -> bool:
    """Whether a switch masks an operand of the division, or is in the user's line."""
    return s.made_by(0, "switch") or "switch(" in s.source or "where(" in s.source


def _cancelled(s: Situation) -> bool:
    """Whether the operand is a difference of nearly equal numbers, negative only by rounding."""
    producer = s.producers[0]
    if producer.op not in ("sub", "add") or not producer.operands:
        return False
    scale = max(abs(v) for v in producer.operands)
    return -1e-3 * scale <= _first(s) < 0


_SHRINKING = (
    *("exp", "exp2", "mul", "prod", "pow", "sqr", "sigmoid", "softmax", "true_div", "dot"),
    *("cumprod", "sum", "batched_dot"),
)
"""Operations that can underflow: they make 0 from operands that are not 0."""

JITTER = "Jitter, such as 1e-6 added to the diagonal, changes the function."

_IF_RIGHT = (
    "If values of this size are right, allow them with GuardMode(big_threshold={above}) or"
    " big_is_error=False."
)

DIVERGES = "If the training diverges, lower the learning rate{of_update} or clip the gradient"

MAX_UPDATE_LINES = 3  # largest number of lines with updates that a hint names


def diverges(lines: list[SourceLine], source: SourceLine | None) -> str:
    """Return advice on a training that diverges.

    `lines`: those of the updates.
    `source`: the line that the report shows.
    """
    where = on_lines(lines, in_one_file(lines, source)) if len(lines) <= MAX_UPDATE_LINES else ""
    return DIVERGES.format(of_update=f" of the update{where}" if where else "")


# (operations, key, when, fact, advice, more); the most specific rule of an operation comes first
_TABLE = [
    (
        "log log2 log10",
        "softmax-then-log",
        lambda s: _first(s) == 0 and _zero_of_softmax(s),
        "softmax has underflowed to 0 here.",
        "Use pytensor.tensor.special.log_softmax(h, axis=...), which never takes the"
        " logarithm of a rounded 0.",
    ),
    (
        "log log2 log10 true_div reciprocal",
        "probability-underflow",
        _has_underflowed_in_loop,
        "The argument of log has underflowed to 0 in step {zero_step} of the loop: numbers"
        " this small do not exist in {dtype}.",
        "Keep the state of the loop in logarithms, with + for * and logaddexp for +. Or"
        " divide the state by its sum in each step, and add up the logarithms of these sums.",
        True,
    ),
    (
        "log log2 log10 true_div reciprocal",
        "probability-underflow",
        _has_underflowed,
        "The argument of log has underflowed to 0: numbers this small do not exist in {dtype}.",
        "Compute in logarithms: a sum of logs for a product, log_softmax or -softplus(-x) for"
        " log(sigmoid(x)), logsumexp for a sum of exps.",
    ),
    (
        "log log2 log10 sqrt",
        "cancellation",
        _cancelled,
        "{0} is what rounding leaves of a difference of nearly equal numbers.",
        "Compute the difference itself: mean((x - mean(x))**2) for E[x^2] - E[x]^2,"
        " sum((x - y)**2) for x^2 + y^2 - 2xy.",
    ),
    (
        "log log2 log10 sqrt",
        "integer-wrapped",
        lambda s: bool(s.wrapped),
        "The integers have wrapped around: exactly it would be {wrapped}.",
        "Compute in {wide_enough}: cast before the product or sum.",
    ),
    (
        "log log2 log10",
        "log-zero",
        lambda s: _first(s) == 0,
        "The logarithm of 0 is -inf.",
        "Find out why the argument is 0.",
    ),
    (
        "log log2 log10",
        "log-negative",
        lambda s: _first(s) < 0,
        "The logarithm of a negative number ({0}) is NaN.",
        "Find out why it is negative. Compute a parameter that must stay positive with exp or"
        " softplus from one that is free.",
    ),
    (
        "log1p",
        "log1p-minus-one",
        lambda s: _first(s) <= -1,
        "log1p(x) needs x > -1, and x is {0}.",
        "For log(1 - p) with p near 1 work with the logit: log(1 - sigmoid(z)) is -softplus(z).",
    ),
    (
        "true_div",
        "norm-gradient-at-zero",
        lambda s: s.backward and _second(s) == 0 and s.made_by(1, "sqrt") and not _of_arc(s),
        "The gradient of sqrt at 0 is 0.5 / sqrt(0).",
        "",
    ),
    (
        "true_div",
        "softmax-overflow",
        lambda s: np.isinf(_second(s)) and s.made_by(1, "sum") and _of_exp(s),
        "exp has overflowed in a hand-written softmax.",
        "Use pytensor.tensor.special.softmax(h, axis=...), or subtract the maximum first:"
        " exp(h - h.max(axis=..., keepdims=True)).",
    ),
    (
        "true_div",
        "masked-gradient",
        lambda s: s.backward and _second(s) == 0 and _first(s) == 0 and _has_switch(s),
        "0 / 0 in a gradient: switch(x > 0, f(x), 0) masks the value of f, not its derivative.",
        "Give f a safe argument on the masked side: f(switch(x > 0, x, 1)).",
    ),
    (
        "true_div",
        "zero-by-zero",
        lambda s: not s.backward and _first(s) == 0 and _second(s) == 0,
        "0 / 0 is NaN.",
        "Find out why the divisor is 0.",
    ),
    (
        "true_div reciprocal",
        "gradient-at-zero",
        lambda s: s.backward and s.operands[-1] == 0,
        "The derivative divides by 0 here: the forward operation is not differentiable at"
        " this value.",
        "Use a formula that is smooth there.",
    ),
    (
        "true_div int_div mod",
        "division-by-zero",
        lambda s: _second(s) == 0,
        "{0} / 0 is not finite.",
        "Find out why the divisor is 0.",
    ),
    (
        "true_div",
        "inf-by-inf",
        lambda s: np.isinf(_first(s)) and np.isinf(_second(s)),
        "inf / inf is NaN.",
        "Divide in logarithms, or scale both down.",
    ),
    (
        "true_div",
        "softmax-then-log",
        lambda s: s.backward and _tiny(_second(s)) and _of_softmax(s, 1),
        "The gradient of log(p) is 1 / p, and softmax has made p all but 0 ({1}).",
        "Use pytensor.tensor.special.log_softmax(h, axis=...) in place of log(softmax(h)).",
    ),
    (
        "true_div",
        "gradient-near-zero",
        lambda s: s.backward and _tiny(_second(s)),
        "The derivative divides by {1} here.",
        "Near this value the derivative of the forward operation grows without bound. If it"
        " is right, raise big_threshold; else use a formula that is smooth there.",
    ),
    (
        "true_div",
        "tiny-divisor",
        lambda s: _tiny(_second(s)),
        "The divisor is almost 0 ({1}).",
        "Find out why it is so small. If it is right, raise big_threshold.",
        True,
    ),
    (
        "reciprocal",
        "division-by-zero",
        lambda s: _first(s) == 0,
        "1 / 0 is inf.",
        "Find out why the divisor is 0.",
    ),
    (
        "exp exp2 expm1 sinh cosh",
        "exp-overflow",
        lambda s: np.isinf(s.result) and np.isfinite(_first(s)),
        "{dtype} overflows where the exponent exceeds {exp_limit}, and it is {0}.",
        "For a softmax use pytensor.tensor.special.softmax, for log(sum(exp(x))) use"
        " pt.logsumexp, for log(1 + exp(x)) use pt.softplus. Else simplify the formula, so"
        " that nothing overflows.",
    ),
    (
        "exp exp2 expm1 sinh cosh",
        "exp-big",
        lambda s: np.isfinite(s.result) and abs(s.result) > 1e3,
        "The value is finite and above big_threshold.",
        "If values of this size are right, allow them with GuardMode(big_threshold={above});"
        " else scale the inputs.",
    ),
    (
        "sqrt",
        "sqrt-negative",
        lambda s: _first(s) < 0,
        "The square root of a negative number ({0}) is NaN.",
        "Find out why it is negative. Compute a parameter that must not be with exp, softplus"
        " or a square.",
    ),
    (
        "dot mul sqr pow",
        "exploding-state",
        lambda s: _of_recurrence(s) and not s.in_gradient_scan and _overflow(s),
        "The state grows from step to step.",
        "Scale down the recurrent weights (spectral radius below 1), or use fewer steps.",
        True,
    ),
    (
        "mul sqr pow add sub sum dot true_div",
        "growing-gradient",
        lambda s: s.in_gradient_scan and _overflow(s),
        "The gradient grows from step to step, from the last step of the loop to the first.",
        "Clip it (clip_grad_norm), use fewer steps (truncate_gradient), or make the factor"
        " smaller.",
        True,
    ),
    (
        "mul sqr pow add sub sum dot",
        "growing-state",
        lambda s: _after_steps(s) and _overflow(s),
        "The state grows from step to step.",
        "Look at the factor by which it grows: smaller weights, a smaller step or fewer steps"
        " keep it bounded.",
        True,
    ),
    (
        "pow",
        "pow-negative-base",
        lambda s: _first(s) < 0 and _second(s) != np.floor(_second(s)),
        "A negative base ({0}) with the fractional exponent {1} has no real power.",
        "Find out why the base is negative. Compute one that must be positive with exp or"
        " softplus.",
    ),
    (
        "pow",
        "pow-at-zero",
        lambda s: _first(s) == 0 and _second(s) < 0,
        "0 to the negative power {1} is inf.",
        "Find out why the base is 0.",
    ),
    (
        "pow sqr mul cube",
        "product-overflow",
        lambda s: _overflow(s) and np.isinf(s.result),
        "The product {exceeds}.",
        "Scale the operands down, work with logarithms{wider}.",
    ),
    (
        "mul",
        "zero-times-inf",
        lambda s: _nan(s) and any(np.isinf(v) for v in s.operands),
        "0 * inf is NaN: multiplying by 0 does not mask an infinity.",
        "Use switch(mask, x, 0) with a safe x, or xlogy / xlogx for x * log(x).",
    ),
    (
        "softmax logSoftmax sub",
        "softmax-of-infinity",
        lambda s: _nan(s) and (s.op != "sub" or "softmax" in s.source),
        "A softmax of inf, or of a slice that is -inf throughout, is NaN.",
        "Leave one element unmasked. Or theanoguard.stable.softmax(h, axis=...), which is 0"
        " for such a slice.",
    ),
    (
        "sub add sum inc_subtensor",
        "inf-minus-inf",
        lambda s: _nan(s) and any(np.isinf(v).any() for v in s.operands),
        "inf - inf is NaN.",
        "For log(sum(exp(x))) use pt.logsumexp, which takes -inf; else keep the operands finite.",
    ),
    (
        "sum add sub prod mean inc_subtensor",
        "sum-overflow",
        lambda s: _overflow(s) and np.isinf(s.result),
        "The result {exceeds}.",
        "Scale the terms down, use mean instead of sum{wider}.",
    ),
    (
        "dot batched_dot outer",
        "dot-overflow",
        lambda s: _overflow(s) and np.isinf(s.result),
        "The product of matrices {exceeds}.",
        "Scale the inputs, check the initial weights{wider}.",
    ),
    (
        "dot batched_dot outer",
        "inf-in-dot",
        _nan,
        "An infinite operand met a 0 or an infinity of the other sign inside the product.",
        "",
    ),
    (
        "arccos arcsin",
        "arc-out-of-range",
        lambda s: abs(_first(s)) > 1,
        "The inverse sine and cosine exist for -1 to 1, and the argument is {0}.",
        "Find out why the argument is outside.",
    ),
    (
        "arctanh",
        "arctanh-out-of-range",
        lambda s: abs(_first(s)) >= 1,
        "arctanh exists inside -1 to 1, and the argument is {0}.",
        "Find out why it reaches the edge. Compute a parameter with tanh from one that is free.",
    ),
    (
        "arccosh",
        "arccosh-out-of-range",
        lambda s: _first(s) < 1,
        "arccosh needs an argument of at least 1, and it is {0}.",
        "Find out why it is less. For arccosh(1 + d) use 2 * arcsinh(sqrt(d / 2)).",
    ),
    (
        "gammaln gamma psi tri_gamma",
        "gamma-pole",
        lambda s: _first(s) <= 0,
        "The gamma function has a pole at {0}.",
        "Find out why the argument is not positive. Compute a parameter that must be with exp"
        " or softplus.",
    ),
    (
        "i0 i1 iv",
        "bessel-overflow",
        _overflow,
        "The Bessel function grows like exp(x) and {exceeds}.",
        "Use pt.ive(v, x), which is iv times exp(-abs(x)): log(i0(x)) = log(ive(0, x)) + abs(x).",
    ),
    (
        "erfinv",
        "erfinv-out-of-range",
        lambda s: abs(_first(s)) >= 1,
        "erfinv is finite inside -1 to 1, and the argument is {0}.",
        "For erfinv(1 - q) use erfcinv(q), which exists for q > 0.",
    ),
    (
        "switch",
        "gradient-at-zero",
        lambda s: s.backward and s.forward == "log1mexp" and np.isinf(s.result),
        "The derivative of log1mexp at 0 is infinite.",
        "Find out why the argument is 0.",
    ),
    (
        "switch",
        "switch-chose-infinity",
        lambda s: not np.isfinite(s.result),
        "The condition chose the branch that holds {result}.",
        "Check the condition for this call.",
    ),
    (
        "sin cos tan",
        "angle-infinite",
        lambda s: np.isinf(_first(s)),
        "The sine of an infinite angle is NaN.",
        "Find the operation that made it infinite.",
    ),
    (
        "cast",
        "cast-overflow",
        _overflow,
        "{0} does not fit into {dtype}, whose largest number is {limit}.",
        "Keep the wider dtype, or scale down.",
    ),
    (
        "cholesky",
        "cholesky-not-positive-definite",
        lambda s: s.indefinite,
        "{matrix}.",
        "Rounding is not the reason, so jitter on the diagonal does not help. Check the"
        " numbers that the matrix is made of, such as a correlation outside of -1 to 1.",
        True,
    ),
    (
        "cholesky",
        "cholesky-not-positive-definite",
        lambda s: True,
        "{matrix}.",
        f"Make it symmetric, and leave out duplicate points. {JITTER}",
        True,
    ),
    (
        "solve solveTriangular matrixInverse matrixPinv sLogDet slogdet det",
        "singular-matrix",
        lambda s: True,
        "{matrix}.",
        "Leave out rows that depend on others, or use a pseudo-inverse or a least-squares solver."
        f" {JITTER}",
        True,
    ),
    (
        "*",
        "diverging-update",
        lambda s: _overflow(s) and np.isfinite(s.result) and s.in_update and abs(s.result) > 1e3,
        "The value is finite and above big_threshold.",
        "{diverges}; if values of this size are right, allow them with"
        " GuardMode(big_threshold={above}).",
    ),
    (
        "*",
        "big-value",
        lambda s: _overflow(s) and np.isfinite(s.result) and abs(s.result) > 1e3,
        "The value is finite and above big_threshold.",
        f"{_IF_RIGHT[:-1]}; else scale the inputs.",
    ),
]

for _ops, *_row in reversed(_TABLE):
    for _op in _ops.split():
        _rules.setdefault(_op, []).insert(0, Rule(*_row))


UNDERFLOWED = ("probability-underflow", "softmax-then-log")
"""Hints for operands that have underflowed to 0."""

GROWS = ("growing-state", "growing-gradient", "exploding-state", "big-value")
"""Hints for values that a loop may have made large step by step."""

OUT_OF_DOMAIN = Hint(
    "out-of-domain",
    "The argument is outside of the domain of the operation.",
    "Find out why it is there.",
)
"""The hint for an operation that has a domain and no rule in the table."""

WITHOUT_TRIAL = {
    *GROWS,
    *("diverging-update", "switch-chose-infinity", "cast-overflow"),
}
"""Hints whose advice is not a change to one operation, so that no such change is tried."""

CAME_IN = {
    "input": Hint(
        "bad-input",
        "The function was called with this value: look at the data, its preprocessing and its"
        " missing entries.",
    ),
    "shared": Hint(
        "bad-shared",
        "The shared variable held this value before the call: look at how it was initialised,"
        " loaded or set, and at the update of an earlier, unguarded call.",
    ),
    "constant": Hint(
        "bad-constant",
        "The value was put into the graph as a constant when the graph was built.",
    ),
    "folded": Hint(
        "folded-constant",
        "PyTensor has computed this value when it compiled the function, from constants alone:"
        " no input can change it.",
        "Look at the constants that this line uses.",
    ),
}
"""Hints for a value that no operation made."""


def with_hint(cause: Cause, unless: Collection[str] = ()) -> Cause:
    """Return a cause with the hint for its situation; it keeps its own if there is none.

    It also keeps one of the keys in `unless`.
    """
    match cause.situation:
        case None:
            return cause
        case _ if cause.hint is not None and cause.hint.key in unless:
            hint = None
        case CameIn(role, array, bad):
            hint = came_in(role, array, bad)
        case situation:
            hint = hint_for(situation)
    return replace(cause, hint=hint or cause.hint, situation=None)


def came_in(role: str, array: np.ndarray, bad: np.ndarray) -> Hint:
    """Return the hint for a bad value that came in from outside.

    `role`: one of "input", "shared", "constant", "folded".

    Examples
    --------
    >>> x = np.array([[1.0, 2.0], [np.nan, 3.0], [4.0, np.nan]])
    >>> came_in("input", x, np.isnan(x)).text
    'NaN often stands for what is missing: rows 1 and 2 of 3 hold one. Leave these rows out, ...'
    >>> came_in("constant", np.array([[1.0, np.nan], [2.0, np.nan]]), np.eye(2)[[1, 1]] > 0).text
    'Column 1 of 2 is NaN in every row. The standard deviation of equal numbers is 0, ...'
    >>> came_in("constant", np.array([1.0, np.inf]), np.array([False, True])).text
    'The data hold an Inf: element 1 of 2 is infinite. Leave this element out, ...'
    """
    found = array[bad]
    missing, infinite = (bool(f(found).all()) for f in (np.isnan, np.isinf))
    some = bad.ndim > 0 and not bad.all() and (missing or infinite)
    if np.isfinite(found).all():
        above = 10.0 ** (np.floor(np.log10(np.max(np.abs(found.astype(float))))) + 1)
        advice = f"{CAME_IN[role].advice} {_IF_RIGHT.format(above=f'{above:.0e}')}".lstrip()
        return replace(CAME_IN[role], advice=advice)
    if role not in _BEFORE or not some:
        return CAME_IN[role]
    if missing and bad.ndim == 2 and len(bad) > 1 and np.array_equal(bad.any(0), bad.all(0)):
        return Hint(_MISSING[role], *_columns(np.flatnonzero(bad[0]), bad.shape[1], role))
    rows = np.flatnonzero(bad.reshape(len(bad), -1).any(axis=1))
    listed = _listed(rows)
    one = len(rows) == 1
    if bad.ndim == 1:
        subject, verb = ("element", "is") if one else ("elements", "are")
        what = f"{verb} {'NaN' if missing else 'infinite'}"
    else:
        subject, what = ("row", "holds one") if one else ("rows", "hold one")
    these = f"this {subject}" if one else f"these {subject}"
    it = "it" if one and bad.ndim == 1 else "the entries"
    where = f"{subject} {listed} of {len(bad)} {what}"
    if missing:
        fact = f"NaN often stands for what is missing: {where}."
        advice = f"Leave {these} out, or fill {it} in {_BEFORE[role]}."
        return Hint(_MISSING[role], fact, advice)
    advice = f"Leave {these} out, or make {it} finite {_BEFORE[role]}."
    return Hint(CAME_IN[role].key, f"The data hold an Inf: {where}.", advice)


def _listed(numbers: Sequence[int]) -> str:
    """Return the first numbers as a text, and how many follow."""
    shown = [str(number) for number in numbers[:5]]
    last = f"{len(numbers) - 5} more" if len(numbers) > 5 else shown.pop()
    return " and ".join([", ".join(shown), last] if shown else [last])


def _columns(whole: Sequence[int], n: int, role: str) -> tuple[str, str]:
    """Return the fact and the advice on columns that are NaN in every row."""
    subject, these, verb = (
        ("Column", "this column", "is") if len(whole) == 1 else ("Columns", "these columns", "are")
    )
    return (
        f"{subject} {_listed(whole)} of {n} {verb} NaN in every row. The standard deviation of "
        "equal numbers is 0, and dividing by it gives NaN.",
        f"Leave {these} out {_BEFORE[role]}.",
    )


_MISSING = {"input": "missing-data", "constant": CAME_IN["constant"].key}
_BEFORE = {"input": "before the call", "constant": "before you build the graph"}
"""When data can be changed, by how they come in."""
