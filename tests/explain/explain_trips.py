"""Trips made without the guard: a compiled graph is run node by node until a value is bad.

The same run is the oracle of the tests.
"""

import numpy as np
import pytensor
import pytest
from pytensor.compile.mode import Mode

from theanoguard._evaluate.replay import Kernels, Replay
from theanoguard._event import GuardEvent, Trip
from theanoguard._provenance import track_provenance
from theanoguard.guard import GuardError, GuardMode

MODE = Mode("cvm", "fast_run")


def is_bad(array):
    """NaN, Inf and what exceeds 1e10 in magnitude."""
    return ~(np.abs(array) <= 1e10) if array.dtype.kind in "fc" else np.zeros(array.shape, bool)


def is_nan(array):
    """NaN alone."""
    return np.isnan(array) if array.dtype.kind in "fc" else np.zeros(array.shape, bool)


def input_values(fn, args):
    """Return the values of the compiled graph's inputs for a call."""
    fgraph = fn.maker.fgraph
    given = iter(args)
    values = {}
    for variable, container in zip(fgraph.inputs, fn.input_storage, strict=True):
        value = container.storage[0]
        values[variable] = next(given) if value is None else value
    return {
        v: v.type.filter(value, allow_downcast=True) if not hasattr(v, "get_value") else value
        for v, value in values.items()
    }


def event_of(array, mask, variable, role="node", path=()):
    """Return the event that a guard would record."""
    array = np.asarray(array)
    bad = np.argwhere(mask(array))
    index = tuple(int(i) for i in bad[0])
    value = array[index]
    nan, inf = np.isnan(array), np.isinf(array)
    owner = variable.owner
    return GuardEvent(
        kind="nan" if np.isnan(value) else "inf" if np.isinf(value) else "big",
        role=role,
        node=str(owner) if owner else None,
        op=str(owner.op) if owner else None,
        variable=variable.name,
        output=owner.outputs.index(variable) if owner else 0,
        dtype=str(array.dtype),
        shape=array.shape,
        size=array.size,
        n_nan=int(nan.sum()),
        n_posinf=int((inf & (array > 0)).sum()),
        n_neginf=int((inf & (array < 0)).sum()),
        n_big=int((mask(array) & ~nan & ~inf).sum()),
        first_index=index,
        first_value=value,
        path=path,
        call=1,
        function="fn",
    )


def trip_of(fgraph, inputs, mask=is_bad, shared=()):
    """Return the Trip of the first bad value in execution order, or None."""
    replay = Replay(fgraph, inputs, Kernels("py"))
    for variable in fgraph.inputs:
        value = inputs[variable]
        if isinstance(value, np.ndarray) and np.any(mask(value)):
            role = "shared" if variable in shared else "input"
            return Trip(
                event_of(value, mask, variable, role), fgraph, inputs, variable, value, mask
            )
    for node in fgraph.toposort():
        for out in node.outputs:
            value = replay.value(out)
            if isinstance(value, (np.ndarray, np.generic)) and np.any(mask(np.asarray(value))):
                return Trip(event_of(value, mask, out), fgraph, inputs, out, value, mask)
    return None


def compiled(inputs, outputs, **kwargs):
    """Compile a function as the tests do."""
    return pytensor.function(inputs, outputs, mode=kwargs.pop("mode", MODE), **kwargs)


def guard_error(model, arguments, watch="all"):
    """Compile a model of the gallery under the guard, call it, and return the GuardError.

    Parameters
    ----------
    watch : {"all", "nan", "inf"}
        Everything; NaN alone; NaN and Inf.
    """
    mode = GuardMode(True, watch != "nan", watch == "all")
    with track_provenance():
        inputs, outputs, updates = model()
        fn = compiled(inputs, outputs, updates=updates, mode=mode)
    with pytest.raises(GuardError) as caught:
        fn(*arguments)
    return caught.value
