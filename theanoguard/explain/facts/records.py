"""The parts of an explanation: plain data that can be pickled and kept after the call."""

import ast
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from theanoguard._arguments import checked
from theanoguard._event import WORDS, GuardEvent, PathStep
from theanoguard._json import from_plain, to_plain
from theanoguard._naming import element_text
from theanoguard._provenance import Provenance, SourceLine
from theanoguard._provenance.places import place_text
from theanoguard._provenance.records import user_line
from theanoguard._provenance.source import expression_of
from theanoguard._shown import brief, displayed
from theanoguard._steps import attempt, failures
from theanoguard._text import number_text
from theanoguard.explain.repro.script import Repro, save_repro
from theanoguard.operations.facts import Domain
from theanoguard.operations.names import shown_op

SCHEMA = "theanoguard.explanation/2"  # name and version of the plain form of an explanation


@dataclass(frozen=True)
class Range:
    """The values of one number for which a condition holds, all others being as in the call."""

    low: float = -math.inf
    high: float = math.inf
    #: `low_name`, `high_name`: the user's name of the number that is this end, if it is the value
    #: of a variable.
    low_name: str = ""
    high_name: str = ""


@dataclass(frozen=True)
class Condition:
    """A condition that a number of the call does not meet."""

    expression: str  # the user's formula of the number
    value: Any
    domain: Domain  # where the number has to lie
    #: The name of the input, shared variable or constant that decides it; empty if none does alone.
    leaf: str = ""
    role: str = ""  # one of "", "input", "shared", "constant"
    index: tuple[int, ...] = ()  # the element of the leaf
    at: Any = None  # its value; None for a slice
    is_own: bool = False  # whether the number is the leaf itself
    range: Range | None = None  # the values of the leaf for which the condition holds


@dataclass(frozen=True)
class Meaning:
    """The kind of a fault, and what a report says about it."""

    #: One of "lost", "too large", "none", "harmless", "big", "unknown".  "lost": the formula has a
    #: value in exact arithmetic, and the arithmetic loses it.  "too large": the value exceeds the
    #: dtype.  "none": the formula has no value.  "harmless": all results of the call are finite.
    #: "big": the value only exceeds the threshold.
    kind: str
    text: str = ""  # a sentence for the user, or an empty text
    origin: str = ""  # where a number outside of a domain came from, as a sentence
    kept: str = ""  # what keeps it inside, as sentences, unless there is a remedy
    general: bool = True  # whether the general advice of the hint follows if there is no remedy
    settled: bool = False  # whether `kept` goes before a remedy that changes the function
    #: The condition that a number does not meet, if the formula has no value there.
    condition: Condition | None = None
    whole: bool = False  # whether the text says all that a hint on the fault says


@brief
@dataclass(frozen=True)
class Hint:
    """An explanation of a bad value, and advice.

    Parameters
    ----------
    key : str
        Short name of the rule, such as ``"log-zero"``.
    fact : str
        What happens there; the whole text of a hint that the user has registered.
    advice : str
        What to do about it.
    origin : str
        Where the number came from.
    more : bool
        Whether the fact says more than the meaning of the fault.
    change : tuple of str
        The user's old and new line, if a remedy was found that helps the failing call.
    grade : {"", "same", "changes"}
        Whether the remedy is the same function, or changes the function; empty without a remedy.
    """

    key: str
    fact: str = ""
    advice: str = ""
    origin: str = ""
    change: tuple[str, ...] = ()
    grade: str = ""
    more: bool = field(default=False, repr=False, compare=False, metadata={"json": False})

    @property
    def text(self) -> str:
        """The whole text."""
        return " ".join(filter(None, (self.fact, self.origin, self.advice)))


@dataclass(frozen=True)
class Producer:
    """The operation that computed an operand, one step upstream."""

    op: str
    operands: tuple = ()
    ancestors: tuple[str, ...] = ()


