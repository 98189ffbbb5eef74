"""The report in the terminal, and tracebacks."""
