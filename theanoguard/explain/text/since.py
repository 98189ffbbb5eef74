"""The sentence that says since when the numbers of a function's calls are unlike those before."""

from math import isnan

from theanoguard._shown import shown_by
from theanoguard._text import number_text
from theanoguard.explain.facts.records import Since


def since_text(since: Since) -> str:
    """Return the sentence.

    Examples
    --------
    >>> print(since_text(Since(7, 9, "input", "y", 2.1, 2.9, 1e6, 3e5, figure="magnitude")))
    Since call 7: the input y reaches a magnitude of 1e+06.  In the calls before, it was 2.9 at
    most, and usually 2.1.
    """
    first = "the first call" if since.call == 1 else f"call {since.call}"
    kind = "bad" if since.kind == "input" and isnan(since.value) else since.kind
    is_low = since.value < since.most
    kind = "size" if since.figure == "size" else kind
    kind = "once" if kind == "update" and since.step is None else kind
    said = _SAID[kind].format(
        name=f"the input {since.name}" if since.kind == "input" else since.name,
        usual=_number(since.usual),
        most=_number(since.most),
        value=_number(since.value),
        sizes=(since.value, since.most),
        growth=_number(since.growth),
        how=f"{since.rate:.4g}-fold"
        if since.rate is not None and since.growth > 20
        else f"by {_number(since.step or 0.0)}",
        reaches=f"{'goes down to' if is_low else 'reaches'}{_NOUNS.get(since.figure, '')}",
        bound="at least" if is_low else "at most",
    )
    after = ""
    if since.followed:
        names = ", ".join(f"{name} ({_number(growth)} times)" for name, growth in since.followed)
        after = f"  From then on the updates of others grew, too: {names}."
    return f"Since {first}: {said}{after}"


def _number(value: float) -> str:
    return number_text(float(f"{value + 0.0:.3g}"))  # (no -0.0)


shown_by(Since, since_text)

_SAID = {
    "set": "{name} was set before this call.  Its norm is {value}, and was {most} at most.",
    "turned": "{name} was set before this call, to another sign.  Its largest element is {value}, "
    "and was {most}.",
    "input": "{name} {reaches} {value}.  In the calls before, it was {most} {bound}, and "
    "usually {usual}.",
    "size": "{name} has the size {sizes[0]:.0f}.  Before, it had the size {sizes[1]:.0f}.",
    "update": "the updates of {name} grow {how} a call.  Their norm was {usual} until then, and "
    "{value} in the last good call.",
    "bad": "{name} has a NaN or an Inf, and none was seen in it before.",
    "once": "the update of {name} has the norm {value}.  Until then it was {usual}.",
    "value": "{name} grows {how} a call.  Its norm is {value}.",
}

_NOUNS = {
    "magnitude": " a magnitude of",
    "level": " a root mean square of",
}