@brief
@dataclass(frozen=True)
class Situation:
    """The facts that a rule can use.

    Parameters
    ----------
    op : str
        Name of the operation.
    operands : tuple
        Their values at the element: numbers, or arrays if the operation reads along an axis.
    result : number
        The result at the element.
    dtype : str
        The dtype in which it was computed.
    backward : bool
        Whether differentiation made the operation.
    forward : str
        Name of the operation that is differentiated, if it is known.
    producers : tuple of Producer
        The operation that computed each operand.
    in_scan : bool
        Whether the operation is in the body of a scan.
    step : int
        The step of that scan, from 0.
    in_gradient_scan : bool
        Whether that scan is the gradient of another scan.
    source : str
        Text of the user's line.
    zero_from : tuple of (str or None)
        For each operand that is exactly 0, the operation that made 0 from operands that are not 0;
        None if the 0 came in from outside.
    zero_steps : tuple of (int or None)
        For each operand in `zero_from`, the step of the loop in which the 0 was made.
    in_update : bool
        Whether the function updates shared variables.
    body : tuple of str
        Names of the operations in the loop around it.
    matrix : str
        For a decomposition, why the operand cannot be decomposed.
    indefinite : bool
        Whether it is symmetric, with an eigenvalue that is more negative than rounding makes.
    wrapped : str
        The value that the operand would have if its integers had not wrapped around.
    written : str
        Name of the operation in the user's code, which a rewrite may have replaced.
    own_gradient : str
        The method of the user's own operation that computes this gradient.
    line : SourceLine or None
        The user's line.
    update_lines : tuple of SourceLine
        The lines with the updates of the parameters that the operation depends on.
    """

    op: str
    operands: tuple
    result: Any
    dtype: str
    backward: bool = False
    forward: str = ""
    producers: tuple[Producer, ...] = ()
    in_scan: bool = False
    step: int = 0
    in_gradient_scan: bool = False
    source: str = ""
    zero_from: tuple[str | None, ...] = ()
    zero_steps: tuple[int | None, ...] = ()
    in_update: bool = False
    body: tuple[str, ...] = ()
    matrix: str = ""
    indefinite: bool = False
    wrapped: str = ""
    written: str = ""
    own_gradient: str = ""
    line: SourceLine | None = None
    update_lines: tuple[SourceLine, ...] = ()

    def underflowed(self, position: int, *names: str) -> bool:
        """Whether one of `names` made the 0 at `position` from operands that are not 0."""
        made = self.zero_from[position] if position < len(self.zero_from) else None
        return made is not None and made in names

    def made_by(self, position: int, *names: str) -> bool:
        """Whether the operand at `position` was computed by (or from) one of `names`."""
        if position >= len(self.producers):
            return False
        producer = self.producers[position]
        return producer.op in names or any(a in names for a in producer.ancestors)

    @property
    def limit(self) -> float:
        """The largest finite number of the dtype."""
        kind = np.dtype(self.dtype)
        return float(np.finfo(kind).max) if kind.kind in "fc" else float("inf")

    @property
    def exp_limit(self) -> float:
        """The operand above which ``exp`` overflows: 709.8 in float64, 88.7 in float32."""
        return round(float(np.log(self.limit)), 1)


@dataclass(frozen=True)
class CameIn:
    """A bad value that no operation made."""

    role: str  # one of "input", "shared", "constant", "folded"
    array: np.ndarray
    bad: np.ndarray


@brief
@dataclass(frozen=True)
class Operand:
    """An operand of the operation that made a bad value.

    Parameters
    ----------
    name : str
        Name of the variable, or a short expression.
    value : number or None
        The exact element; None if a whole region was read.
    index : tuple or None
        Its index in the variable, with slices if a region was read.
    shape : tuple of (int or None)
        None where a length is not known.
    dtype : str
    minimum, maximum : number or None
        Smallest and largest finite value that was read.
    constant : bool
    telling : tuple of (tuple of int, number) or None
        For a region, the element that contributes most to the result.  In a matrix product it
        belongs to the largest term.
    computed : bool
        Whether it is a value inside a fused operation, or has only a formula for a name.
    given : str
        For a value inside a fused operation, the numbers that it was computed from:
        ``1.0 - 2.0``.
    """

    name: str
    value: Any
    index: tuple | None
    shape: tuple[int | None, ...]
    dtype: str
    minimum: Any = None
    maximum: Any = None
    constant: bool = False
    telling: tuple[tuple[int, ...], Any] | None = None
    computed: bool = False
    given: str = ""

    @property
    def text(self) -> str:
        """The value of a single element, else the name with the part that was read."""
        if self.value is not None:
            return number_text(self.value)
        return element_text(self.name, self.index)


