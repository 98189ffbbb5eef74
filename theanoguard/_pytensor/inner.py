"""Operations with an inner graph: how PyTensor's releases link, rewrite and compile it."""

import dataclasses
import sys
from collections.abc import Callable, Sequence
from copy import copy
from functools import partial
from typing import Any, Literal, TypeAlias

from pytensor.compile import function
from pytensor.compile.aliasing import add_supervisor_to_fgraph, insert_deepcopy
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.io import In, Out
from pytensor.compile.maker import FunctionMaker
from pytensor.compile.mode import JAX, NUMBA, Mode, get_mode, predefined_modes
from pytensor.compile.ops import deep_copy_op
from pytensor.configdefaults import config
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.destroyhandler import DestroyHandler
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.link.basic import JITLinker
from pytensor.link.vm import VMLinker
from pytensor.scalar.basic import Composite, ScalarOp, get_scalar_type, or_
from pytensor.scan.op import Scan
from pytensor.scan.utils import ScanProfileStats
from pytensor.tensor.elemwise import CAReduce, Elemwise

from theanoguard._patching import Patch, applied
from theanoguard._pytensor.moved import FusedElemwise, LazyIfElse, link_only_mode
from theanoguard._releases import needs, take_class

MakeLinker: TypeAlias = Callable[[VMLinker], VMLinker | None]


def link_inner(
    op: Op,
    impl: Literal["c", "py"] | None,
    make_linker: MakeLinker,
    wrap_mode: Callable[[Mode], Mode] = lambda mode: mode,
) -> Op | None:
    """Return a copy of `op` whose inner function is linked by a linker of ours.

    Return None if the op needs a linker that is not a ``VMLinker``, or is not to be guarded.

    - `op`: left as it is: ops are shared between graphs.
    - `impl`: what the outer linker passes to ``make_thunk``.
    - `make_linker`: ``make_linker(vm_linker)`` returns a linker with the settings of `vm_linker`,
      or None to leave the op alone.
    - `wrap_mode`: applied to the mode with which 3.0 rewrites the inner graph.
    - Raises ``UnsupportedPyTensor``: if the op keeps its function elsewhere: nothing inside would
      be checked.
    """
    linked_by = ["_fn", "link_mode", "compile_fn"]
    if link_only_mode is None:
        linked_by = ["prepare_fgraph"] if isinstance(op, Scan) else ["inner_inputs"]
    needs(op, *linked_by, what=f"guarding what is inside of {type(op).__name__}")
    if link_only_mode is not None:
        new = copy(op)
        new._fn = None
        linker = new.link_mode("c" if impl is None and config.cxx else impl).linker
        linker = make_linker(linker) if isinstance(linker, VMLinker) else None
        if linker is None:
            return None
        new._fn = new.compile_fn(link_only_mode(linker))
        return new
    if isinstance(op, Scan):
        return _link_scan_3_0(op, impl, make_linker, wrap_mode)
    return _link_op_from_graph_3_0(op, impl, make_linker, wrap_mode)


class PythonLinker(VMLinker):
    """Runs all operations in Python, and those inside of loops and other bodies: nothing is built.

    PyTensor's linker for Python has C code compiled for what is inside.
    """

    def __init__(self) -> None:
        super().__init__(use_cloop=False, c_thunks=False)

    def make_all(self, *args: Any, **kwargs: Any) -> Any:
        """Link copies of the operations that have a body, since graphs share them."""
        for node in self.fgraph.apply_nodes:
            if has_inner_function(node.op):
                node.op = link_inner(node.op, "py", lambda linker: PythonLinker()) or node.op
        return super().make_all(*args, **kwargs)


# The functions whose names end in 3_0 repeat what PyTensor 3.0 does where it links or compiles an
# op, since it offers no hook there.  They go with the support of 3.0.


