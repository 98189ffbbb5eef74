"""The script that reproduces a fault."""
