"""The import shim: ``import theano`` runs on PyTensor."""

from theanoguard.shim.install import install_theano, uninstall_theano

__all__ = ["install_theano", "uninstall_theano"]
