"""The graph that is compared, with the values to compute it from."""

import copy
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import pytensor
from pytensor.compile.io import In
from pytensor.compile.mode import Mode
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Apply, Constant, Variable, clone_get_equiv
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import graph_inputs
from pytensor.scalar.basic import Composite
from pytensor.tensor.basic import AllocEmpty
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.random.type import RandomType

from theanoguard._arguments import filtered
from theanoguard._compare.precision import other_value, recast, unfused
from theanoguard._evaluate.replay import Kernels, Replay
from theanoguard._provenance import attach, tracker_of
from theanoguard._pytensor import Function, captured_inputs, on_copies, without_traces
from theanoguard._values import is_sparse
from theanoguard.guard.pausing import without_watchers
from theanoguard.testvalue import arguments_of

GONE = (
    "The graph as it was written is gone: only the compiled graph of this function was compared, "
    "without fusion. Compile inside theanoguard.track_provenance(), or give the variables."
)

PAIR = "theanoguard_compared"
"""The tag under which a variable carries its number in the graph that is compared."""


@dataclass
class Problem:
    """A graph on plain inputs, and their values."""

    #: Its inputs are the user's inputs and shared variables, its outputs those of the user and then
    #: the new values of shared variables.
    fgraph: FunctionGraph
    values: list  # of the inputs; nobody may change them
    names: list[str]  # of the outputs
    shared: list  # by input: the class of the shared variable, None for an input
    mutable: list[bool]  # by input: whether the function may work in it
    updates: dict[int, int]  # from inputs to the outputs that are their new values
    notes: list[str]  # what the user has to know of what is compared

    def __post_init__(self) -> None:
        attach(self.fgraph)
        for number, variable in enumerate(self.variables):
            setattr(variable.tag, PAIR, number)

    @property
    def variables(self) -> list[Variable]:
        """Inputs and computed variables, in the order of the graph."""
        computed = [v for node in self.fgraph.toposort() for v in node.outputs]
        return [*self.fgraph.inputs, *computed]

    def in_precision(self, precision: str) -> tuple["Problem", dict[Variable, Variable]]:
        """Return the same problem in another precision, and where each variable went."""
        inputs, outputs = self.fgraph.inputs, self.fgraph.outputs
        new = recast(inputs, outputs, precision)
        graph = FunctionGraph([new[v] for v in inputs], [new[v] for v in outputs], clone=False)
        values = [other_value(value, precision) for value in self.values]
        return replace(self, fgraph=graph, values=values), new

    def draws(self) -> list[Variable]:
        """Return the variables that are drawn at random."""
        return [
            v
            for node in self.fgraph.toposort()
            if any(isinstance(i.type, RandomType) for i in node.inputs)
            for v in node.outputs
            if not isinstance(v.type, RandomType)
        ]

    def with_drawn(self, reference: "Reference") -> "Problem":
        """Return the same problem with what is drawn at random as further inputs."""
        draws = self.draws()
        if not draws:
            return self
        given = [v.type(name=v.name) for v in draws]
        for old, new in zip(draws, given, strict=True):
            new.tag = copy.copy(old.tag)
        keep = [i for i, v in enumerate(self.fgraph.outputs) if not isinstance(v.type, RandomType)]
        outputs = clone_replace(
            [self.fgraph.outputs[i] for i in keep], dict(zip(draws, given, strict=True))
        )
        new_place = {old: new for new, old in enumerate(keep)}
        return Drawn(
            fgraph=FunctionGraph([*self.fgraph.inputs, *given], outputs, clone=True),
            values=[*self.values, *(reference.value(v) for v in draws)],
            names=[self.names[i] for i in keep],
            shared=[*self.shared, *(None for _ in draws)],
            mutable=[*self.mutable, *(False for _ in draws)],
            updates={i: new_place[o] for i, o in self.updates.items() if o in new_place},
            notes=self.notes,
        )

    def reference(self) -> "Reference":
        """Return the evaluation of the graph node by node, in Python."""
        return Reference(self.fgraph, dict(zip(self.fgraph.inputs, self.values, strict=True)))

    def compile(self, mode: Mode) -> "Compiled":
        """Return a function that computes the outputs as `mode` compiles them.

        Shared variables are copies of the user's, and updates are updates.
        """
        inputs = self.fgraph.inputs
        fresh = {
            i: kind(type=v.type, value=copy_of(value), strict=True, name=v.name)
            for i, (v, kind, value) in enumerate(zip(inputs, self.shared, self.values, strict=True))
            if kind is not None
        }
        outputs = clone_replace(
            list(self.fgraph.outputs), {inputs[i]: new for i, new in fresh.items()}
        )
        free = [i for i in range(len(inputs)) if i not in fresh]
        is_update = set(self.updates.values())
        run = pytensor.function(
            [In(inputs[i], mutable=self.mutable[i]) for i in free],
            [v for i, v in enumerate(outputs) if i not in is_update],
            updates=[(fresh[i], outputs[o]) for i, o in self.updates.items()],
            mode=mode,
            accept_inplace=True,
            on_unused_input="ignore",
        )

        def call(values: Sequence[Any]) -> list:
            for i, variable in fresh.items():
                variable.set_value(copy_of(values[i]), borrow=True)
            results = iter(run(*[copy_of(values[i]) for i in free]))
            new = {o: fresh[i].get_value(borrow=True) for i, o in self.updates.items()}
            return [as_value(new[o] if o in new else next(results)) for o in range(len(outputs))]

        return Compiled(call, self.values, run.maker.fgraph)


