"""The classes of Theano's ``theano.scan_module.scan_opt`` that PyTensor has."""

from pytensor.scan.rewriting import ScanInplaceOptimizer as ScanInplaceOptimizer
from pytensor.scan.rewriting import ScanMerge as ScanMerge
