"""Theano's ``theano.scalar``."""
