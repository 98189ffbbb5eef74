"""Lists of variables of one type."""