@brief
@dataclass(frozen=True)
class Waypoint:
    """One stop on the path from an input to the operation that made a bad value.

    Parameters
    ----------
    name : str
        The variable's name, or the operation.
    index : tuple
        The element there.
    value : number
        Its exact value.
    shape : tuple of int
    kind : {"node", "input", "shared", "constant", "state", "loop"}
        A state is passed by a scan from step to step.  A loop combines several steps of a scan.
    source : SourceLine or None
        The user's line.
    op : str or None
        The user's operation.
    path : tuple of PathStep
        The inner graphs that contain it.
    steps : tuple of (int, number)
        For a loop: step numbers, and the state at the beginning of each.
    is_users : bool
        Whether the name is the user's, or text of the user's line.
    """

    name: str
    index: tuple[int, ...]
    value: Any
    shape: tuple[int, ...]
    kind: str
    source: SourceLine | None = None
    op: str | None = None
    path: tuple[PathStep, ...] = ()
    steps: tuple[tuple[int, Any], ...] = ()
    is_users: bool = True


@brief
@dataclass(frozen=True)
class Cause:
    """An operation, or an outside value, that a bad value comes from.

    Parameters
    ----------
    kind : {"nan", "inf", "big", "extreme"}
        The kind of bad value.
    role : {"node", "input", "shared", "constant"}
    op : str or None
        Name of the operation.  For a fused node, the inner scalar operation.
    node : str or None
        The Apply node that holds it.
    fused : bool
        Whether the node is a fused one.
    name : str
        Name of the variable, the nearest name, or a short expression.
    own_name : bool
        Whether the user gave the name to this variable.
    expression : str
        The operation with its operands' values.
    operands : tuple of Operand
    index : tuple of int
        The element.
    value : number
        The exact value of the element.
    shape : tuple of int
    dtype : str
    n_bad, size : int
        Number of bad elements, and number of all elements.
    minimum, maximum : number or None
        Smallest and largest finite value.
    provenance : Provenance
        Where the operation comes from.
    path : tuple of PathStep
        The inner graphs entered, outermost first.
    hint : Hint or None
    situation : Situation, CameIn or None
        What a hint can be chosen by, until it is.
    around : SourceLine or None
        The user's line of the innermost scan, or other operation with an inner graph, around the
        operation.
    differentiated : tuple of Operand
        For a gradient, the operands of the operation that is differentiated, at the element where
        its derivative is not finite.
    """

    kind: str
    role: str
    op: str | None
    node: str | None
    fused: bool
    name: str
    own_name: bool
    expression: str
    operands: tuple[Operand, ...]
    index: tuple[int, ...]
    value: Any
    shape: tuple[int, ...]
    dtype: str
    n_bad: int
    size: int
    minimum: Any
    maximum: Any
    provenance: Provenance
    path: tuple[PathStep, ...] = ()
    hint: Hint | None = None
    situation: Situation | CameIn | None = field(
        default=None, repr=False, compare=False, metadata={"json": False}
    )
    around: SourceLine | None = None
    differentiated: tuple[Operand, ...] = ()

    @property
    def backward(self) -> Any:
        """Whether differentiation made the operation."""
        return self.provenance.backward is not None

    @property
    def source(self) -> SourceLine | None:
        """The user's line; for a gradient, the line that is differentiated."""
        return user_line(self.provenance)


