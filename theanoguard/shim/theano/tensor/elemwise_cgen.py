"""Theano's ``theano.tensor.elemwise_cgen``."""

from pytensor.tensor.elemwise_cgen import make_alloc as make_alloc
from pytensor.tensor.elemwise_cgen import make_checks as make_checks
from pytensor.tensor.elemwise_cgen import make_declare as make_declare
from pytensor.tensor.elemwise_cgen import make_loop as make_loop
from pytensor.tensor.elemwise_cgen import make_reordered_loop as make_reordered_loop
