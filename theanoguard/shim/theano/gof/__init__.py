"""Theano's graphs: variables, types, operations, and what rewrites and links them."""
