"""Theano's ``theano.sparse.utils``."""

from pytensor.sparse.utils import hash_from_sparse as hash_from_sparse
