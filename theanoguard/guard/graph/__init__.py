"""The guard of functions that are compiled as a whole: what Numba and JAX share."""
