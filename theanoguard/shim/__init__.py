"""Importing this makes ``import theano`` work: see `theanoguard.install_theano`."""

from theanoguard.legacy import install_theano, uninstall_theano

__all__ = ["install_theano", "uninstall_theano"]

install_theano()
