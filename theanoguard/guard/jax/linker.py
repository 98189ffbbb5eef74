"""The guard on the JAX backend: every call computes a flag, and a raised flag starts a replay.

``guard/graph/flagged.py`` writes the graph.  ``code.py`` has the JAX functions of its operations.
``runtime.py`` reads the flag.
"""

import copy
import warnings
from collections.abc import Callable, Collection
from typing import Any

from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Apply, Variable

from theanoguard._provenance import watch_rewriting
from theanoguard.guard.graph.flagged import FlagWriter, is_shared_random
from theanoguard.guard.graph.plan import FlaggedPlan
from theanoguard.guard.graph.runtime import GuardedLinker
from theanoguard.guard.jax import BACKEND
from theanoguard.guard.jax.runtime import JaxRuntime, Programs, reads_later

JAXLinker: Any = BACKEND.linker


class JaxGuardLinker(GuardedLinker, JAXLinker):
    """A ``JAXLinker`` whose functions are guarded.

    Raises ``ImportError``: if JAX is not installed.
    """

    # XLA fuses operations itself.  PyTensor's own mode for JAX excludes fusion as well.
    incompatible_rewrites = (*JAXLinker.incompatible_rewrites, "fusion")

    backend = BACKEND

    def runtime(
        self, order: list[Apply], input_storage: list[list], storage_map: dict[Variable, list]
    ) -> JaxRuntime:
        from theanoguard.guard.jax import code  # loads JAX

        random = [v for v in self.fgraph.inputs if is_shared_random(v)]
        if random:
            warnings.warn(
                f"{random}: random states of JAX are not NumPy's. The function draws from a copy "
                "of its own, and does not change the shared variable.",
                UserWarning,
                stacklevel=2,
            )
        for variable in random:
            shared = storage_map[variable]
            at = next(i for i, cell in enumerate(input_storage) if cell is shared)
            storage_map[variable] = input_storage[at] = [copy.deepcopy(shared[0])]
        self.create_thunk_inputs(storage_map)  # (converts random states to JAX's form)
        with watch_rewriting():
            plan = FlaggedPlan(self.fgraph, order, self.policy, code.inner_graphs)
        plan.kept = kept_values(plan)
        device = code.device()
        later = reads_later(self.policy, device)

        def compiled(on_purpose: Collection[Variable] | None) -> tuple[Callable, int]:
            writer = FlagWriter(plan, self.policy, on_purpose)
            traced = self.fgraph_convert(writer.graph, input_storage, {})
            if on_purpose is None:
                traced = code.without_flag(traced)
            elif later:
                traced = code.with_history(traced)
            return self.jit_compile(traced), writer.n_read

        programs = Programs(
            flagged=compiled,
            later=later,
            kernels=code.JaxKernels,
            no_history=code.no_history,
            own_copy=code.own_copy,
            held_bytes=code.held_bytes,
            device=device,
        )
        return JaxRuntime(self.policy, self.recorder, plan, storage_map, programs)


def kept_values(plan: FlaggedPlan) -> dict[Variable, int | None]:
    """Return the shared inputs that need not be checked again, and the output that updates each.

    JAX arrays are immutable.  So an array that a checked update has stored is still good.
    """
    if plan.policy.trusted:
        return plan.kept
    return {
        v: output
        for v, output in plan.updates().items()
        if v in plan.inputs
        and isinstance(v, SharedVariable)
        and plan.is_clean(plan.fgraph.outputs[output])
    }
