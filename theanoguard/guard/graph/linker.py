"""Links functions of a backend whose program returns a flag as one more result."""

from collections.abc import Callable

from pytensor.graph.fg import FunctionGraph

from theanoguard._evaluate.replay import Kernels
from theanoguard._provenance import watch_rewriting
from theanoguard.guard.graph.flagged import FlagWriter
from theanoguard.guard.graph.plan import FlaggedPlan
from theanoguard.guard.graph.runtime import FlaggedRuntime, GuardedLinker


class FlaggedLinker(GuardedLinker):
    """Mixin of the linkers of backends whose calls return when they have computed."""

    fgraph: FunctionGraph
    fgraph_convert: Callable  # (PyTensor's linker has these)
    jit_compile: Callable

    def flagged(
        self,
        order: list,
        input_storage: list,
        storage_map: dict,
        graphs_inside: Callable,
        kernels: Kernels,
    ) -> FlaggedRuntime:
        """Return the guard of the function.

        - `order`, `input_storage`, `storage_map`: those of ``runtime``.
        - `graphs_inside`: ``graphs_inside(node)`` returns the graphs of a node that are compiled on
          their own.
        - `kernels`: compute single nodes as the backend does.
        """
        with watch_rewriting():
            plan = FlaggedPlan(self.fgraph, order, self.policy, graphs_inside)

        def compiled(on_purpose: frozenset | None) -> tuple[Callable, int]:
            writer = FlagWriter(plan, self.policy, on_purpose)
            graph = self.fgraph_convert(writer.graph, input_storage, {})
            return self.jit_compile(graph), writer.n_read

        return FlaggedRuntime(self.policy, self.recorder, plan, storage_map, compiled, kernels)
