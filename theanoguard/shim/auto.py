"""Importing this module makes ``import theano`` work: see `theanoguard.shim.install_theano`."""

from theanoguard.shim.install import install_theano

install_theano()
