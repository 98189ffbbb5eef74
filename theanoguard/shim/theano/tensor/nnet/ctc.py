"""Connectionist temporal classification, which needs Baidu's library: it is not here."""


def ctc_present():
    """Whether the library can be used: never here."""
    return False


ctc_present.avail = False
ctc_present.path = None
ctc_present.msg = "theanoguard's shim does not bind Baidu's warp-ctc"


def ctc_available():
    """Whether `ctc` can be used: never here; ``ctc_available.msg`` tells why."""
    return False


ctc_available.msg = ctc_present.msg
ctc_available.path = None


class ConnectionistTemporalClassification:
    """Stands for Theano's Op of this name; making one raises what Theano raises."""

    def __init__(self, compute_grad=True, openmp=None):
        raise RuntimeError(
            "Baidu CTC is not available and ConnectionistTemporalClassification Op can not be "
            f"constructed: {ctc_available.msg}.\n"
            "Write the loss with theano.scan, or compute it with a package that has it."
        )


def ctc(activations, labels, input_lengths):
    """Raise RuntimeError: see `ctc_available`."""
    return ConnectionistTemporalClassification()(activations, labels, input_lengths)
