"""Theano's ``theano.sparse.sandbox``."""
