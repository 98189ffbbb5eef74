"""Function graphs."""


class CachedConstantError(Exception):
    """A constant of another graph's cache in a graph; PyTensor has no such cache."""
