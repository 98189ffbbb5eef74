"""The objectives of ``pytensor.tensor.optimize``, which SciPy calls from Python.

An optimizer takes a NaN for a bad step: it returns where it began, and says so only in its second
output.  Its objective is compiled with a guard of its own, which raises out of the search.
"""

from collections.abc import Callable, Sequence
from typing import Any

from pytensor.compile.mode import Mode
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op

from theanoguard._provenance import watch_rewriting
from theanoguard._pytensor import inner_graph, is_optimizer, link_optimizer
from theanoguard.guard.errors import GuardError
from theanoguard.guard.policy import Policy
from theanoguard.guard.rewriting import WatchedMode

# What a report calls the function that an optimizer calls many times.
CALLED = {
    "MinimizeOp": "the objective of minimize",
    "MinimizeScalarOp": "the objective of minimize_scalar",
    "RootOp": "the function of root",
    "RootScalarOp": "the function of root_scalar",
}


def guarded_optimizers(
    order: Sequence[Apply], policy: Policy, make_linker: Callable[[Any], Any]
) -> dict[Apply, Op]:
    """Return a guarded operation for each node that is an optimizer.

    Where only results count there are none, since values met during the search are not results.

    `make_linker`: ``make_linker(linker)`` returns a guarded linker with the settings of a
    ``VMLinker``.
    """
    if policy.by_result:
        return {}

    def in_mode(mode: Mode) -> WatchedMode:
        return WatchedMode(mode.linker, mode.provided_optimizer, anywhere=policy.anywhere)

    made = {}
    for node in order:
        if is_optimizer(node.op) and not policy.exempts(node.outputs[0]):
            with watch_rewriting():
                op = link_optimizer(node.op, make_linker, in_mode)
            if op is not None:
                inner_graph(op).name = CALLED.get(type(op).__name__)
                made[node] = op
    return made


def raised_inside(error: BaseException | None) -> GuardError | None:
    """Return the error that the guard of an objective has raised, or None.

    A backend may have raised another one from it.  The context of an error does not count: where
    the user calls a function while handling a guard error, that one is the context.
    """
    while error is not None and not isinstance(error, GuardError):
        error = error.__cause__
    return error
