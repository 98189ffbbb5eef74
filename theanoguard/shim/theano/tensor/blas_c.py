"""Theano's ``theano.tensor.blas_c``."""

from pytensor.tensor.rewriting.blas_c import CGemv

from .blas import Ger

BaseBLAS = CGemv.__bases__[0]


class CGer(Ger):
    """`Ger` under the name that it had where C computed it."""


cger_no_inplace = CGer(False)
cger_inplace = CGer(True)
