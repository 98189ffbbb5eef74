"""Theano's ``theano.sparse.sharedvar``."""

from pytensor.sparse.sharedvar import SparseTensorSharedVariable as SparseTensorSharedVariable
from pytensor.sparse.sharedvar import sparse_constructor as sparse_constructor
