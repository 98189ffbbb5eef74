"""Theano's ``theano.tensor.xlogx``."""

from pytensor.tensor.xlogx import xlogx as xlogx
from pytensor.tensor.xlogx import xlogy0 as xlogy0