def _inner_mode_3_0(
    mode: Mode,
    impl: Literal["c", "py"] | None,
    make_linker: MakeLinker,
    wrap_mode: Callable[[Mode], Mode],
) -> Mode | None:
    linker = mode.linker
    if not isinstance(linker, VMLinker):
        linker = VMLinker(use_cloop=bool(config.cxx) and impl is None)
    linker = make_linker(linker)
    return None if linker is None else wrap_mode(Mode(linker, mode.provided_optimizer))


def _link_scan_3_0(
    op: Op,
    impl: Literal["c", "py"] | None,
    make_linker: MakeLinker,
    wrap_mode: Callable[[Mode], Mode],
) -> Op | None:
    new = op.clone()
    inputs, outputs = new.prepare_fgraph(new.fgraph)
    if new.mode in (None, "FAST_RUN"):
        mode = Mode("cvm" if config.cxx else "vm", "fast_run")
    elif new.mode == "FAST_COMPILE":
        mode = Mode(VMLinker(use_cloop=False, c_thunks=False), "fast_compile")
    else:
        mode = get_mode(new.mode)
        mode = mode.clone(link_kwargs={"allow_gc": new.allow_gc})
        if not isinstance(mode.linker, VMLinker):
            return None
    mode = _inner_mode_3_0(mode, impl, make_linker, wrap_mode)
    if mode is None:
        return None
    profile = new.profile or config.profile
    if profile and not isinstance(profile, ScanProfileStats):
        profile = ScanProfileStats(name=profile if isinstance(profile, str) else new.name)
    new._fn = mode.function_maker(
        inputs,
        outputs,
        mode=mode,
        accept_inplace=True,
        profile=profile or None,
        on_unused_input="ignore",
        fgraph=new.fgraph,
    ).create()
    return new


def _link_op_from_graph_3_0(
    op: Op,
    impl: Literal["c", "py"] | None,
    make_linker: MakeLinker,
    wrap_mode: Callable[[Mode], Mode],
) -> Op | None:
    new = copy(op)
    kwargs = {**new.kwargs, "accept_inplace": True}
    mode = get_mode(kwargs.pop("mode", None)).excluding("symbolic_op_recognition")
    mode = _inner_mode_3_0(mode, impl, make_linker, wrap_mode)
    if mode is None:
        return None
    new._fn = function(new.inner_inputs, new.inner_outputs, mode=mode, **kwargs)
    new._fn.trust_input = True
    return new


def in_other_mode(op: Op, other: Callable[[Any], Any]) -> Op:
    """Return an operation whose inner graph is compiled in another mode than its own.

    - `other`: callable from a mode to the other one, which may be the same.
    - Returns: `op` itself if it has no mode of its own, or if the other one is the same.
    """
    if isinstance(op, Scan):
        mode = op.mode
        new_mode = mode if mode is None else other(mode)
    elif isinstance(op, OpFromGraph) and link_only_mode is None:  # (later ones take the outer mode)
        mode = op.kwargs.get("mode")
        new_mode = other(mode)
    else:
        return op
    if new_mode is mode:
        return op
    new = op.clone() if isinstance(op, Scan) else op
    new = copy(op) if new is op else new
    new._fn = None
    if isinstance(op, Scan):
        new.mode = new_mode
    else:
        new.kwargs = {**op.kwargs, "mode": new_mode}
    return new


def inner_graph(op: Op) -> FunctionGraph:
    """Return the inner graph of `op` as it was linked, else as the op holds it.

    In both, inputs and outputs are in the op's own order.  An op says nowhere else which graph it
    has linked.  Without ``_fn``, reports would name the nodes of a graph that did not run.
    """
    linked = getattr(op, "_fn", None)
    return op.fgraph if linked is None else linked.maker.fgraph


def thawed_graph(op: Op) -> FunctionGraph:
    """Return a copy of the inner graph of `op` whose variables have names and stack traces."""
    return op.fgraph.unfreeze() if hasattr(op.fgraph, "unfreeze") else op.fgraph.clone()


def has_inner_function(op: Op) -> bool:
    """Whether `op` runs its inner graph as a function that it links by itself."""
    return isinstance(op, Scan | OpFromGraph) or hasattr(op, "compile_fn")


