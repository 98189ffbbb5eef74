"""An expression to write in place of a variable."""

from dataclasses import dataclass

from pytensor.graph.basic import Variable

from theanoguard.explain.advice.trials import Spot


@dataclass(frozen=True)
class Edit:
    """An expression to write in place of a variable.

    Parameters
    ----------
    code : str
        The expression, with PyTensor's module as ``pt``.
    operands : dict of str to Variable
        What the names in the code stand for.
    spot : Spot
        Knows the names and values of the operands.
    alike : dict of Variable to list of Variable
        The variables that the same code of the user computes, such as in a function that is called
        twice, and their operands.
    """

    variable: Variable
    code: str
    operands: dict[str, Variable]
    spot: Spot
    alike: dict[Variable, list[Variable]]
