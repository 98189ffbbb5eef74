"""``theano.tensor.slinalg.solve`` under its former name."""

import warnings

warnings.warn(
    "The module theano.sandbox.solve will soon be deprecated.\n"
    "Please use tensor.slinalg.solve instead.",
    stacklevel=2,
)
