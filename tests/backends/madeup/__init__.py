"""A backend that runs a function node by node in Python, but in one piece, as JAX does."""

from theanoguard._backends import Backend

BACKEND = Backend(
    name="madeup",
    title="Made up",
    pytensor_linker="madeup_linker.MadeUpLinker",
    guarded_linker="theanoguard.guard.madeup.linker:MadeUpGuardLinker",
    linkers=("madeup",),
    package="numpy",
    devices="theanoguard.guard.madeup.devices",
    full_precision="numpy.more_digits()",
)
