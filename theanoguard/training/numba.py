"""The operations of training on Numba: Python runs them, once in a step.

Loaded when a graph is compiled for Numba.
"""

import warnings
from collections.abc import Callable
from typing import Any

from pytensor.graph.basic import Apply
from pytensor.graph.op import Op

from theanoguard._pytensor.numba import numba_funcify
from theanoguard.training.ops import Keep, OverArrays
from theanoguard.training.updates import StopAtBad

by_python = numba_funcify.dispatch(object)


@numba_funcify.register(OverArrays)
@numba_funcify.register(Keep)
@numba_funcify.register(StopAtBad)
def numba_funcify_by_python(op: Op, node: Apply, **kwargs: Any) -> Callable:
    with warnings.catch_warnings():  # it is meant, and not the user's to change
        warnings.filterwarnings("ignore", "Numba will use object mode", UserWarning)
        found: Callable = by_python(op, node=node, **kwargs)
    return found
