"""Records of where one variable came from."""

from dataclasses import dataclass, field

from theanoguard._provenance.source import SourceLine
from theanoguard._shown import brief, displayed


@brief
@dataclass(frozen=True)
class RewriteStep:
    """One rewrite between the user's node and a compiled node.

    Parameters
    ----------
    reason : str
        Name of the rewrite.
    op : str
        The operation before the rewrite, or the variable if it was not computed.
    name : str or None
        Name of the variable before the rewrite.
    source : SourceLine or None
        The user's line in the stack trace of that variable, if it had one.
    """

    reason: str
    op: str
    name: str | None
    source: SourceLine | None

    def __str__(self) -> str:
        return f"{self.reason} <- {self.op}"


@brief
@dataclass(frozen=True)
class Backward:
    """The cost and the forward node that a node made by ``grad`` belongs to.

    Parameters
    ----------
    cost : str or None
        Name of the cost, or its operation if it has no name; None if the cost is not known.
    forward : str or None
        Operation of the forward node that this node differentiates.  None if this node only sums
        up the gradient of an input of the graph, or if the forward node could not be found.
    forward_name : str or None
        Name of the forward node's output, or of that input.
    forward_source : SourceLine or None
        The user's line of the forward node or of that input.
    grad_source : SourceLine or None
        The user's line that called ``grad``.
    """

    cost: str | None
    forward: str | None
    forward_name: str | None
    forward_source: SourceLine | None
    grad_source: SourceLine | None


@displayed
@dataclass(frozen=True)
class Provenance:
    """Where a variable of a compiled graph came from.

    Parameters
    ----------
    source : SourceLine or None
        The user's line that made the node from which this one was rewritten.  For a node made
        by ``grad``, the line that called ``grad``.
    own_source : bool
        True if `source` is the line of that very node.  False if PyTensor left no stack trace on
        it, and `source` is the line of its nearest neighbour in the user's graph.
    name : str or None
        Name of the variable, or of the nearest variable of the user's graph that has one: the
        name that the user gave it, else the name that the user's code assigns it to.
    own_name : bool
        True if `name` belongs to this variable or to one with an equal value.  False if it
        belongs only to the nearest variable.
    expression : str or None
        The expression of the user's code that gives this value, if the variable equals one of
        the user's graph.
    operands : tuple of str
        The operands in that expression, as they are written there.
    candidates : tuple of SourceLine
        If the line is not certain, all possible lines, including `source`.
    op : str or None
        The operation of the user's node; None for an input or a constant.
    history : tuple of RewriteStep
        The rewrites, latest first.
    merged : tuple of SourceLine
        The user's other lines whose equal nodes were merged into this one.
    inner : tuple of Provenance
        For a fused node (``Composite``, and 3.3's ``FusedElemwise``), one for each node of its
        inner graph, in the order of the graph's ``toposort()``.
    backward : Backward or None
        None for a node of the forward graph.
    ndim : int or None
        Number of dimensions of the variable that `name` or `expression` describes.  The compiled
        variable may have more, because rewrites add dimensions of length 1.
    """

    source: SourceLine | None
    own_source: bool = True
    name: str | None = None
    own_name: bool = False
    expression: str | None = None
    operands: tuple[str, ...] = ()
    candidates: tuple[SourceLine, ...] = ()
    op: str | None = None
    history: tuple[RewriteStep, ...] = ()
    merged: tuple[SourceLine, ...] = ()
    inner: tuple["Provenance", ...] = ()
    backward: Backward | None = None
    ndim: int | None = field(default=None, compare=False, repr=False, metadata={"json": False})

    def __str__(self) -> str:
        what = [self.expression or self.op, f"named {self.name}" if self.own_name else None]
        told = [
            ("", ", ".join(filter(None, what)) or "an input or a constant"),
            ("" if self.own_source else "near ", self.source or "the line is not known"),
            *(("or ", line) for line in self.candidates if line != self.source),
            *(("merged with ", line) for line in self.merged),
            *(("rewritten by ", step) for step in self.history),
            *(("fused: ", part.expression or part.op) for part in self.inner),
        ]
        return "\n  ".join(f"{word}{text}" for word, text in told)


def user_line(provenance: Provenance) -> SourceLine | None:
    """Return the user's line; for a gradient, the line that is differentiated.

    For a gradient that an operation of the user's own computes, it is the line that computes it.
    """
    backward, line = provenance.backward, provenance.source
    if backward is None or backward.forward_source is None or in_own_gradient(provenance):
        return line
    return backward.forward_source


def in_own_gradient(provenance: Provenance) -> bool:
    """Return whether a method of the user's own operation computes a gradient."""
    line = provenance.source
    return provenance.backward is not None and line is not None and line.function in GRADIENTS


GRADIENTS = ("grad", "L_op", "pullback")  # methods of operations that compute gradients