@dataclass(frozen=True)
class Compiled:
    """A compiled problem: a function of the inputs, by default with the problem's values."""

    call: Callable[[Sequence[Any]], list]
    values: list
    fgraph: FunctionGraph  # as it was compiled

    def __call__(self, values: Sequence[Any] | None = None) -> list:
        return self.call(self.values if values is None else values)


class Drawn(Problem):
    """A problem in which what is drawn at random has been drawn already."""

    def __post_init__(self) -> None:
        attach(self.fgraph)  # (its variables bear their numbers)


class Reference(Replay):
    """The evaluation of a graph, which remembers what had to be computed.

    `ran`: the nodes, in the order in which they were computed.
    """

    def __init__(
        self, fgraph: FunctionGraph, inputs: Mapping[Variable, Any], kernels: Kernels | None = None
    ) -> None:
        super().__init__(fgraph, inputs, kernels or Kernels("py"))
        self.ran: dict[Apply, None] = {}

    def compute(self, node: Apply) -> Generator[tuple, None, list]:
        values = yield from super().compute(node)
        self.ran[node] = None
        return values

    def variables(self) -> list[Variable]:
        """Return the computed variables, but for memory that nothing has been written to."""
        return [v for n in self.ran if not isinstance(n.op, AllocEmpty) for v in n.outputs]


def copy_of(value: Any) -> Any:
    """Return a copy that shares nothing with the value."""
    return copy.deepcopy(value)


def as_value(value: Any) -> Any:
    """Return what a backend gave as NumPy's or SciPy's object, where it is an array."""
    if isinstance(value, np.ndarray) or is_sparse(value):
        return value
    return np.asarray(value) if hasattr(value, "__array__") else value


def returned(fn: Function, found: Any) -> list:
    """Return what a call returned as the outputs of its problem: then the new shared values."""
    found = list(found.values()) if isinstance(found, dict) else found
    outputs = found if isinstance(found, list | tuple) else [] if found is None else [found]
    updates = sorted(fn.maker.fgraph.update_mapping.items())
    return [*outputs, *(fn.input_storage[i].storage[0] for _, i in updates)]


def make_problem(
    graph_or_function: Any,
    inputs: Mapping | Sequence | None,
    named: Mapping[str, Any] = MappingProxyType({}),
) -> Problem:
    """Return the :class:`Problem` of what was handed to ``compare``.

    `named` are the keyword arguments of a function's call.

    Raises ``TypeError``, ``ValueError``: for a graph or values that do not fit.
    """
    if isinstance(graph_or_function, Function):
        if not isinstance(inputs, Mapping | list | tuple | None):
            kind = type(inputs).__name__
            raise TypeError(
                f"compare(): the inputs of a function are a list or a mapping, not {kind}.\n"
                "Write [value] if the function has one input, or {name: value}."
            )
        return _of_function(graph_or_function, inputs, named)
    outputs = graph_or_function
    if isinstance(outputs, Variable):
        outputs = [outputs]
    if not (
        isinstance(outputs, list | tuple)
        and outputs
        and all(isinstance(v, Variable) for v in outputs)
    ):
        raise TypeError(
            f"nothing can be compared of {graph_or_function!r}.\n"
            "Give a variable, a list of variables, or a function of pytensor.function."
        )
    return _of_graph(list(outputs), inputs)


