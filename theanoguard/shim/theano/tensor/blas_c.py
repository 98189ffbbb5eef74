"""Theano's ``theano.tensor.blas_c``."""

from pytensor.tensor.rewriting.blas_c import CGemv as CGemv
from pytensor.tensor.rewriting.blas_c import cgemv_inplace as cgemv_inplace
from pytensor.tensor.rewriting.blas_c import cgemv_no_inplace as cgemv_no_inplace
from pytensor.tensor.rewriting.blas_c import make_c_gemv_destructive as make_c_gemv_destructive
from pytensor.tensor.rewriting.blas_c import use_c_gemv as use_c_gemv
