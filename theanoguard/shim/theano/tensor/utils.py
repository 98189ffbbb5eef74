"""Theano's ``theano.tensor.utils``."""

from pytensor.tensor.utils import hash_from_ndarray as hash_from_ndarray
from pytensor.tensor.utils import shape_of_variables as shape_of_variables
