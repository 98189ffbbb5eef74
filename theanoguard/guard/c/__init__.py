"""The guard on the C backend."""

from theanoguard._backends import Backend

BACKEND = Backend(
    name="c",
    title="C",
    pytensor_linker="pytensor.link.vm.VMLinker",
    guarded_linker="theanoguard.guard.c.linker:GuardLinker",
    linkers=("cvm", "cvm_nogc", "vm", "vm_nogc"),
    settings=("allow_gc", "use_cloop", "lazy", "c_thunks", "allow_partial_eval"),
    same_bits=True,
)
