"""Graphs to look at: the model, and its renderings."""
