"""Theano's ``theano.tensor.fft``."""

from pytensor.tensor.fft import IRFFTOp as IRFFTOp
from pytensor.tensor.fft import RFFTOp as RFFTOp
from pytensor.tensor.fft import _unitary as _unitary
from pytensor.tensor.fft import irfft as irfft
from pytensor.tensor.fft import irfft_op as irfft_op
from pytensor.tensor.fft import rfft as rfft
from pytensor.tensor.fft import rfft_op as rfft_op
