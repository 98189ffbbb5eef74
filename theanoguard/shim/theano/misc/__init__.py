"""Theano's ``theano.misc``: helpers that code outside of Theano came to use."""
