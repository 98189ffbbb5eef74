"""Theano's ``theano.tensor.elemwise``."""

from pytensor.tensor.elemwise import CAReduce as CAReduce
from pytensor.tensor.elemwise import DimShuffle as DimShuffle
from pytensor.tensor.elemwise import DimShufflePrinter as DimShufflePrinter
from pytensor.tensor.elemwise import Elemwise as Elemwise
from pytensor.tensor.elemwise import TensorType as TensorType
from pytensor.tensor.elemwise import TensorVariable as TensorVariable
from pytensor.tensor.elemwise import as_tensor_variable as as_tensor_variable
from pytensor.tensor.math import All as All
from pytensor.tensor.math import Any as Any
from pytensor.tensor.math import MulWithoutZeros as MulWithoutZeros
from pytensor.tensor.math import Prod as Prod
from pytensor.tensor.math import ProdWithoutZeros as ProdWithoutZeros
from pytensor.tensor.math import Sum as Sum
from pytensor.tensor.math import mul_without_zeros as mul_without_zeros

CAReduceDtype = CAReduce


def check_dropped(broadcastable, new_order):
    """Raise `ValueError` where a shuffle leaves a dimension out that is not broadcastable."""
    kept = {j for j in new_order if j != "x"}
    if not all(i in kept for i, b in enumerate(broadcastable) if not b):
        raise ValueError(
            "You cannot drop a non-broadcastable dimension.",
            (tuple(broadcastable), tuple(new_order)),
        )
