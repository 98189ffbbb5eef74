"""Show graphs: a model of a graph, and its renderings."""
