"""Theano's ``theano.sandbox.softsign``, from before it moved."""

from ..tensor.nnet.nnet import softsign as softsign
