"""Importing this module makes ``import theano`` work: see `theanoguard.install_theano`."""

from theanoguard.shim.install import install_theano

install_theano()
