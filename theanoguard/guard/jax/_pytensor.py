"""How PyTensor compiles operations for JAX; imported only when a graph is compiled for it."""

from theanoguard._releases import required

with required("backend='jax'"):
    from pytensor.link.c.exceptions import CompileError
    from pytensor.link.jax.dispatch import jax_funcify
    from pytensor.link.jax.dispatch.shape import JAXShapeTuple

__all__ = [
    "CompileError",
    "JAXShapeTuple",
    "jax_funcify",
]
