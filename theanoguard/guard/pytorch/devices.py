"""The devices that PyTorch computes on."""

from contextlib import AbstractContextManager

import torch


def on_device(kind: str) -> AbstractContextManager:
    """Return the context in which PyTorch computes on a kind of device.

    Raises ``RuntimeError``, ``AssertionError``: if there is no such device.
    """
    torch.zeros(1, device=kind)
    return torch.device(kind)


def default_device() -> str:
    """Return the kind of device on which PyTorch computes by itself."""
    return torch.get_default_device().type


def described() -> str:
    """Name the device that the guard guards, for ``theanoguard doctor``."""
    return f"{torch.__version__}: backend='pytorch' guards {torch.get_default_device()}"
