"""Theano's ``theano.scan_module.scan_perform_ext``: the loop in C, which PyTensor brings built."""

from pytensor.scan.scan_perform import get_version as get_version
from pytensor.scan.scan_perform import perform as perform
