"""Linear algebra under its former name."""
