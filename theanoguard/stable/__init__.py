"""Functions whose value and gradient are finite at the edge of their domain."""

from theanoguard.stable.forms import (
    binary_crossentropy,
    categorical_crossentropy,
    default_eps,
    divide,
    log,
    log_softmax,
    logsumexp,
    norm,
    softmax,
    sqrt,
)
from theanoguard.stable.rewriting import Replacement, Stabilization, stabilize

__all__ = [
    "Replacement",
    "Stabilization",
    "binary_crossentropy",
    "categorical_crossentropy",
    "default_eps",
    "divide",
    "log",
    "log_softmax",
    "logsumexp",
    "norm",
    "softmax",
    "sqrt",
    "stabilize",
]
