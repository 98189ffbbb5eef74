"""Theano's ``theano.tensor.fourier``."""

from pytensor.tensor.fourier import Fourier as Fourier
from pytensor.tensor.fourier import fft as fft
