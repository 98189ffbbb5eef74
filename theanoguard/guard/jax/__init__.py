"""The guard on the JAX backend."""
