from .forms import (
    binary_crossentropy,
    categorical_crossentropy,
    default_eps,
    divide,
    hypot,
    log,
    log_erfc,
    log_softmax,
    logaddexp,
    logsumexp,
    norm,
    softmax,
    sqrt,
)
from .identities import Identity, register_identity
from .improving import Improvement, improve
from .rewriting import Replacement, Stabilization, stabilize

__all__ = [
    "Identity",
    "Improvement",
    "Replacement",
    "Stabilization",
    "binary_crossentropy",
    "categorical_crossentropy",
    "default_eps",
    "divide",
    "hypot",
    "improve",
    "log",
    "log_erfc",
    "log_softmax",
    "logaddexp",
    "logsumexp",
    "norm",
    "register_identity",
    "softmax",
    "sqrt",
    "stabilize",
]
