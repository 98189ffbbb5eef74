"""The accurate formula for an operation of a graph that has lost digits, in the user's names."""

from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph

from theanoguard._evaluate.replay import Replay
from theanoguard._naming import MAX_DEPTH, name_of
from theanoguard._provenance import lookup
from theanoguard._provenance.source import expression_of
from theanoguard._steps import attempt, failures
from theanoguard.stable.improving import better_formulas


def formula_for(
    graph: FunctionGraph, variable: Variable, replay: Replay, seconds: float
) -> tuple[str, str] | None:
    """Return the code of an accurate formula, and the expression that it replaces, or None.

    - `variable`: variable of the graph.  The formula may be one of a variable that is computed from
      it.
    - `replay`: knows the values at which it is inaccurate.
    - `seconds`: limit of processor time.
    """
    with failures():
        return attempt("a formula", None, _formula_for, graph, variable, replay, seconds)


def _formula_for(
    graph: FunctionGraph, variable: Variable, replay: Replay, seconds: float
) -> tuple[str, str] | None:
    def own(v: Variable) -> str | None:
        found = lookup(graph, v)
        name = found.name if found.own_name else None
        return name or (found.expression if found.own_source else None)

    if variable not in graph.variables:
        return None
    clients = {v: [node for node, _ in graph.clients[v]] for v in graph.variables}
    for found in better_formulas(variable, clients, replay, seconds):
        formula = found.part.formula
        names = {v.variable: name_of(v.variable, MAX_DEPTH, own) for v in formula.leaves.values()}
        code, old = found.code(names), name_of(formula.variable, MAX_DEPTH, own)
        if expression_of(code) is not None and code != old:
            return code, old
    return None