def is_optimizer(op: Op) -> bool:
    """Whether `op` is one of ``pytensor.tensor.optimize``, which calls its inner function."""
    module = sys.modules.get("pytensor.tensor.optimize")
    return module is not None and isinstance(op, module.ScipyWrapperOp)


def link_optimizer(op: Op, make_linker: MakeLinker, wrap_mode: Callable[[Mode], Mode]) -> Op | None:
    """Return a copy of an optimizer whose objective is linked by a linker of ours.

    The other parameters are those of :func:`link_inner`.
    """
    made_by = "_fn_wrapped" if link_only_mode is not None else "build_fn"
    needs(op, made_by, what="guarding the objective of an optimizer")
    if link_only_mode is not None:
        new = link_inner(op, None, make_linker)
        if new is not None:
            new._fn_wrapped = None
        return new
    mode = _inner_mode_3_0(get_mode(None), None, make_linker, wrap_mode)
    new = copy(op)
    compiling = Patch(sys.modules[type(op).__module__], "function", partial(partial, mode=mode))
    with applied([compiling]):
        new.build_fn()
    new.build_fn = _is_built  # (what makes the thunk would build it again)
    return new


def _is_built() -> None:
    """Do nothing: the inner function has been built."""


def python_thunk(
    fn: Any, node: Apply, storage_map: dict[Variable, list], compute_map: dict[Variable, list]
) -> Any:
    """Return the thunk of `node` that runs in Python; the one in C where there is no other.

    Nothing is compiled for it, and the op's own inner function is left alone.  `fn` is the function
    whose graph has the node, None for a graph that has not been rewritten.
    """
    op = _op_for_machine(fn, node)
    if has_inner_function(op):
        linked = link_inner(
            op,
            "py",
            lambda linker: VMLinker(use_cloop=False, c_thunks=False, allow_gc=linker.allow_gc),
            lambda mode: Mode(mode.linker, "fast_compile"),
        )
        op = op if linked is None else linked
    in_python = _thunk_of(op, node, storage_map, compute_map, "py")

    def thunk() -> Any:
        try:
            return in_python()
        except NotImplementedError:
            if not config.cxx:
                raise
        return _thunk_of(op, node, storage_map, compute_map, "c")()

    return thunk


def single_thunk(
    fn: Any, node: Apply, storage_map: dict[Variable, list], compute_map: dict[Variable, list]
) -> Any:
    """Return the thunk of `node`, which is of the graph of the function `fn`, on other storage.

    It is the one that a C virtual machine runs, and it overwrites nothing but what the node itself
    says that it overwrites.
    """
    linker = fn.maker.linker
    impl: Literal["py"] | None = (
        "py" if isinstance(linker, VMLinker) and not linker.c_thunks else None
    )
    return _thunk_of(_op_for_machine(fn, node), node, storage_map, compute_map, impl)


def _op_for_machine(fn: Any, node: Apply) -> Op:
    """Return the op of a node of the graph of `fn`, for a virtual machine."""
    is_jitted = fn is not None and isinstance(fn.maker.linker, JITLinker)
    return overwriting_copies(node.op) if is_jitted else node.op


def _thunk_of(
    op: Op,
    node: Apply,
    storage_map: dict[Variable, list],
    compute_map: dict[Variable, list],
    impl: Literal["c", "py"] | None,
) -> Callable[[], Any]:
    """Return the thunk of a node like `node` with another op, on the same storage."""
    if op is not node.op:
        outputs = [v.clone() for v in node.outputs]
        for ours, theirs in zip(outputs, node.outputs, strict=True):
            storage_map[ours], compute_map[ours] = storage_map[theirs], compute_map[theirs]
        node = Apply(op, node.inputs, outputs)
    return op.make_thunk(node, storage_map, compute_map, [], impl=impl)


