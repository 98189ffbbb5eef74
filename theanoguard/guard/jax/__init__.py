"""The guard on the JAX backend."""

from theanoguard._backends import Backend

BACKEND = Backend(
    name="jax",
    title="JAX",
    pytensor_linker="pytensor.link.jax.linker.JAXLinker",
    guarded_linker="theanoguard.guard.jax.linker:JaxGuardLinker",
    linkers=("jax",),
    package="jax",
    devices="theanoguard.guard.jax.devices",
    full_precision='jax.config.update("jax_default_matmul_precision", "float32")',
    returns_early=True,
    flushes_subnormals=True,
    own_draws=True,
)
