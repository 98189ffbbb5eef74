"""Records of a bad value: :class:`GuardEvent`, plain data, and :class:`Trip`, with the live graph.

An event can be pickled and compared, and outlives the call.  A trip refers to the graph and to
the values of the call, and is valid only until the next call of the function.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeAlias

import numpy as np

from theanoguard._json import from_plain, to_plain
from theanoguard._shown import brief
from theanoguard._text import shortened


@brief
@dataclass(frozen=True)
class PathStep:
    """One step into an inner graph on the way to the bad value.

    Parameters
    ----------
    op : str
        The operation that owns the inner graph, as PyTensor prints it.
    step : int or None
        For a ``Scan``, which iteration of its body was running (from 0).
    forward : int or None
        For the gradient of a ``Scan``, the iteration of that whose derivative it is.
    """

    op: str
    step: int | None = None
    forward: int | None = None

    def __str__(self) -> str:
        return self.op if self.step is None else f"{self.op}, step {self.step}"


WORDS = {"nan": "NaN", "inf": "Inf", "big": "Big value", "digits": "Lost digits"}
"""Names of the kinds of bad values in a report."""

MOST_CHARACTERS = 60  # characters of a name or of an operation in the text of an event


def row_name(name: str | None, written: str | None, updated: str | None = None) -> str:
    """Return what a value is called in every view: its name with its expression.

    - `name`, `written`: the user's name and expression.
    - `updated`: the shared variable whose new value it is.

    Examples
    --------
    >>> row_name("loss", "pt.log(p)"), row_name(None, "p - 0.1 * g", "W1"), row_name("x", None)
    ('loss = pt.log(p)', 'W1 <- p - 0.1 * g', 'x')
    """
    written = written and " ".join(written.split())
    if updated is not None:
        return f"{updated} <- {written}" if written else f"update of {updated}"
    # (PyTensor calls the result of ``x.mean()`` "mean")
    if name and written and name != written and not re.search(rf"\b{re.escape(name)}\(", written):
        return f"{name} = {written}"
    return written or name or ""


def compiled_as(node: str | None) -> str | None:
    """Return a node as it is shown where the expression is not known: a fused one as a formula.

    Examples
    --------
    >>> compiled_as("Composite{exp((i0 + i1))}(h, b)"), compiled_as("Log(x)")
    ('exp((h + b))', 'Log(x)')
    """
    found = re.fullmatch(r"Composite\{(.*)\}\((.*)\)", node or "")
    if found is None:
        return node
    formula, operands = found[1], found[2].split(", ")
    if {int(n) for n in re.findall(r"\bi(\d+)\b", formula)} != {*range(len(operands))}:
        return "a fused operation"
    return re.sub(r"\bi(\d+)\b", lambda one: operands[int(one[1])], formula)


def _marked(line: Any) -> str | None:
    """Return the part of a SourceLine that made a value, None if it is not known."""
    return line.text[slice(*line.marked)] if line is not None and line.marked else None


@brief
@dataclass(frozen=True, eq=False, repr=False)  # a NaN is not equal to itself
class GuardEvent:
    """A bad value that the guard has found.

    Parameters
    ----------
    kind : {"nan", "inf", "big", "digits"}
        The kind of the first bad element.  "digits" is an output that has lost digits
        (:class:`MeasuredCalls`).
    role : {"node", "input", "shared", "constant"}
        Whether an operation computed the value or it came in.  Events of :func:`watching` have
        "weight", "gradient", "update" or "output".  Events of a :class:`GradientGuard` have
        "gradient norm".
    node : str or None
        The node that computed the value.  None unless `role` is "node".
    op : str or None
        The operation of that node.
    variable : str or None
        Name of the variable, if it has one.
    output : int
        Number of the node's output; 0 for an input.
    dtype : str
    shape : tuple of int
    size : int
        Number of elements that were checked.  For a sparse matrix, of the stored elements.
    n_nan, n_posinf, n_neginf, n_big : int
        Of the elements that the operation made bad, or that came in: the number that are NaN, +Inf,
        -Inf, and finite but above the threshold.  An element that follows from a bad operand, or
        that is allowed, does not count.
    first_index : tuple of int
        Index of the first bad element in C order.  For a sparse matrix, row and column.
    first_value : float, complex or int
        That element.
    path : tuple of PathStep
        The inner graphs that contain the node, outermost first.
    call : int
        Number of the call, from 1.
    function : str or None
        Name of the function.
    batch, epoch : int or None
        Batch and epoch of a training, from 1, if :func:`watching` counts them.
    update_of : str or None
        The shared variable whose new value it is.
    explanation : Explanation or None
        The explanation of the first event with the same cause.  It is not compared, and not written
        to JSON.
    line : SourceLine or None
        Your line, if there is no explanation.  Like `explanation`, it is not compared.
    """

    kind: str
    role: str
    node: str | None
    op: str | None
    variable: str | None
    output: int
    dtype: str
    shape: tuple[int, ...]
    size: int
    n_nan: int
    n_posinf: int
    n_neginf: int
    n_big: int
    first_index: tuple[int, ...]
    first_value: Any
    path: tuple[PathStep, ...] = ()
    call: int = 1
    function: str | None = None
    batch: int | None = None
    epoch: int | None = None
    update_of: str | None = None
    explanation: Any = field(default=None, metadata={"json": False})
    line: Any = field(default=None, metadata={"json": False})

    def attach(self, explanation: Any, line: Any = None) -> None:
        """Set the explanation, or the line, which are found out after the event was recorded."""
        object.__setattr__(self, "explanation", explanation)
        object.__setattr__(self, "line", line)

    @property
    def source(self) -> Any:
        """The user's line that made the value, as a SourceLine; None where it is not known."""
        return self.line if self.explanation is None else self.explanation.cause.source

    @property
    def written(self) -> str | None:
        """The expression that made the value, as you wrote it; None where it is not known.

        Of an update, with the shared variable: ``W1 <- p - 0.1 * g``.
        """
        if self.explanation is None:
            found: str | None = _marked(self.line)
            return found and row_name(None, found, self.update_of)
        cause = self.explanation.cause
        if cause.backward:
            marked = _marked(cause.source)
            return marked and f"gradient of {marked}"
        if (found := cause.provenance.expression) is not None:
            return row_name(None, found, None if cause.fused else self.update_of)
        # (a fused update of a shared variable that came in bad)
        return cause.name if self.role == "node" != cause.role else None

    @property
    def what(self) -> str:
        """The variable, else the expression, the operation or the role."""
        op = compiled_as(self.node) if (self.op or "").startswith("Composite{") else self.op
        return self.variable or self.written or op or self.role

    @property
    def title(self) -> str:
        """The first line of a report without an explanation: ``NaN in Log at element [2]``."""
        where = f" in {self.what}"
        at = f" at element [{', '.join(map(str, self.first_index))}]" if self.shape else ""
        return f"{WORDS.get(self.kind, self.kind)}{where}{at}"

    @property
    def n_bad(self) -> int:
        """Number of bad elements of this event, of all kinds."""
        return self.n_nan + self.n_posinf + self.n_neginf + self.n_big

    def _fields(self) -> tuple[str, ...]:
        kept = (f.name for f in fields(self) if f.metadata.get("json", True))
        return tuple(repr(getattr(self, name)) for name in kept)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GuardEvent) and self._fields() == other._fields()

    def __hash__(self) -> int:
        return hash(self._fields())

    def __repr__(self) -> str:
        what = shortened(self.what, MOST_CHARACTERS)
        inside = "".join(f", inside {step}" for step in self.path)
        of = f" of {self.function}" if self.function else ""
        place = list(self.first_index)
        at = f" at {place}" if place else ""
        return (
            f"<GuardEvent {self.kind} in {what}{at}{inside}, {self.n_bad} of {self.size} bad, "
            f"call {self.call}{of}>"
        )

    def to_json(self) -> str:
        """Return the event as a line of JSON, from which :meth:`from_json` restores it.

        Returns
        -------
        str
            An object with the fields of the event, and ``"schema"``, which names the format
            and its version (:data:`SCHEMA`).  Tuples are arrays, a step of the path is
            ``[op, step]``.  What JSON has no number for is an object with one key:
            ``{"float": "nan"}`` (also ``"inf"``, ``"-inf"``), ``{"complex": [real,
            imaginary]}``, and for a NumPy scalar ``{"numpy": [dtype, value]}``.

        Examples
        --------
        >>> from theanoguard.records import GuardEvent
        >>> from theanoguard.records import PathStep
        >>> event = GuardEvent("nan", "node", "Log(x)", "Log", None, 0, "float64", (3,), 3,
        ...                    1, 0, 0, 0, (2,), float("nan"), (PathStep("Scan", 4),))
        >>> line = event.to_json()
        >>> line[:40]
        '{"schema": "theanoguard.event/3", "kind"'
        >>> restored = GuardEvent.from_json(line)
        >>> restored.path, restored.first_index, restored.first_value
        ((PathStep(op='Scan', step=4, forward=None),), (2,), nan)
        """
        return json.dumps(self.to_plain(), allow_nan=False)

    def to_plain(self) -> dict[str, Any]:
        """Return what :meth:`to_json` writes as dictionaries, lists, strings and numbers."""
        record = to_plain(self)
        record["path"] = [[step.op, step.step] for step in self.path]
        for name in ("shape", "first_index"):
            record[name] = [int(n) for n in getattr(self, name)]
        return {"schema": SCHEMA, **record}

    @classmethod
    def from_json(cls, text: str | bytes) -> "GuardEvent":
        """Restore an event from the JSON that :meth:`to_json` gave.

        Parameters
        ----------
        text : str

        Returns
        -------
        GuardEvent

        Raises
        ------
        ValueError
            If the text is not JSON, or not of this schema and version.
        """
        return cls.from_plain(json.loads(text))

    @classmethod
    def from_plain(cls, record: Mapping[str, Any]) -> "GuardEvent":
        """Restore an event from what :meth:`to_plain` gave; raises as :meth:`from_json`."""
        schema = record.get("schema") if isinstance(record, dict) else None
        if schema not in READABLE:
            raise ValueError(
                f"not a guard event of schema {SCHEMA!r}, but {schema!r}.\n"
                "Read it with the version of theanoguard that wrote it."
            )
        record = {name: value for name, value in record.items() if name != "schema"}
        record["path"] = [{"op": op, "step": step} for op, step in record.get("path", ())]
        return from_plain(cls, record)


