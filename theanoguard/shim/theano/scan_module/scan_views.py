"""``map``, ``reduce``, ``foldl`` and ``foldr``: `scan` under the names of other languages.

Their arguments are `scan`'s.
"""

from .scan import scan


def map(
    fn,
    sequences,
    non_sequences=None,
    truncate_gradient=-1,
    go_backwards=False,
    mode=None,
    name=None,
):
    """Apply a function to each element of the sequences; return the results and the updates."""
    return scan(
        fn,
        sequences=sequences,
        outputs_info=[],
        non_sequences=non_sequences,
        truncate_gradient=truncate_gradient,
        go_backwards=go_backwards,
        mode=mode,
        name=name,
    )


def reduce(
    fn, sequences, outputs_info, non_sequences=None, go_backwards=False, mode=None, name=None
):
    """Apply a function to each element and the last result; return the last, and the updates."""
    outputs, updates = scan(
        fn,
        sequences=sequences,
        outputs_info=outputs_info,
        non_sequences=non_sequences,
        go_backwards=go_backwards,
        truncate_gradient=-1,
        mode=mode,
        name=name,
    )
    if isinstance(outputs, list | tuple):
        return [output[-1] for output in outputs], updates
    return outputs[-1], updates


def foldl(fn, sequences, outputs_info, non_sequences=None, mode=None, name=None):
    """``reduce`` from the first element on."""
    return reduce(fn, sequences, outputs_info, non_sequences, False, mode, name)


def foldr(fn, sequences, outputs_info, non_sequences=None, mode=None, name=None):
    """``reduce`` from the last element on."""
    return reduce(fn, sequences, outputs_info, non_sequences, True, mode, name)
