"""Theano's ``theano.tensor.elemwise``."""

import numpy as np
from pytensor.tensor.elemwise import CAReduce

CAReduceDtype = CAReduce


def check_dropped(broadcastable, new_order):
    """Raise `ValueError` where a shuffle leaves a dimension out that is not broadcastable."""
    for i, j in enumerate(new_order):
        if j == "x":
            continue
        if not isinstance(j, int | np.integer):
            raise TypeError(
                f"DimShuffle indices must be python ints. Got: '{j}' of type '{type(j)}'."
            )
        if j >= len(broadcastable):
            raise ValueError(
                f"new_order[{i}] is {j}, but the input only has {len(broadcastable)} axes."
            )
        if j in new_order[i + 1 :]:
            raise ValueError(
                "The same input dimension may not appear twice in the list of output dimensions",
                tuple(new_order),
            )
    kept = {j for j in new_order if j != "x"}
    if not all(i in kept for i, b in enumerate(broadcastable) if not b):
        raise ValueError(
            "You cannot drop a non-broadcastable dimension.",
            (tuple(broadcastable), tuple(new_order)),
        )
