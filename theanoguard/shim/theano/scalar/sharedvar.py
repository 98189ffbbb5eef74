"""Theano's ``theano.scalar.sharedvar``."""

from pytensor.scalar.sharedvar import ScalarSharedVariable as ScalarSharedVariable
from pytensor.scalar.sharedvar import shared as shared