@brief
@dataclass(frozen=True)
class Fate:
    """Whether a bad value survived the rest of the call.

    Parameters
    ----------
    survives : bool
        Whether an output or update of the function is bad.
    outputs : tuple of str
        The bad outputs and updates.
    masked_by : tuple of str
        Operations that read a bad value and returned sound values.
    """

    survives: bool
    outputs: tuple[str, ...]
    masked_by: tuple[str, ...]


ROLES = {"input": "input", "shared": "shared variable", "constant": "constant"}
"""Names in a report for values that come in from outside."""


@displayed
@dataclass(frozen=True)
class Since:
    """Since when the numbers of a function's calls are unlike those before.

    Parameters
    ----------
    call : int
        The first call that is unlike those before.
    last : int
        The call that failed, or the last one.
    kind : {"set", "turned", "input", "update", "value", "bad"}
        What began it: a shared variable that was set between two calls, maybe to another sign, an
        input, the updates of a shared variable, a value that grew all the time, or a NaN or Inf in
        a value.
    name : str
        Of the input, of the shared variable or of the output.
    usual : float
        Median of `figure` until then.
    most : float
        The largest until then.
    value : float
        Of an input or a variable that was set, what it was in `call`; else in the last good call.
    growth : float
        How many times as large as before it became.
    rate, step : float or None
        By which factor, and by how much, it grew in each call.
    followed : tuple of (str, float)
        Shared variables whose updates grew from then on, and by which factor.
    figure : {"norm", "magnitude", "level", "largest", "smallest", "size"}
        Which figure left its history: of an input its largest magnitude, its root mean square, its
        largest or smallest element, or its number of elements.
    """

    call: int
    last: int
    kind: str
    name: str
    usual: float
    most: float
    value: float
    growth: float
    rate: float | None = None
    step: float | None = None
    followed: tuple[tuple[str, float], ...] = ()
    figure: str = "norm"


