"""Labelled arrays (``pytensor.xtensor``), which PyTensor computes as tensors."""

from collections.abc import Sequence

from pytensor.compile.mode import optdb
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import graph_inputs, toposort

LOWERING = "lower_xtensor"
"""The name of PyTensor's rewriter that replaces operations on labelled arrays."""

LABELLED = "theanoguard_labelled"
"""The tag of a variable that an operation on labelled arrays was lowered to."""


def is_labelled(variable: Variable) -> bool:
    """Whether a variable takes the place of a labelled array."""
    return getattr(variable.tag, LABELLED, False)


def unlabelled(variables: Sequence[Variable]) -> list[Variable]:
    """Return variables of the same values that operations on tensors compute.

    Their inputs and shared variables are the same, and may be labelled.
    """
    ops = [node.op for node in toposort(variables)]
    if not any(type(op).__module__.startswith("pytensor.xtensor.") for op in ops):
        return list(variables)
    outputs = clone_replace(variables)
    leaves = [v for v in graph_inputs(outputs) if not isinstance(v, Constant)]
    graph = FunctionGraph(leaves, outputs, clone=False)
    optdb.query(f"+{LOWERING}").rewrite(graph)
    return list(graph.outputs)