def _of_graph(outputs: list[Variable], inputs: Mapping | Sequence | None) -> Problem:
    if inputs is not None and not hasattr(inputs, "keys"):
        raise TypeError(
            "the inputs of a graph have no order.\nGive a mapping {variable or name: value}."
        )
    given = dict(inputs or {})
    roots = [v for v in dict.fromkeys(graph_inputs(outputs)) if not isinstance(v, Constant)]
    values = []
    for root in roots:
        key = root if root in given else root.name
        if key is not None and key in given:
            values.append(copy_of(filtered("compare", "inputs", root, given.pop(key))))
        elif isinstance(root, SharedVariable):
            values.append(root.get_value())
        else:
            raise ValueError(
                f"the input {root.name or 'without a name'}, of {root.type}, has no value.\n"
                "Give one for each input: inputs={variable or name: value}."
            )
    if given:
        raise ValueError(
            f"no input of the graph: {', '.join(map(str, given))}.\n"
            f"Its inputs are {', '.join(str(v.name or v) for v in roots)}."
        )
    return _problem(roots, outputs, _names(outputs), values, {}, [False] * len(roots), [])


def _of_function(
    fn: Function, inputs: Mapping | Sequence | None, named: Mapping[str, Any]
) -> Problem:
    fgraph = fn.maker.fgraph
    try:
        values = [copy_of(v) for v in captured_inputs(fn, arguments_of(fn, inputs), named)]
    except (TypeError, ValueError) as error:
        cells = zip(fn.maker.inputs, fn.input_storage, strict=True)
        takes = ", ".join(
            f"{spec.variable.name or 'an input without a name'} ({spec.variable.type})"
            for spec, cell in cells
            if not cell.implicit
        )
        first = str(error).strip().splitlines()[0]
        problem = f"the inputs do not fit the function: {first}\nIt takes {takes}."
        raise type(error)(problem) from None
    roots = list(fgraph.inputs)
    tracker = tracker_of(fgraph)
    notes = []
    if tracker is not None and tracker.original_outputs:
        outputs, _ = tracker.before()
    else:
        new = without_damage(fgraph, fused=False)
        outputs = [new.get(v, v) for v in fgraph.outputs]
        notes.append(GONE)
    roots += [v for v in _leaves(outputs) if v not in set(roots)]
    if len(roots) > len(values):
        raise ValueError("the graph has been changed since the function was compiled")
    n_own = len(fn.maker.outputs)
    updates = {i_in: i_out for i_out, i_in in fgraph.update_mapping.items()}
    names = _names(outputs[:n_own])
    of_output = {o: i for i, o in updates.items()}
    for o in range(n_own, len(outputs)):
        names.append(f"the new value of {roots[of_output[o]].name or 'an unnamed variable'}")
    mutable = [bool(spec.mutable) for spec in fn.maker.inputs]
    shared = [spec.variable if spec.shared else None for spec in fn.maker.inputs]
    return _problem(roots, outputs, names, values, updates, mutable, notes, shared)


def _leaves(outputs: Sequence[Variable]) -> list[Variable]:
    return [v for v in dict.fromkeys(graph_inputs(outputs)) if not isinstance(v, Constant)]


def without_damage(fgraph: FunctionGraph, fused: bool = True) -> dict[Variable, Variable]:
    """Copy a graph so that nothing in it is overwritten which is still needed.

    The result maps each variable to the one that stands for it, and inputs to themselves.

    `fused`: whether fused operations stay so.
    """
    new = {v: v for v in fgraph.inputs}
    for node in fgraph.toposort():
        ins = [new.get(v, v) for v in node.inputs]
        scalar_op = getattr(node.op, "scalar_op", None)
        if isinstance(node.op, Elemwise) and isinstance(scalar_op, Composite) and not fused:
            with without_traces():  # (the user has not written them here)
                outs = unfused(scalar_op, ins)
        else:
            outs = on_copies(node, ins)
        new.update(zip(node.outputs, outs, strict=True))
    return new


def _names(outputs: Sequence[Variable]) -> list[str]:
    """Return a name for each output, all of them different."""
    names = [v.name or f"output {i}" for i, v in enumerate(outputs)]
    return [
        name if name not in names[:i] else f"{name} (output {i})" for i, name in enumerate(names)
    ]


def _problem(
    roots: list[Variable],
    outputs: list[Variable],
    names: list[str],
    values: list,
    updates: dict[int, int],
    mutable: list[bool],
    notes: list[str],
    shared: list | None = None,
) -> Problem:
    """Copy the graph onto plain inputs."""
    outputs = without_watchers(outputs)
    shared = roots if shared is None else shared
    classes = [type(v) if isinstance(v, SharedVariable) else None for v in shared]
    plain = []
    for root in roots:
        variable = root.type(name=root.name)
        variable.tag = copy.copy(root.tag)
        plain.append(variable)
    new: dict[Any, Any] = dict(zip(roots, plain, strict=True))
    clone_get_equiv([], outputs, copy_inputs=False, copy_orphans=False, memo=new)
    graph = FunctionGraph(plain, [new[v] for v in outputs], clone=False)
    return Problem(graph, values, names, classes, mutable, updates, notes)
