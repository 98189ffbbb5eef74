"""The guard on the C backend."""
