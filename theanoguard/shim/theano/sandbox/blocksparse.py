"""``theano.tensor.nnet.blocksparse`` under its former name."""

import warnings

from ..tensor.nnet.blocksparse import *  # noqa: F403

warnings.warn(
    "DEPRECATION: theano.sandbox.blocksparse does not exist anymore, "
    "it has been moved to theano.tensor.nnet.blocksparse.",
    category=DeprecationWarning,
    stacklevel=2,
)