def overwriting_copies(op: Op) -> Op:
    """Return an op whose inner graph may run by another linker than that it was rewritten for.

    Numba copies the first state of a loop, so its rewrites let the loop overwrite that state, and
    a virtual machine would overwrite the caller's array.

    It is `op`, or a copy of it whose inner graph overwrites only what it has copied.
    """
    if isinstance(op, LazyIfElse):
        branches = (op.true_branch, op.false_branch)
        found = tuple(map(overwriting_copies, branches))
        if found != branches:
            op = copy(op)
            op.true_branch, op.false_branch = found
    if not isinstance(op, Scan | OpFromGraph):
        return op
    graph = thawed_graph(op)
    new = {v: v for v in graph.inputs}
    as_it_was = True
    for node in graph.toposort():
        outputs = on_copies(node, [new.get(v, v) for v in node.inputs])
        as_it_was &= outputs[0].owner.op is node.op
        new |= zip(node.outputs, outputs, strict=True)
    if as_it_was:
        return op
    graph = FunctionGraph(graph.inputs, [new.get(v, v) for v in graph.outputs], clone=False)
    op = copy(op)
    op._fn = None
    op.fgraph = graph if link_only_mode is None else graph.freeze()
    if link_only_mode is None and isinstance(op, Scan):
        op.mode = _Overwriting("cvm" if config.cxx else "vm", "fast_run")
    elif link_only_mode is None:
        op.kwargs = {**op.kwargs, "accept_inplace": True}
    return op


def on_copies(node: Apply, inputs: Sequence[Variable]) -> list[Variable]:
    """Return the outputs of a node like `node` that overwrites copies of `inputs`, not these."""
    op = overwriting_copies(node.op)
    overwritten = {i for places in op.destroy_map.values() for i in places}
    new = node.clone_with_new_inputs(
        [deep_copy_op(v) if i in overwritten else v for i, v in enumerate(inputs)]
    )
    new.op = op
    # (A Scan refuses a body that gives what a node has overwritten.)
    return [deep_copy_op(v) for v in new.outputs] if overwritten else new.outputs


class _Overwriting(Mode):
    """A mode that PyTensor 3.0 needs for a Scan whose body overwrites its copies."""

    @property
    def function_maker(self) -> Callable[..., FunctionMaker]:
        return lambda *args, **kwargs: FunctionMaker(*args, **{**kwargs, "accept_inplace": True})


class CheckedBody(OpFromGraph):
    """An ``OpFromGraph`` whose graph is compiled as it stands."""


class CheckedIfElse(LazyIfElse):
    """A ``LazyIfElse`` whose branches have checks for JAX."""


class _Rewritten(Mode):
    """A mode that rewrites nothing, and stays so."""

    def including(self, *tags: str) -> "_Rewritten":
        return self

    excluding = including

    @property
    def optimizer(self) -> Callable[[FunctionGraph], None]:
        return lambda fgraph: None


def inner_graphs_for_numba(
    node: Apply,
    compiled_by: Callable[[type], Any],
    prepare: Callable[[FunctionGraph], Any] | None = None,
) -> list[FunctionGraph]:
    """Return the graphs that Numba compiles for a node as functions of their own.

    They are as they will be compiled.  Other ops have none.

    `node`: one of a graph that has been rewritten for Numba.
    `compiled_by`: ``compiled_by(kind)`` is what compiles ops of a class.
    `prepare`: called with each graph that is rewritten only here, before that.
    """

    def rewritten() -> FunctionGraph:
        fgraph = node.op.fgraph.clone(clone_inner_graphs=True)
        if prepare is not None:
            prepare(fgraph)
        if isinstance(node.op, Scan):
            return _rewritten_scan_3_0(node, fgraph)
        return _rewritten_body_3_0(fgraph)

    return inner_graphs(node.op, compiled_by, rewritten)


