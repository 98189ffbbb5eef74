"""The guard on the PyTorch backend: every call computes a flag, and a raised flag starts a replay.

PyTensor compiles a function with ``torch.compile``, and copies its results to the host before it
returns.  The flag is one more result, so reading it costs nothing.  ``code.py`` has the PyTorch
functions that compute it.
"""

from collections.abc import Callable
from typing import Any

from theanoguard.guard.graph.linker import FlaggedLinker
from theanoguard.guard.graph.runtime import FlaggedRuntime
from theanoguard.guard.pytorch import BACKEND

PytorchLinker: Any = BACKEND.linker


class PytorchGuardLinker(FlaggedLinker, PytorchLinker):
    """A ``PytorchLinker`` whose functions are guarded.

    Raises ``ImportError``: if PyTorch is not installed.
    """

    backend = BACKEND

    def runtime(self, order: list, input_storage: list, storage_map: dict) -> FlaggedRuntime:
        from theanoguard.guard.pytorch import code  # loads PyTorch

        return self.flagged(
            order, input_storage, storage_map, code.graphs_inside, code.TorchKernels()
        )

    def jit_compile(self, fn: Callable) -> Callable:
        """Return the compiled function; it runs as it is if PyTorch fails to compile it.

        PyTorch leaves what it cannot compile, such as ``x[q, 1]``, out of the program.  If the flag
        reads that, it raises instead.
        """
        import torch

        compiled = super().jit_compile(fn)
        failed = False

        def call(*inputs: Any) -> Any:
            nonlocal failed
            if not failed:
                try:
                    return compiled(*inputs)
                except torch._dynamo.exc.BackendCompilerFailed:
                    failed = True
            with torch.compiler.set_stance("force_eager"):
                return compiled(*inputs)

        return call
