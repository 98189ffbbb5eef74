"""Finds formulas that stable functions can replace, and replaces them."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from pytensor.graph.basic import Variable
from pytensor.graph.traversal import toposort

from theanoguard._arguments import checked
from theanoguard._graph import scalar_class
from theanoguard._lint import GraphBounds
from theanoguard._naming import name_of
from theanoguard._progress import searching
from theanoguard._provenance import SourceLine, source_line, stack_traces
from theanoguard._provenance.backward import gradient_frame
from theanoguard._shown import displayed
from theanoguard._steps import as_raised
from theanoguard.stable.patterns import FLOORS, PATTERNS, rebuild


@displayed
@dataclass(frozen=True)
class Replacement:
    """A part of a graph, and the stable function that can replace it.

    Parameters
    ----------
    form : str
        Name of the stable function, such as ``"log_softmax"``.
    old : str
        The expression to be replaced.
    source : SourceLine or None
        The user's line.
    variable : Variable
        The variable to be replaced.
    build : callable
        ``build(new)`` makes the stable form.  ``new(v)`` is the variable that replaces ``v``.
    """

    form: str
    old: str
    source: SourceLine | None
    variable: Variable = field(repr=False)
    build: Callable = field(repr=False)

    def __str__(self) -> str:
        where = "" if self.source is None else f"{self.source.file}:{self.source.line}: "
        return f"{where}{self.old} -> {self.form}"


@displayed
@dataclass(frozen=True)
class Stabilization:
    """The result of :func:`stabilize`.

    Parameters
    ----------
    outputs : tuple of Variable
    replacements : tuple of Replacement
        In the order in which the graph computes.
    """

    outputs: tuple = field(repr=False)
    replacements: tuple[Replacement, ...]

    def __str__(self) -> str:
        return "\n".join(map(str, self.replacements)) or "nothing to replace"

    @checked
    def apply(self, forms: Collection[str] | None = None) -> list[Variable]:
        """Make the replacements in a copy of the graph.

        Parameters
        ----------
        forms : collection of str, optional
            Names of the functions to use.  By default all.

        Returns
        -------
        list of Variable
            The new outputs, of the same types.  Take gradients of these: gradients of the old
            outputs do not change.
        """
        wanted = {r.variable: r for r in self.replacements if forms is None or r.form in forms}
        with as_raised():
            return rebuild(self.outputs, {v: r.build for v, r in wanted.items()})


@checked
@searching("stabilize")
def stabilize(graph: Variable | Sequence[Variable], *, floors: bool = False) -> Stabilization:
    """List the formulas of a graph that stable functions can replace.

    Parameters
    ----------
    graph : Variable or list of Variable
        The outputs of a graph, before you take gradients of them.  Gradients, and graphs inside of
        ``scan`` and ``OpFromGraph``, are left unchanged.
    floors : bool
        Whether to use :func:`theanoguard.stable.log`, ``sqrt`` and ``divide`` for operands that may
        be 0.  They replace each operand below their eps, so the new graph is another function
        there: a logarithm of 1e-200 becomes -354.2.  By default no form changes the function.

    Returns
    -------
    Stabilization
        ``print`` lists the replacements.  ``apply()`` makes them and returns the new outputs.

    Notes
    -----
    A formula whose operands are known to be safe is not replaced, such as ``log(x ** 2 + 1e-6)``.
    Without `floors`, value and gradient stay the same up to rounding where the old graph is finite
    and right.  A form's error
    is the error of its stable function.  For four elements, the error of ``exp(x - y)`` is at most
    ``4 * (1 + abs(x) + abs(y))`` ulp, and the error of ``log(x).sum()``, for ``log(prod(x))``, at
    most ``eps * sum(abs(log(x)))``.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> from theanoguard.stable import stabilize
    >>> h = pt.matrix("h")
    >>> found = stabilize(-pt.log(pt.special.softmax(h, axis=1)).mean())
    >>> [replacement.form for replacement in found.replacements]
    ['log_softmax']
    >>> (loss,) = found.apply()
    >>> loss.eval({h: [[0.0, 1000.0]]})
    array(500.)
    """
    outputs = list(graph) if isinstance(graph, Sequence) else [graph]
    for v in outputs:
        if not isinstance(v, Variable):
            raise TypeError(
                f"stabilize() takes variables, not {type(v).__name__}.\n"
                "Give it the outputs of a graph, before they are compiled."
            )
    bounds = GraphBounds()
    found = []
    for node in toposort(outputs):
        variable = node.outputs[0]
        match = PATTERNS.get(scalar_class(variable))
        if match is None or gradient_frame(stack_traces(variable)):
            continue
        if variable.type.dtype.startswith("float") and (matched := match(variable, bounds)):
            form, build = matched
            if form in FLOORS and not floors:
                continue
            old = name_of(variable)
            found.append(Replacement(form, old, source_line(variable), variable, build))
    return Stabilization(tuple(outputs), tuple(found))
