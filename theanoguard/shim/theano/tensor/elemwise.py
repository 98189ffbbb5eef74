"""Theano's ``theano.tensor.elemwise``."""

from pytensor.tensor.elemwise import CAReduce

CAReduceDtype = CAReduce


def check_dropped(broadcastable, new_order):
    """Raise `ValueError` where a shuffle leaves a dimension out that is not broadcastable."""
    kept = {j for j in new_order if j != "x"}
    if not all(i in kept for i, b in enumerate(broadcastable) if not b):
        raise ValueError(
            "You cannot drop a non-broadcastable dimension.",
            (tuple(broadcastable), tuple(new_order)),
        )
