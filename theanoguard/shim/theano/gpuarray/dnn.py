"""cuDNN, which is not available."""

from ._standin import stand_ins


def dnn_present():
    """Return False; ``dnn_present.msg`` says why."""
    return False


def dnn_available(context_name):
    """Return False; ``dnn_available.msg`` says why."""
    return False


dnn_present.msg = dnn_available.msg = "PyGPU not available"


def version(raises=True):
    """Raise a RuntimeError, or return -1."""
    if raises:
        raise RuntimeError(
            "We can't determine the cudnn version as it is not available", dnn_available.msg
        )
    return -1


globals().update(stand_ins(__name__))
