from .forms import (
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
from .rewriting import Replacement, Stabilization, stabilize

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