def inner_graphs(
    op: Op, compiled_by: Callable[[type], Any], rewritten_as_3_0: Callable[[], FunctionGraph]
) -> list[FunctionGraph]:
    """Return the graphs that a backend compiles for an op as functions of their own.

    They are as they will be compiled.  Other ops have none.

    - `op`: op of a graph that has been rewritten for the backend.
    - `compiled_by`: ``compiled_by(kind)`` is what compiles ops of a class.
    - `rewritten_as_3_0`: returns the op's graph as PyTensor 3.0 rewrites it only then.
    """
    if isinstance(op, LazyIfElse):
        return [op.true_branch.fgraph, op.false_branch.fgraph]
    if not isinstance(op, Scan | OpFromGraph):
        return []
    if isinstance(op, OpFromGraph) and compiled_by(type(op)) is not compiled_by(OpFromGraph):
        return []  # compiled as one piece: a fused operation, or JAX's own softmax
    if link_only_mode is not None:  # 3.3 has rewritten them with the graph outside
        return [op.fgraph]
    return [rewritten_as_3_0()]


def _rewritten_scan_3_0(node: Apply, fgraph: FunctionGraph) -> FunctionGraph:
    """Do what ``numba_funcify`` of a Scan does before it compiles the inner graph."""
    op = node.op
    info = op.info
    destroyable = set(op.inner_untraced_sit_sot(fgraph.inputs))
    for outer, inner in zip(
        op.outer_sitsot(node.inputs), op.inner_sitsot(fgraph.inputs), strict=True
    ):
        if outer.type.shape[0] == 1:
            destroyable.add(inner)
    for outer, inner, taps in zip(
        op.outer_mitsot(node.inputs),
        op.oldest_inner_mitsot(fgraph.inputs),
        info.mit_sot_in_slices,
        strict=True,
    ):
        if outer.type.shape[0] == abs(min(taps)):
            destroyable.add(inner)
    specs = [In(v, borrow=True, mutable=v in destroyable) for v in fgraph.inputs]
    add_supervisor_to_fgraph(fgraph=fgraph, input_specs=specs, accept_inplace=True)
    mode = get_mode(op.mode).including("numba").excluding(*NUMBA._optimizer.exclude)
    mode.optimizer(fgraph)
    kept = set(op.inner_untraced_sit_sot_outs(fgraph.outputs))
    outs = [Out(v, borrow=v in kept) for v in fgraph.outputs]
    insert_deepcopy(fgraph, wrapped_inputs=specs, wrapped_outputs=outs)
    return fgraph


def _rewritten_body_3_0(fgraph: FunctionGraph) -> FunctionGraph:
    """Do what ``numba_funcify`` of an OpFromGraph does before it compiles the inner graph."""
    specs = [In(v, borrow=True, mutable=False) for v in fgraph.inputs]
    add_supervisor_to_fgraph(fgraph=fgraph, input_specs=specs, accept_inplace=True)
    NUMBA.excluding("symbolic_op_recognition").optimizer(fgraph)
    outs = [Out(v, borrow=False) for v in fgraph.outputs]
    insert_deepcopy(fgraph, wrapped_inputs=specs, wrapped_outputs=outs)
    return fgraph


def inner_graphs_for_jax(node: Apply, compiled_by: Callable[[type], Any]) -> list[FunctionGraph]:
    """Return the graphs that JAX traces for a node as functions of their own.

    They are as they will be traced.  Other ops have none.

    `node`: one of a graph that has been rewritten for JAX.
    `compiled_by`: as for :func:`inner_graphs_for_numba`.
    """
    return inner_graphs(node.op, compiled_by, lambda: _rewritten_for_jax_3_0(node.op))


def rewritten_3_0(op: Op, mode: str) -> FunctionGraph:
    """Do what PyTensor 3.0 does to the graph of an op before a backend compiles it.

    `mode`: PyTensor's name of the backend's mode.
    """
    fgraph = op.fgraph.clone(clone_inner_graphs=True)
    predefined_modes[mode].optimizer(fgraph)
    return fgraph


