"""The command ``theanoguard``."""
