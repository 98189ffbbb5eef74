"""Theano's first GPU backend, which 1.0.5 had no more: it is here to be asked whether it is."""

from ..._missing import missing_gpu

cuda_available = False
cuda_enabled = False
pygpu_activated = False


def use(device, *args, **kwargs):
    """Raise a RuntimeError: there is no GPU."""
    raise RuntimeError(f"There is no GPU here, so device {device!r} cannot be used.")


def unuse():
    """Do nothing: computation is on the CPU already."""


__getattr__ = missing_gpu(__name__)
