"""Theano's ``theano.tensor.blas``."""

from pytensor.tensor.blas import BatchedDot

batched_dot = BatchedDot()
