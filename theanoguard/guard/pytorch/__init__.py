"""The guard on the PyTorch backend."""

from theanoguard._backends import Backend

BACKEND = Backend(
    name="pytorch",
    title="PyTorch",
    pytensor_linker="pytensor.link.pytorch.linker.PytorchLinker",
    guarded_linker="theanoguard.guard.pytorch.linker:PytorchGuardLinker",
    linkers=("pytorch",),
    package="torch",
    devices="theanoguard.guard.pytorch.devices",
    full_precision='torch.set_float32_matmul_precision("highest")',
)
