"""Facts about a bad value: its place, its names, its operands and its path."""
