"""The devices that JAX computes on."""

from contextlib import AbstractContextManager

import jax


def on_device(kind: str) -> AbstractContextManager:
    """Return the context in which JAX computes on a kind of device.

    Raises ``RuntimeError``: if there is no such device.
    """
    return jax.default_device(jax.devices(kind)[0])


def default_device() -> str:
    """Return the kind of device on which JAX computes by itself."""
    return jax.devices()[0].platform


def described() -> str:
    """Name the device that the guard guards, for ``theanoguard doctor``."""
    device = jax.devices()[0]
    when = "now" if device.platform == "cpu" else "later"
    return f"backend='jax' guards {device.device_kind} ({device.platform}), when={when!r}"
