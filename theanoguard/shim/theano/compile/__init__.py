"""Functions, modes and shared variables."""
