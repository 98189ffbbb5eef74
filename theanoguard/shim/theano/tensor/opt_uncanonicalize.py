"""Theano's ``theano.tensor.opt_uncanonicalize``."""

from pytensor.tensor.rewriting.uncanonicalize import (
    local_alloc_dimshuffle as local_alloc_dimshuffle,
)
from pytensor.tensor.rewriting.uncanonicalize import (
    local_dimshuffle_alloc as local_dimshuffle_alloc,
)
from pytensor.tensor.rewriting.uncanonicalize import (
    local_dimshuffle_subtensor as local_dimshuffle_subtensor,
)
from pytensor.tensor.rewriting.uncanonicalize import local_max_to_min as local_max_to_min
from pytensor.tensor.rewriting.uncanonicalize import (
    local_reshape_dimshuffle as local_reshape_dimshuffle,
)
