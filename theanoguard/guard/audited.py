"""Makes each call of an audited function a second time without a guard, and compares."""

import copy
import warnings
from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, clone_get_equiv
from pytensor.graph.fg import FunctionGraph

from theanoguard._backends import backend_of
from theanoguard._evaluate.replay import copy_value, has_effects
from theanoguard._provenance import tracker_of
from theanoguard._pytensor import Function, FunctionMaker, captured_inputs, config, inner_graph
from theanoguard._values import is_sparse, listed
from theanoguard.guard.functions import WatchedFunction
from theanoguard.guard.pausing import twin_of, unguarded, without_watchers
from theanoguard.guard.reporting import PLEASE_REPORT

ROUNDING = 1e5
"""By how many units in the last place results may differ on a backend that fuses otherwise."""


class AuditedFunction(WatchedFunction):
    """A guarded function that compares each call with the same call of an unguarded one.

    A difference in what somebody receives or keeps raises a ``RuntimeError``: in the outputs, the
    shared variables, the arguments or the constants.  After another error, all but the outputs have
    to be as they were.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._twin = unguarded_twin(self)
        constants = {id(c.data): c for c in _constants(self.maker.fgraph)}.values()
        self._constants = [(c, _facts(c.data)) for c in constants]

    def copy(self, *args: Any, **kwargs: Any) -> Any:
        new = super().copy(*args, **kwargs)
        if new._has_updates == self._has_updates:  # (its compiled graph alone says no more)
            new._twin = self._twin
        return new

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not hasattr(self.vm, "guard"):  # ``captured_inputs`` puts in another machine
            return super().__call__(*args, **kwargs)
        values = captured_inputs(self, args, kwargs)
        before = list(map(copy_value, values))
        try:
            result = super().__call__(*args, **kwargs)
        except Exception as error:
            self._judge(before, self._written(values, before), self._changed(before), error=error)
            raise
        self._judge(before, self._written(values, before), self._otherwise(values, before, result))
        return result

    def _judge(self, before: list, *faults: Iterator[str], error: Exception | None = None) -> None:
        """Raise the first fault, if there is one; shared variables get their old values."""
        for fault in chain(*faults):
            for spec, cell, old in zip(self.maker.inputs, self.input_storage, before, strict=True):
                if spec.shared:
                    cell.storage[0] = old
            raise RuntimeError(f"audit: {fault}.\n{PLEASE_REPORT}") from error

    def _written(self, values: list, before: list) -> Iterator[str]:
        """Yield which arguments and constants the call has written to, although it may not."""
        for spec, value, old in zip(self.maker.inputs, values, before, strict=True):
            if not (spec.shared or spec.mutable) and _facts(value) != _facts(old):
                yield f"the call has written to the argument {_name(spec)}: {_shown(value, old)}"
        for constant, facts in self._constants:
            if _facts(constant.data) != facts:
                yield f"the call has written to the constant {constant}"

    def _changed(self, before: list) -> Iterator[str]:
        """Yield which shared variables a failed call has changed."""
        if self.vm.guard.policy.calls_back:  # (the user's action may have set them)
            return
        for spec, cell, old in zip(self.maker.inputs, self.input_storage, before, strict=True):
            value = cell.storage[0]
            if spec.shared and _facts(value) != _facts(old):
                yield f"the failed call has changed {_name(spec)}: {_shown(value, old)}"

    def _otherwise(self, values: list, before: list, result: Any) -> Iterator[str]:
        """Yield what the twin gives otherwise."""
        twin = self._twin
        if twin is None:
            return
        specs = self.maker.inputs
        for spec, cell, value, old in zip(specs, twin.input_storage, values, before, strict=True):
            cell.storage[0] = copy_value(old) if spec.shared or spec.mutable else value
        try:
            # (PyTensor 3.0 compiles the bodies of OpFromGraph, when first called, with this mode.)
            with unguarded(), config.change_flags(mode=twin.maker.mode):
                expected = twin()
        except Exception as error:
            yield f"without the guard, the call raises {type(error).__name__}: {error}"
            return
        linker, fgraph = self.maker.mode.linker, self.maker.fgraph
        backend, plan = backend_of(linker), self.vm.guard.plan
        is_exact = backend is not None and backend.same_bits and linker.allow_gc is not False
        pairs = zip(fgraph.outputs, listed(expected), listed(result), strict=False)
        for i, (variable, one, other) in enumerate(pairs):
            same = type(one) is type(other) and _alike(one, other, is_exact)
            if not same and variable not in plan.unwritten:
                yield f"output {i} of the call is not the unguarded one: {_shown(other, one)}"
        if self.vm.guard.policy.calls_back:
            return
        new = {i: fgraph.outputs[o] for o, i in fgraph.update_mapping.items()}
        for i, spec in enumerate(specs):
            one, other = (f.input_storage[i].storage[0] for f in (twin, self))
            is_kept = spec.shared and new.get(i) not in plan.unwritten
            if is_kept and not _alike(one, other, is_exact):
                yield f"{_name(spec)} is not as without the guard: {_shown(other, one)}"


def unguarded_twin(fn: Function) -> Any:
    """Return a function of the same graph, as it was written, without a guard.

    Its shared variables are its own.  None where a second call would have a side effect, and for a
    function without the graph as it was written.
    """
    maker = fn.maker
    tracker = tracker_of(maker.fgraph)
    has_any = any(has_effects(n.op) for g in _graphs(maker.fgraph) for n in g.apply_nodes)
    if tracker is None or not tracker.original_outputs or has_any:
        return None
    new: dict[Any, Any] = {}
    ins = []
    outputs = without_watchers(tracker.before()[0])
    for spec, root in zip(maker.inputs, tracker.original_inputs, strict=True):
        own = copy.copy(spec)
        own.value = None
        if isinstance(shared := spec.variable, SharedVariable):
            value = copy_value(shared.get_value(borrow=True))
            new[root] = type(shared)(type=root.type, value=value, strict=False, name=root.name)
            own.value = new[root].container
        else:
            new[root] = root.type(name=root.name)
        ins.append(own)
    clone_get_equiv([], outputs, copy_inputs=False, copy_orphans=False, memo=new)
    for spec, root in zip(ins, tracker.original_inputs, strict=True):
        spec.variable = new[root]
    for i_out, i_in in maker.fgraph.update_mapping.items():
        ins[i_in].update = new[outputs[i_out]]
    outs = []
    for spec, variable in zip(maker.outputs, outputs, strict=False):
        outs.append(copy.copy(spec))
        outs[-1].variable = new[variable]
    with unguarded(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # (the guarded function has warned)
        twin = FunctionMaker(
            ins,
            outs,
            twin_of(maker.mode),
            accept_inplace=maker.accept_inplace,
            on_unused_input="ignore",
            trust_input=True,  # (its arguments are put into its storage)
        ).create()
    twin.unpack_single, twin.return_none = fn.unpack_single, fn.return_none
    return twin


def _graphs(fgraph: FunctionGraph) -> Iterator[FunctionGraph]:
    """Yield a graph and the graphs inside its nodes."""
    yield fgraph
    for node in fgraph.apply_nodes:
        if hasattr(node.op, "fgraph"):
            yield from _graphs(inner_graph(node.op))


def _constants(fgraph: FunctionGraph) -> Iterator[Constant]:
    for graph in _graphs(fgraph):
        yield from (v for v in graph.variables if isinstance(v, Constant))


def _name(spec: Any) -> str:
    return f"{'the shared variable ' if spec.shared else ''}{spec.variable.name or spec.variable}"


def _shown(found: Any, expected: Any) -> str:
    return f"{found!r:.200} instead of {expected!r:.200}"


def _facts(value: Any) -> Any:
    """Return what has to be the same in two values: dtypes, shapes and bits; NaNs are all alike."""
    if hasattr(value, "bit_generator"):
        value = value.bit_generator.state
    if isinstance(value, dict):
        return [(key, _facts(item)) for key, item in value.items()]
    if isinstance(value, list | tuple):
        return list(map(_facts, value))
    if is_sparse(value):
        parts = (getattr(value, name, None) for name in ("data", "indices", "indptr"))
        return [value.format, value.shape, *map(_facts, parts)]
    if not hasattr(value, "dtype"):
        return repr(value)
    array = np.array(value)
    if array.dtype.kind in "fc":
        array[np.isnan(array)] = np.nan
    return array.dtype, array.shape, array.tobytes() if array.dtype.kind in "biufc" else None


def _alike(one: Any, other: Any, is_exact: bool) -> bool:
    """Whether two values are the same, or differ by rounding where the backend rounds otherwise."""
    if _facts(one) == _facts(other):
        return True
    if is_exact or not all(hasattr(v, "shape") and hasattr(v, "dtype") for v in (one, other)):
        return False
    first, second = (np.asarray(v.toarray() if is_sparse(v) else v) for v in (one, other))
    if first.dtype != second.dtype or first.shape != second.shape or first.dtype.kind not in "fc":
        return False
    near = ROUNDING * np.finfo(first.dtype).eps
    size = np.abs(first[np.isfinite(first)]).max(initial=1)
    return np.allclose(first, second, rtol=near, atol=near * size, equal_nan=True)
