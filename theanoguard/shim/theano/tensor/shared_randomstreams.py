"""Random variables whose states are shared variables."""

import copy

import numpy as np

from ..compile.sharedvalue import SharedVariable, shared, shared_constructor
from . import raw_random


class RandomStateSharedVariable(SharedVariable):
    """A shared variable that holds a ``numpy.random.RandomState``."""


@shared_constructor
def randomstate_constructor(value, name=None, strict=False, allow_downcast=None, borrow=False):
    """Return a shared variable of a ``RandomState``, which is copied unless `borrow` is true."""
    if not isinstance(value, np.random.RandomState):
        raise TypeError
    return RandomStateSharedVariable(
        type=raw_random.random_state_type,
        value=value if borrow else copy.deepcopy(value),
        name=name,
        strict=strict,
        allow_downcast=allow_downcast,
    )


class RandomStreams(raw_random.RandomStreamsBase):
    """Random variables that NumPy's ``RandomState`` draws, each from a state of its own.

    Parameters
    ----------
    seed : int or None
        Decides the seeds of the states.

    Attributes
    ----------
    state_updates : list
        For each variable its state and the state after drawing.

    Examples
    --------
    >>> import theanoguard
    >>> theano = theanoguard.shim.install_theano()
    >>> from theano.tensor.shared_randomstreams import RandomStreams
    >>> draw = theano.function([], RandomStreams(seed=234).uniform((2,)))
    >>> draw().round(4).tolist()
    [0.1267, 0.9709]
    >>> theanoguard.shim.uninstall_theano()
    """

    def __init__(self, seed=None):
        self.state_updates = []
        self.default_instance_seed = seed
        self.gen_seedgen = np.random.RandomState(seed)

    def updates(self):
        """Return a copy of the list of state updates."""
        return list(self.state_updates)

    def seed(self, seed=None):
        """Set the states of all variables to what a new object with this seed gives them."""
        seedgen = np.random.RandomState(self.default_instance_seed if seed is None else seed)
        for old_r, _ in self.state_updates:
            old_r.set_value(np.random.RandomState(int(seedgen.randint(2**30))), borrow=True)

    def __getitem__(self, item):
        """Return the ``RandomState`` that the state `item` holds."""
        return item.get_value(borrow=True)

    def __setitem__(self, item, val):
        """Let the state `item` hold the ``RandomState`` `val`."""
        item.set_value(val, borrow=True)

    def gen(self, op, *args, **kwargs):
        """Return what ``op(state, *args, **kwargs)`` draws from a new state.

        Parameters
        ----------
        op : callable
            A `RandomFunction`, or a function that applies one: it returns the state after
            drawing and the samples.
        """
        seed = int(self.gen_seedgen.randint(2**30))
        state = shared(np.random.RandomState(seed))
        state.tag.is_rng = True
        new_state, out = op(state, *args, **kwargs)
        out.rng = state
        out.update = (state, new_state)
        self.state_updates.append(out.update)
        state.default_update = new_state
        return out
