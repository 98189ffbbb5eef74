"""On which device a backend computes: ``"jax:cpu"``, ``"jax:cuda"``, ``"pytorch:cuda"``."""

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager


def _jax(device: str) -> AbstractContextManager:
    import jax

    return jax.default_device(jax.devices(device)[0])


def _pytorch(device: str) -> AbstractContextManager:
    import torch

    torch.zeros(1, device=device)  # raises where there is no such device
    return torch.device(device)


# What makes a backend compute on a device, by the backend's name.
ON_DEVICE: dict[str, Callable[[str], AbstractContextManager]] = {"jax": _jax, "pytorch": _pytorch}


def split(name: str) -> tuple[str, str | None]:
    """Return the backend and the device that the name of a mode stands for.

    Examples
    --------
    >>> split("jax:cuda"), split("numba")
    (('jax', 'cuda'), ('numba', None))
    """
    backend, _, device = name.partition(":")
    return backend, device or None


def on_device(backend: str, device: str | None) -> AbstractContextManager:
    """Return the context in which a backend computes on a device; None is its default.

    Raises
    ------
    RuntimeError, AssertionError
        If there is no such device.
    """
    return contextlib.nullcontext() if device is None else ON_DEVICE[backend](device)


def default_device(backend: str) -> str | None:
    """Return the kind of device that a backend computes on by itself; None if it has no choice."""
    if backend == "jax":
        import jax

        return jax.devices()[0].platform
    if backend == "pytorch":
        import torch

        return torch.get_default_device().type
    return None
