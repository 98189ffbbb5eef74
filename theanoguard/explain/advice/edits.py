"""An expression to write in place of a variable."""

from dataclasses import dataclass

from pytensor.graph.basic import Variable

from theanoguard.explain.advice.trials import Spot


@dataclass(frozen=True)
class Edit:
    """An expression to write in place of a variable."""

    variable: Variable
    code: str  # the expression, with PyTensor's module as ``pt``
    operands: dict[str, Variable]  # what the names in the code stand for
    spot: Spot  # knows the names and values of the operands
    #: The variables that the same code of the user computes, such as in a function that is called
    #: twice, and their operands.
    alike: dict[Variable, list[Variable]]
