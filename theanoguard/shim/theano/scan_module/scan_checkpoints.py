"""Theano's ``theano.scan_module.scan_checkpoints``."""

from pytensor.scan.checkpoints import scan_checkpoints as pytensor_scan_checkpoints

from ..updates import OrderedUpdates
from .scan import _no_advice


def scan_checkpoints(
    fn,
    sequences=None,
    outputs_info=None,
    non_sequences=None,
    name="checkpointscan_fn",
    n_steps=None,
    save_every_N=10,
    padding=True,
):
    """Apply a function once per step, and keep the values of some of the steps only.

    The gradient computes the others again.  The arguments are those of `scan`; one value in
    `save_every_N` is kept, and with `padding` sequences whose length it does not divide are
    filled up with zeros.
    """
    with _no_advice():
        outputs, updates = pytensor_scan_checkpoints(
            fn,
            sequences=sequences,
            outputs_info=outputs_info,
            non_sequences=non_sequences,
            name=name,
            n_steps=n_steps,
            save_every_N=save_every_N,
            padding=padding,
        )
    return outputs, OrderedUpdates(updates)
