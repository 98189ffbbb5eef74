"""Texts: the report in the terminal, and the script that reproduces a fault."""
