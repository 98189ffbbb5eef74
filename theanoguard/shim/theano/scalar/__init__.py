"""Theano's ``theano.scalar``."""

from .basic import *  # noqa: F403
from .basic_scipy import *  # noqa: F403
