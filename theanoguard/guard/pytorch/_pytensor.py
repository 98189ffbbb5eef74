"""How PyTensor compiles operations for PyTorch; imported only when a function is compiled."""

from theanoguard._releases import required

with required("backend='pytorch'"):
    from pytensor.link.pytorch.dispatch import pytorch_funcify, pytorch_typify

__all__ = [
    "pytorch_funcify",
    "pytorch_typify",
]
