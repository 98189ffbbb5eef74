"""The one call by which a user states what is known of an operation."""

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.scalar.basic import ScalarOp

from theanoguard._arguments import checked
from theanoguard.operations.elementwise import Elementwise
from theanoguard.operations.facts import SCALARS, Domain, Kind, Scalar, register
from theanoguard.operations.reductions import Slices
from theanoguard.operations.regions import ANYTHING, Arrays, Dependence, Dims, Index, Region, Values


class Stated(Dependence):
    """The dependence that a function states, element by element."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def regions(self, node: Apply, inputs: Values, output: int, index: Index) -> list[Region]:
        return [Region(i, part) for i, part in self.function(node, inputs, output, index)]

    def reached(
        self, arrays: Arrays, node: Apply, inputs: Values, masks: Values, output: int, shape: Dims
    ) -> Any:
        if arrays.xp is not np:  # compiled code has no loop over the elements
            return super().reached(arrays, node, inputs, masks, output, shape)
        result: np.ndarray = np.zeros(shape, bool)
        for at in np.ndindex(shape):
            parts = self.regions(node, inputs, output, at)
            marked = [masks[r.operand][r.index] for r in parts if masks[r.operand] is not None]
            result[at] = any(np.any(mask) for mask in marked)
        return result


DEPENDS = {"everything": ANYTHING, "elements": Elementwise(), "slices": Slices()}


@checked
def register_operation(
    operation: type[Op],
    *,
    name: str | None = None,
    makes: str = "nan inf",
    carries: str | Sequence[str] = "",
    signals: str = "",
    depends: str | Callable[..., Any] = "everything",
    domain: str | None = None,
    formula: Callable[..., Any] | None = None,
    bound: float | None = None,
) -> None:
    """State what is known of an operation of your own.

    Without it, everything works as well, but less precisely: the guard reads all outputs of the
    operation, and reports name every element of its operands.  A statement that is wrong can hide a
    bad value, so leave out what you are not sure of.

    Parameters
    ----------
    operation : type
        A class of scalar operations, which ``Elemwise`` applies to each element, or of operations
        on arrays.
    name : str, optional
        The name in reports; by default that of the operation or its class.
    makes : str, optional
        Which bad values it may make from finite numbers: ``"nan inf"``, ``"nan"``, ``"inf"`` or
        ``""``.
    carries : str or sequence of str, optional
        Which bad values of an operand show in the first output for certain, for all operands or one
        by one.  A NaN has to show as a NaN, an Inf as an Inf or a NaN.
    signals : str, optional
        On which backends, ``"c"`` and ``"numba"``, the processor raises an exception flag whenever
        the operation makes a NaN or an Inf.  Compiled arithmetic does, literals such as ``NAN`` do
        not.
    depends : str or callable, optional
        For an operation on arrays, which elements of the operands an element of an output depends
        on: ``"everything"``; ``"elements"``, one of each operand, which are broadcast;
        ``"slices"``, all along the axes in the operation's attribute ``axis``.  Or
        ``depends(node, values, output, index)`` returns pairs of the number of an operand and a
        NumPy index of what is read of it.
    domain : str, optional
        The numbers for which it has a value, such as ``"x > 0"``, ``"-1 <= x <= 1"`` or
        ``"y != 0"``; x, y and z are the first operands.  The linter reports an operand that can
        leave it.
    formula : callable, optional
        ``formula(op, *operands)`` returns the same value in PyTensor's own operations.  Exact
        values and bounds come from it.
    bound : float, optional
        The largest magnitude that the result can have for finite operands.

    Raises
    ------
    TypeError
        If `operation` is no class of operations, or a setting does not apply to it.

    Examples
    --------
    >>> import pytensor.scalar as ps, pytensor.tensor as pt, theanoguard
    >>> from pytensor.tensor.elemwise import Elemwise
    >>> class LogOdds(ps.UnaryScalarOp):
    ...     def impl(self, p):
    ...         import numpy as np
    ...         return np.log(p) - np.log1p(-p)
    >>> log_odds = Elemwise(LogOdds(ps.upgrade_to_float, name="log_odds"))
    >>> theanoguard.ops.register_operation(
    ...     LogOdds,
    ...     carries="nan inf",
    ...     domain="0 < x < 1",
    ...     formula=lambda op, p: pt.log(p / (1 - p)),
    ... )
    >>> p = pt.dvector("p")
    >>> print(theanoguard.exact(log_odds(p), {p: [0.5, 1e-300]}))
    [0, -690.775527898]
    >>> [finding.rule for finding in theanoguard.lint(log_odds(p))]
    ['out-of-domain']
    """
    if not (isinstance(operation, type) and issubclass(operation, Op)):
        raise TypeError(f"register_operation takes a class of operations, not {operation!r}")
    shown = (carries,) if isinstance(carries, str) else tuple(carries)
    kinds = tuple(map(_kinds, shown))
    backends = tuple(signals.split())
    within = None if domain is None else _domain(domain)
    if issubclass(operation, ScalarOp):
        if depends != "everything":
            raise TypeError(f"{operation.__name__} is a scalar operation: leave out depends=")
        SCALARS[operation] = Scalar(
            carries=kinds,
            makes=_kinds(makes),
            signals=backends,
            bound=bound,
            domain=within,
            name=name,
            formula=formula,
        )
        return
    if isinstance(depends, str) and depends not in DEPENDS:
        raise TypeError(f"depends={depends!r} is not known; choose from {', '.join(DEPENDS)}")
    register(
        operation,
        depends=Stated(depends) if callable(depends) else DEPENDS[depends],
        makes=_kinds(makes),
        carries=lambda node, operand: kinds[operand if len(kinds) > 1 else 0],
        signals=lambda node, on_c: ("c" if on_c else "numba") in backends,
        domain=within,
        name=name,
        formula=formula,
        **({} if bound is None else {"bound": bound}),
    )


ENDS = {">": "above", ">=": "at_least", "<": "below", "<=": "at_most"}
MIRRORED = {"<": ">", "<=": ">="}


def _domain(text: str) -> Domain:
    """Return the domain that a condition describes, such as ``"0 < x <= 1"``."""
    match = re.fullmatch(r"(?:(\S+) (<=?) )?([xyz])(?: ([<>]=?|!=) (\S+))?", text)
    if match is None:
        raise TypeError(f"domain={text!r} is no condition like '0 < x <= 1' or 'y != 0'")
    low, mirrored, operand, sign, high = match.groups()
    ends: dict[str, Any] = {} if low is None else {ENDS[MIRRORED[mirrored]]: float(low)}
    if sign == "!=":
        ends["nonzero"] = True
    elif sign is not None:
        ends[ENDS[sign]] = float(high)
    return Domain(operand="xyz".index(operand), **ends)


def _kinds(words: str) -> Kind:
    """Return the kinds of bad values that a text names."""
    found = Kind.NONE
    for word in words.split():
        if word not in ("nan", "inf"):
            raise TypeError(f"a bad value is 'nan' or 'inf', not {word!r}")
        found |= Kind[word.upper()]
    return found
