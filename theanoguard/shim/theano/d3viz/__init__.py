"""Pages that show graphs."""