@displayed
@dataclass(frozen=True)
class Explanation:
    """The explanation of a bad value: plain data that can be pickled and kept after the call.

    Parameters
    ----------
    event : GuardEvent
        The bad value that the guard found.
    cause : Cause
        The first operation that made a bad value, or the bad value that came in from outside.
    deeper : Cause or None
        If `cause` read an infinite operand that the policy allows, the cause of that operand.
    meaning : Meaning or None
        Whether the user's formula has a value in exact arithmetic.
    waypoints : tuple of Waypoint
        The path from an input to the cause.
    left_out : int
        How many stops of a long path are left out after the first :data:`FAR`.
    reproduced : bool
        Whether the replay gave the same bad value.  If not, `cause` describes what the guard saw
        during the call.
    notes : tuple of str
    fate : Fate or None
        None unless it was requested.
    feeds : tuple of str
        The outputs and updates of the function that are computed from the bad value.
    repro : Repro or None
        The data that :meth:`save_repro` writes.
    failed : tuple of str
        What could not be computed because of a fault in theanoguard, each with the error.
    since : Since or None
        What left its own history first, if the mode has ``history=True``.
    """

    event: GuardEvent
    cause: Cause
    deeper: Cause | None = None
    meaning: Meaning | None = None
    waypoints: tuple[Waypoint, ...] = ()
    left_out: int = 0
    reproduced: bool = True
    notes: tuple[str, ...] = ()
    fate: Fate | None = None
    feeds: tuple[str, ...] = ()
    repro: Repro | None = field(default=None, repr=False, compare=False, metadata={"json": False})
    failed: tuple[str, ...] = ()
    since: Since | None = None

    @checked
    def save_repro(self, path: str | os.PathLike[str], as_built: bool = False) -> Path:
        """Write a standalone script that shows the fault, and its data file.

        Parameters
        ----------
        path : str or Path
            Path of the script.  The data file has the same name and the suffix ``.npz``.
        as_built : bool
            Write the whole function as the user built it, before any rewrite, instead of only the
            failing operation.

        Returns
        -------
        Path
            The script.

        Raises
        ------
        ValueError
            If the fault cannot be reproduced.
        """
        return save_repro(self, path, as_built)

    def to_plain(self) -> dict[str, Any]:
        """Return the explanation as dictionaries, lists, strings and numbers, ready for JSON.

        Returns
        -------
        dict
            ``"schema"`` names the format and its version (:data:`SCHEMA`).  ``"event"`` is the
            result of :meth:`GuardEvent.to_json`.  The other keys are the fields; each record
            becomes an object with its own fields.  NaN and infinity are written as in an event.  A
            slice in an index becomes ``{"slice": [start, stop, step]}``.  Only `repro` is left
            out, because it holds whole arrays.

        Examples
        --------
        >>> from theanoguard.records import GuardEvent
        >>> import json
        >>> from theanoguard.explain import Cause, Explanation
        >>> from theanoguard._provenance import Provenance, SourceLine
        >>> event = GuardEvent("nan", "node", "Log(x)", "Log", None, 0, "float64", (3,), 3,
        ...                    1, 0, 0, 0, (2,), float("nan"))
        >>> line = SourceLine("train.py", 7, "loss", "return pt.log(p)")
        >>> cause = Cause("nan", "node", "log", "Log.0", False, "log(x)", False, "log(-1.0)", (),
        ...               (2,), float("nan"), (3,), "float64", 1, 3, 0.0, 1.0, Provenance(line))
        >>> text = json.dumps(Explanation(event, cause).to_plain())
        >>> restored = Explanation.from_plain(json.loads(text))
        >>> restored.cause.expression, restored.cause.value, restored.cause.source.line
        ('log(-1.0)', nan, 7)
        """
        return {"schema": SCHEMA, **to_plain(self), "event": self.event.to_plain()}

    @classmethod
    def from_plain(cls, record: Mapping[str, Any]) -> "Explanation":
        """Restore an explanation, without its `repro`, from the result of :meth:`to_plain`.

        Raises
        ------
        ValueError
            If `record` has another schema or version.
        """
        schema = record.get("schema") if isinstance(record, dict) else None
        if schema != SCHEMA:
            raise ValueError(
                f"not an explanation of schema {SCHEMA!r}, but {schema!r}.\n"
                "Read it with the version of theanoguard that wrote it."
            )
        event = GuardEvent.from_plain(record["event"])
        rest = {k: v for k, v in record.items() if k not in ("schema", "event")}
        return replace(from_plain(cls, {**rest, "event": None}), event=event)

    @property
    def brief(self) -> str:
        """The kind of the value, the operation and the place: ``NaN in log, net.py:15:12``."""
        with failures():
            return attempt("the text", self.event.title, self._brief)

    def _brief(self) -> str:
        cause = self.cause
        what = shown_op(cause.op) if cause.op else leaf_text(cause.role, cause.name)
        where = f", {place_text(cause.source)}" if cause.source is not None else ""
        return f"{WORDS[cause.kind]} in {what}{where}"

    @property
    def advice(self) -> Hint | None:
        """The hint that the report shows: that of the cause to repair."""
        behind = self.deeper is not None and self.deeper.role == "node"
        return (behind and self.deeper.hint) or self.cause.hint  # type: ignore[union-attr]

    @property
    def made_here(self) -> bool:
        """True if an operation of the function made the bad value, False if it came in."""
        return self.cause.role == "node"


def leaf_text(role: str, name: str, article: str = "") -> str:
    """Return an input, a shared variable or a constant as text.

    Examples
    --------
    >>> [leaf_text("constant", name, "the ") for name in ["w", "a constant of shape (2,)"]]
    ['the constant w', 'a constant of shape (2,)']
    """
    kind = ROLES[role]
    return name if name.startswith(f"a {kind} ") else f"{article}{kind} {name}"


def called_function(source: SourceLine | None) -> str | None:
    """Return the name of the function that the marked expression calls, such as ``"softmax"``."""
    if source is None or source.marked is None:
        return None
    call = expression_of(source.text[slice(*source.marked)])  # (None if over several lines)
    if not isinstance(call, ast.Call):
        return None
    return getattr(call.func, "attr", getattr(call.func, "id", None))
