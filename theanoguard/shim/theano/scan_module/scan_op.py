"""Theano's ``theano.scan_module.scan_op``."""

from pytensor.scan.op import Scan as Scan
from pytensor.scan.op import ScanMethodsMixin as ScanMethodsMixin
