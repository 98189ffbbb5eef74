"""cuDNN of Theano's first GPU backend: it is not available."""

from ..._missing import missing_gpu


def dnn_available():
    """Return False; ``dnn_available.msg`` says why."""
    return False


def dnn_present():
    """Return False; ``dnn_present.msg`` says why."""
    return False


dnn_available.msg = dnn_present.msg = "There is no GPU here: PyTensor computes on the CPU."
__getattr__ = missing_gpu(__name__)
