"""The guard on the Numba backend."""
