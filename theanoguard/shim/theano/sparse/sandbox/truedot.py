"""Theano's ``theano.sparse.sandbox.truedot``."""

from ..basic import TrueDot as TrueDot
from ..basic import true_dot as true_dot
