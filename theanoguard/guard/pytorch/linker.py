"""The guard on the PyTorch backend: every call computes a flag, and a raised flag starts a replay.

PyTensor compiles a function with ``torch.compile``, and copies its results to the host before it
returns.  The flag is one more result, so reading it costs nothing.  ``code.py`` has the PyTorch
functions that compute it.
"""

from theanoguard._provenance import watch_rewriting
from theanoguard._pytensor import PytorchLinker
from theanoguard.guard.graph.flagged import FlagWriter
from theanoguard.guard.graph.plan import FlaggedPlan
from theanoguard.guard.graph.runtime import FlaggedRuntime, GuardedLinker


class PytorchRuntime(FlaggedRuntime):
    """The guard of one function that PyTorch compiles.

    Parameters
    ----------
    policy, recorder, plan, storage_map, compile
        The same as for :class:`FlaggedRuntime`.
    kernels : Kernels
        The backend's kernels.
    """

    def __init__(self, policy, recorder, plan, storage_map, compile, kernels):
        super().__init__(policy, recorder, plan, storage_map, compile)
        self.kernels = kernels

    def call(self, values):
        """Run the function, and read its flag.

        Returns
        -------
        list
            The results.
        GuardError or None
            The error to raise.
        """
        if not self.is_looked_at():
            return self.plain(*values)[:-1], None
        *results, flag = self.run(*values)
        if flag or self.enters_bad():
            error = self.look(self.values_before(), results)
            if error is not None:
                return results, error
        self.keep(results)
        return results, None


class PytorchGuardLinker(GuardedLinker, PytorchLinker):
    """A ``PytorchLinker`` whose functions are guarded.

    Raises
    ------
    ImportError
        If PyTorch is not installed.
    """

    needs = {"torch": "PyTorch"}

    def runtime(self, order, input_storage, storage_map):
        from theanoguard.guard.pytorch import code  # loads PyTorch

        with watch_rewriting():
            plan = FlaggedPlan(self.fgraph, order, self.policy, code.inner_graphs)

        def compiled(on_purpose):
            writer = FlagWriter(plan, self.policy, on_purpose)
            graph = self.fgraph_convert(writer.graph, input_storage, {})
            return self.jit_compile(graph), writer.n_read

        return PytorchRuntime(
            self.policy, self.recorder, plan, storage_map, compiled, code.TorchKernels()
        )
