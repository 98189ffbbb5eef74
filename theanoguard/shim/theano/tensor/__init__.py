"""Theano's ``theano.tensor``."""
