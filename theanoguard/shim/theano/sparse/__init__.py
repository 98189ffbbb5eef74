"""Theano's ``theano.sparse``."""

import scipy
from pytensor.sparse.sharedvar import sparse_constructor

from .basic import *  # noqa: F403
from .type import *  # noqa: F403

enable_sparse = True
scipy_ver = [int(number) for number in scipy.__version__.split(".")[:2]]
shared = sparse_constructor