SCHEMA = "theanoguard.event/3"
"""Name and version of the JSON format of an event; the version changes with its fields.

Version 3 has `update_of`.  Version 1 has neither `batch` nor `epoch`.
"""

READABLE = ("theanoguard.event/1", "theanoguard.event/2", SCHEMA)
"""The versions that :meth:`GuardEvent.from_json` reads."""

Place: TypeAlias = tuple[Any, ...]  # what events of the same operation share

Cause: TypeAlias = tuple[str, Place]
"""What events share that the guard explains once: the kind of bad value, and the place."""


def place_of(event: GuardEvent) -> Place:
    """Return the place of an event."""
    inside = tuple(step.op for step in event.path)
    return event.function, event.role, event.node, event.variable, event.output, inside


def cause_of(event: GuardEvent) -> Cause:
    """Return the cause of an event."""
    return event.kind, place_of(event)


@dataclass(frozen=True)
class Frame:
    """An inner graph that was being executed when the guard tripped."""

    node: Any  # the node, in the graph one level up, whose inner graph this is
    fgraph: Any  # the inner graph as it was linked
    step: int | None  # iteration of a ``Scan``


@dataclass
class Trip:
    """Everything at hand at the moment the guard tripped."""

    event: GuardEvent
    fgraph: Any  # the compiled graph of the function that was called
    inputs: Mapping[Any, Any]  # values of ``fgraph.inputs`` as they were when the call began
    #: The variable whose value is bad; belongs to ``frames[-1].fgraph`` or, without frames, to
    #: `fgraph`.
    variable: Any
    value: Any  # the bad value itself, as the live call left it
    #: ``is_bad(array)`` gives the boolean mask of bad elements under the policy.
    is_bad: Callable[[np.ndarray], np.ndarray]
    frames: list[Frame] = field(default_factory=list)  # inner graphs entered, outermost first
    #: Outputs of nodes that must not be run a second time, as ``Replay`` takes them.
    live: Mapping[Any, Any] = field(default_factory=dict)
    #: ``guarded(array)`` gives the mask of everything that the policy reports, of any kind.
    guarded: Callable[[np.ndarray], np.ndarray] | None = None
    #: ``kernels()`` gives what computes single nodes as the backend does, where that is not C code.
    kernels: Callable[[], Any] | None = None
    lost: str | None = None  # why nothing can be computed again from `inputs`; None if it can
    #: Values that inputs had in an earlier call, where they were kept.
    earlier: Mapping[Any, Any] = field(default_factory=dict)
    #: Values of other variables of `fgraph` that the guard has computed again.
    computed: Mapping[Any, Any] = field(default_factory=dict)
    counts_as_big: bool = False  # whether the policy allows an Inf, and reports it as a big value
