"""Compute a call again, and find the operation that made a bad element."""
