"""The guard on the Numba backend."""

from theanoguard._backends import Backend

BACKEND = Backend(
    name="numba",
    title="Numba",
    pytensor_linker="pytensor.link.numba.linker.NumbaLinker",
    guarded_linker="theanoguard.guard.numba.linker:NumbaGuardLinker",
    linkers=("numba",),
    package="numba",
    keeps_arguments=True,
    drops_masks=True,
)
