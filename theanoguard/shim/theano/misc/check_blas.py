"""How fast matrices are multiplied."""

from pytensor.misc.check_blas import execute as execute
