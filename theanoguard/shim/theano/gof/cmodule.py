"""Compiling and importing C modules."""

from pytensor.configdefaults import config


def gcc_version():
    """Return the version of the C++ compiler as text."""
    return config.gcc_version_str