def _rewritten_for_jax_3_0(op: Op) -> FunctionGraph:
    if not isinstance(op, Scan):
        return rewritten_3_0(op, "JAX")
    fgraph = op.fgraph.clone(clone_inner_graphs=True)
    # (what ``jax_funcify`` does to the graph of the op itself)
    mode = get_mode(op.mode).including("jax").excluding("numba", *JAX._optimizer.exclude)
    mode.optimizer(fgraph)
    return fgraph


def with_flag(op: Op, graphs: Sequence[FunctionGraph], n: int = 1) -> Op:
    """Return a copy of `op` that JAX traces with other inner graphs.

    `graphs`: list of FunctionGraph in the place of those of :func:`inner_graphs_for_jax`, with `n`
    outputs more at the end, which the op then gives as well.  That of a Scan also takes what these
    were at the step before, as inputs before those that do not change.
    """
    new = _with_graphs(op, graphs, lambda info: {"n_untraced_sit_sot": info.n_untraced_sit_sot + n})
    if isinstance(op, LazyIfElse):
        take_class(new, CheckedIfElse, "backend='jax'")
    return new


def with_inner_graphs(op: Op, graphs: Sequence[FunctionGraph]) -> Op:
    """Return a copy of `op` that Numba compiles with other inner graphs.

    `graphs`: list of FunctionGraph in the place of those of :func:`inner_graphs_for_numba`, with
    one input more at the end, which the op then takes as well.
    """
    new = _with_graphs(op, graphs, lambda info: {"n_non_seqs": info.n_non_seqs + 1})
    if isinstance(op, Scan) and link_only_mode is None:
        new.fgraph.attach_feature(DestroyHandler())
    return new


def _with_graphs(
    op: Op, graphs: Sequence[FunctionGraph], changes: Callable[[Any], dict[str, Any]]
) -> Op:
    """Return a copy of `op` with other inner graphs.

    ``changes(info)`` returns the fields of a Scan's info that change.
    """
    new = copy(op)
    if isinstance(op, LazyIfElse):
        branches = (op.true_branch, op.false_branch)
        new.true_branch, new.false_branch = (
            _with_graphs(branch, [graph], changes)
            for branch, graph in zip(branches, graphs, strict=True)
        )
        return new
    [new.fgraph] = graphs
    new._fn = None
    if isinstance(op, OpFromGraph):
        take_class(new, CheckedBody, "the guard of an OpFromGraph")
        return new
    new.info = dataclasses.replace(op.info, **changes(op.info))
    if link_only_mode is None:
        new.mode = _Rewritten()
    return new


def with_tests(op: FusedElemwise, tests: Sequence[tuple[int, ScalarOp]]) -> FusedElemwise:
    """Return a copy of `op` that tests elements of its operands in its loop.

    It has one output more for each test: the bitwise OR of the integers.

    `op`: one that indexes nothing and overwrites nothing.
    `tests`: which operand, and what is computed from each of its elements: an integer.
    """
    inputs = [v.type() for v in op.fgraph.inputs]
    new = dict(zip(op.fgraph.inputs, inputs, strict=True))
    for node in op.fgraph.toposort():
        given = [new.get(v, v) for v in node.inputs]
        if isinstance(node.op, Elemwise):
            scalars = [get_scalar_type(v.type.dtype)() for v in given]
            results = node.op.scalar_op.make_node(*scalars).outputs
            integers = [test(scalars[i]) for i, test in tests]
            elemwise = Elemwise(Composite(scalars, [*results, *integers])).make_node(*given)
            found = elemwise.outputs
        else:
            found = Apply(node.op, given, [v.type() for v in node.outputs]).outputs
        new.update(zip(node.outputs, found, strict=False))
    tested = elemwise.outputs[-len(tests) :]
    axes = tuple(range(elemwise.outputs[0].type.ndim))
    reduced = op.reduced_outputs or (None,) * len(op.fgraph.outputs)
    return FusedElemwise(
        inputs,
        [*(new[v] for v in op.fgraph.outputs), *(CAReduce(or_)(v) for v in tested)],
        reduced_outputs=(*reduced, *((or_, axes, or_.identity, v.type.dtype) for v in tested)),
    )
