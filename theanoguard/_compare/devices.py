"""On which device a backend computes: ``"jax:cpu"``, ``"jax:cuda"``."""

import contextlib
from contextlib import AbstractContextManager
from typing import Any

from theanoguard._backends import backends


def split(name: str) -> tuple[str, str | None]:
    """Return the backend and the device that the name of a mode stands for.

    Examples
    --------
    >>> split("jax:cuda"), split("numba")
    (('jax', 'cuda'), ('numba', None))
    """
    backend, _, device = name.partition(":")
    return backend, device or None


def has_devices(backend: str) -> bool:
    """Whether a backend computes on several kinds of devices."""
    known = backends().get(backend)
    return known is not None and known.devices is not None


def _functions(backend: str) -> Any:
    known = backends().get(backend)
    return None if known is None else known.device_functions()


def on_device(backend: str, device: str | None) -> AbstractContextManager:
    """Return the context in which a backend computes on a device; None is its default.

    Raises ``RuntimeError``, ``AssertionError``: if there is no such device.
    """
    return contextlib.nullcontext() if device is None else _functions(backend).on_device(device)


def default_device(backend: str) -> str | None:
    """Return the kind of device that a backend computes on by itself; None if it has no choice."""
    functions = _functions(backend)
    return None if functions is None else functions.default_device()
