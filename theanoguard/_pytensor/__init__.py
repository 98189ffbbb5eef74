"""The only package that knows the differences between releases of PyTensor.

Everything that differs between the supported releases (3.0 to 3.3), or that PyTensor does not
document, is reached through here.  :mod:`theanoguard._releases` says what happens without a name.
"""

import importlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import copy
from functools import wraps
from pathlib import Path
from types import FrameType
from typing import Any, Literal

import pytensor
from pytensor import config
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.mode import Mode, get_mode
from pytensor.graph import utils as graph_utils
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.features import Feature
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.graph.rewriting.basic import GraphRewriter
from pytensor.graph.rewriting.db import RewriteDatabase
from pytensor.graph.traversal import toposort
from pytensor.graph.type import Type
from pytensor.graph.utils import InconsistencyError
from pytensor.scalar import basic as scalar_basic
from pytensor.scalar import math as scalar_math
from pytensor.scalar.basic import Composite, ScalarOp, ScalarType
from pytensor.scan import basic as scan_basic
from pytensor.scan.op import Scan
from pytensor.tensor import blas, subtensor
from pytensor.tensor.elemwise import CAReduce, Elemwise
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.type import TensorType

from theanoguard._patching import Patch, applied
from theanoguard._patching import apply as apply_patches
from theanoguard._pytensor.files import is_untraced
from theanoguard._pytensor.inner import (
    CheckedBody,
    CheckedIfElse,
    PythonLinker,
    has_inner_function,
    in_other_mode,
    inner_graph,
    inner_graphs,
    inner_graphs_for_jax,
    inner_graphs_for_numba,
    is_optimizer,
    link_inner,
    link_optimizer,
    on_copies,
    python_thunk,
    rewritten_3_0,
    single_thunk,
    thawed_graph,
    with_flag,
    with_inner_graphs,
    with_tests,
)
from theanoguard._pytensor.machines import (
    capsule_of,
    captured_inputs,
    failed_node,
    finished_call,
    runner_of,
)
from theanoguard._pytensor.moved import (
    FinalizedOpFromGraph,
    FusedElemwise,
    IfElse,
    LazyIfElse,
    ifelse,
)
from theanoguard._releases import (
    has,
    has_local,
    probed,
    required,
    take_class,
    warn_if_untested,
)

warn_if_untested()

with required():
    from pytensor.compile.executor import Function
    from pytensor.compile.maker import FunctionMaker
    from pytensor.compile.mode import (
        fast_run_linkers_to_mode,
        predefined_linkers,
        predefined_modes,
        predefined_optimizers,
    )
    from pytensor.graph.basic import NominalVariable
    from pytensor.graph.fg import Output
    from pytensor.link.basic import Container, JITLinker, PerformLinker
    from pytensor.link.c.type import generic
    from pytensor.link.utils import get_destroy_dependencies, map_storage, raise_with_op
    from pytensor.link.vm import VM, VMLinker


_gcc_compiler = probed("pytensor.link.c.cmodule.GCC_compiler", "the checks in C (NumPy does them)")
compile_lock = (
    probed("pytensor.compile.compilelock.lock_ctx", "waiting while others build the kernel")
    or nullcontext  # (the file is put in its place at once)
)
_try_blas_flag = probed("pytensor.link.c.cmodule.try_blas_flag", "the doctor's test of the BLAS")
_configuration_files = probed(
    "pytensor.configparser.config_files_from_pytensorrc", "the doctor's list of configuration files"
)
_collect_new_shareds = probed(
    "pytensor.scan.basic.collect_new_shareds", "test values inside the step of a scan"
)
# PyTensor hands the arguments of a step to nobody, so they are read from the frame of `scan`.
_SCAN_LOCALS = (
    ("inner_seqs", "inner_slices"),
    ("mit_sot_inner_inputs", "mit_sot_inner_slices"),
    ("sit_sot_inner_inputs", "sit_sot_inner_slices"),
    ("untraced_sit_sot_inner_inputs", "untraced_sit_sot_scan_inputs"),
)
_shows_steps = _collect_new_shareds is not None and all(
    has_local(scan_basic.scan, name, "test values inside the step of a scan")
    for pair in _SCAN_LOCALS
    for name in pair
)
_joins_rewrites = has(
    RewriteDatabase(), "__db__", "removing asserts of theanoguard.ops with local_remove_all_assert"
)
vectorize_node = probed("pytensor.graph.replace._vectorize_node", "Assert under vectorize")
"""The dispatcher that vectorizes a node, or None."""


def is_lazy(op: Op) -> bool:
    """Whether the thunks of `op` request their inputs one by one."""
    return isinstance(op, IfElse)


def is_numeric(kind: Type) -> bool:
    """Whether values of this Type hold numbers: arrays, scalars, sparse matrices, lists of such."""
    if isinstance(kind, TensorType | ScalarType):
        return True
    element = getattr(kind, "ttype", None)  # of a typed list
    if element is not None:
        return is_numeric(element)
    return is_sparse(kind)


def is_sparse(kind: Type) -> bool:
    """Whether values of this Type are sparse matrices."""
    return type(kind).__name__ == "SparseTensorType"  # its module is slow to import


def has_initial(op: Op) -> bool:
    """Whether a reduction has a result where there is nothing to reduce, as PyTensor 3.3 allows."""
    return getattr(op, "initial", False)


def scalar_ops_of(op: Op, index: int | None = None) -> Iterator[ScalarOp]:
    """Yield the scalar operations that an ``Elemwise`` or a reduction is made of.

    With `index`, only those that this output of a fused operation is computed by.
    """
    scalar_op = getattr(op, "scalar_op", None) if isinstance(op, Elemwise | CAReduce) else None
    if isinstance(scalar_op, Composite):
        outputs = scalar_op.fgraph.outputs
        outputs = outputs if index is None else [outputs[index]]
        yield from (node.op for node in toposort(outputs))
    elif scalar_op is not None:
        yield scalar_op


def literals_of(scalar_op: ScalarOp) -> Iterator[Constant]:
    """Yield the constants inside of a fused operation, and of those inside of it."""
    if isinstance(scalar_op, Composite):
        for node in toposort(scalar_op.fgraph.outputs):
            yield from (v for v in node.inputs if isinstance(v, Constant))
            yield from literals_of(node.op)


def scalar_classes(names: Iterable[str]) -> dict[str, type[ScalarOp]]:
    """Return the classes of scalar operations of these names that this release has, by name."""
    modules = (scalar_basic, scalar_math)
    return {n: getattr(m, n) for n in names for m in modules if hasattr(m, n)}


def core_node(node: Apply) -> Apply:
    """Return the node that a ``Blockwise`` node runs for each entry of its batch."""
    return node.op._create_dummy_core_node(node.inputs)


def c_compiler() -> Any:
    """Return PyTensor's wrapper of the C++ compiler; None if there is none."""
    return _gcc_compiler if config.cxx else None


def library_extension() -> str:
    """Return the suffix of a compiled module."""
    return "pyd" if sys.platform == "win32" else "so"


def blas_links(flags: str) -> bool | None:
    """Whether a program that calls the BLAS compiles, links and runs; None if that is not known."""
    return None if _try_blas_flag is None else bool(_try_blas_flag(flags.split()))


# The file of PyTensor's own `sys.excepthook`, which calls Python's.
excepthook_file = importlib.import_module("pytensor.utils").__file__


def configuration_files() -> list[Path]:
    """Return the configuration files that PyTensor looks for, whether they exist or not."""
    return [] if _configuration_files is None else _configuration_files()


def default_impl() -> Literal["c", "py"]:
    """Return "c" where PyTensor has a C++ compiler, else "py"."""
    return "c" if pytensor.config.cxx else "py"


# The tags of the rewrites that make one loop of several nodes: without them, and without those that
# work in place, a compiled graph keeps the values between.  (The last one is 3.3's, for Numba.)
FUSING = ("fusion", "fuse_indexed_into_elemwise")
IN_PLACE = ("inplace",)


def _existing(module: Any, *names: str) -> tuple:
    return tuple(getattr(module, name) for name in names if hasattr(module, name))


# PyTensor 3.3 has no separate op for one vector of integers along the first axis.
advanced_subtensor_ops = _existing(subtensor, "AdvancedSubtensor", "AdvancedSubtensor1")
advanced_increment_ops = _existing(subtensor, "AdvancedIncSubtensor", "AdvancedIncSubtensor1")
increment_ops = (subtensor.IncSubtensor, *advanced_increment_ops)  # they write elements, or add
# The last one's methods that refuse to broadcast a length which only turns out to be 1.
# 3.3 has no rank-one update any more.
ger_ops = _existing(blas, "Ger")


def join_rewrite(database: RewriteDatabase, name: str, rewriter: Any) -> None:
    """Let whoever asks `database` for the rewrite called `name` get `rewriter` too."""
    # `add_tags` refuses a tag that is already the name of a rewrite.  Without `__db__`, Theano's
    # name removes PyTensor's own asserts alone.
    if _joins_rewrites:
        database.__db__[name].add(rewriter)


# 3.3 keeps the inner graphs of ops frozen, and loses names and stack traces in freezing; 3.0
# has the class for Composite alone, and no such hook.
frozen_graph_class = importlib.import_module("pytensor.graph.fg").FrozenFunctionGraph
if not hasattr(frozen_graph_class, "_freeze"):
    frozen_graph_class = None


# Modules in which the user's own variables are made, on the way from the user's line.
_CONSTRUCTORS = tuple(
    os.path.join(os.path.dirname(pytensor.__file__), *parts)
    for parts in (
        ("graph", "type.py"),
        ("tensor", "type.py"),
        ("scalar", "basic.py"),
        ("sparse", "basic.py"),
        ("sparse", "type.py"),
        ("typed_list", "type.py"),
    )
)


def is_constructor_file(file: str) -> bool:
    """Whether functions of `file` make variables for whoever calls them."""
    return file in _CONSTRUCTORS


def is_nominal(variable: Variable) -> bool:
    """Whether `variable` is an input of an inner graph, known by its number alone."""
    return isinstance(variable, NominalVariable)


# What `add_tag_trace` leaves away at the inner end of a stack trace.
_UNTRACED = (
    "pytensor/tensor/",
    "pytensor/compile/",
    "pytensor/graph/",
    "pytensor/scalar/basic.py",
    "pytensor/scan/",
    "pytensor/sparse/",
    "pytensor/typed_list/",
)


def _is_untraced(file: str) -> bool:
    return file == __file__ or is_untraced(file, _UNTRACED)


def _retrace(variable: Variable) -> None:
    """Give `variable` the stack trace that it would have without the hooks on the stack.

    A frame of this file would end the run of PyTensor's own frames that PyTensor skips.
    """
    if config.traceback__compile_limit > 0:
        return
    limit = config.traceback__limit
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and _is_untraced(frame.f_code.co_filename):
        frame = frame.f_back
    # Two frames may be ours at every level of operations that apply operations.
    depth = None if limit == -1 else 3 * limit
    trace = graph_utils.simple_extract_stack(frame, depth) if frame is not None else []
    trace = [entry for entry in trace if entry[0] != __file__]
    trace = trace if limit == -1 else trace[-limit:]
    variable.tag.trace = [trace] if trace else []


def _no_frames(limit: int) -> int:
    return 0


@contextmanager
def without_traces() -> Iterator[None]:
    """Build variables without stack traces while the block runs, to save time.

    Threads may overlap: PyTensor's ``change_flags`` would then restore the wrong limit.
    """
    config.traceback__limit  # noqa: B018 (it gets its value when it is first read)
    limit = config._config_var_dict["traceback__limit"]
    with applied([Patch(limit, "val", _no_frames)]):
        yield


def construction_hooks(
    applied: Callable[[Apply], object],
    made: Callable[[Variable], object],
    suspended: Callable[[], AbstractContextManager],
    before_scan_step: Callable[[FrameType], object],
) -> Callable[[], None]:
    """Patch PyTensor so that graph construction can be watched.

    - `applied`: ``applied(node)`` is called for each node that ``Op.__call__`` has built.
    - `made`: ``made(variable)`` is called for each variable that a Type has made.
    - `suspended`: returns a context manager that is entered while a graph is rewritten or compiled.
    - `before_scan_step`: ``before_scan_step(frame)`` is called with the frame of ``scan`` just
      before it calls the step function.
    - Returns: puts everything back.
    """

    def watch_apply(apply_op: Callable) -> Callable:
        @wraps(apply_op)
        def watched(self: Op, *inputs: Sequence[Any], **kwargs: Any) -> Any:
            result = apply_op(self, *inputs, **kwargs)
            first = result[0] if isinstance(result, list | tuple) and result else result
            if isinstance(first, Variable) and first.owner is not None:
                applied(first.owner)
            return result

        return watched

    def watch_made(make_variable: Callable) -> Callable:
        @wraps(make_variable)
        def watched(self: Type, *args: Any, **kwargs: Any) -> Variable:
            variable = make_variable(self, *args, **kwargs)
            _retrace(variable)
            made(variable)
            return variable

        return watched

    def keep_quiet(method: Callable) -> Callable:
        @wraps(method)
        def quiet(self: Any, *args: Any, **kwargs: Any) -> Any:
            with suspended():
                return method(self, *args, **kwargs)

        return quiet

    def watch_step(collect_new_shareds: Callable) -> Callable:
        @wraps(collect_new_shareds)
        def watched() -> Any:
            before_scan_step(sys._getframe(1))
            return collect_new_shareds()

        return watched

    patches = [
        Patch(Op, "__call__", watch_apply),
        Patch(RandomVariable, "__call__", watch_apply),  # does not call Op's
        Patch(Type, "__call__", watch_made),
        Patch(GraphRewriter, "rewrite", keep_quiet),
        Patch(FunctionMaker, "__init__", keep_quiet),
    ]
    if _shows_steps:
        patches.append(Patch(scan_basic, "collect_new_shareds", watch_step))
    return apply_patches(patches)


def scan_placeholders(frame: FrameType) -> Iterator[tuple[Variable, Variable]]:
    """Yield (argument of the step function, outer variable with its first value).

    `frame`: frame of ``pytensor.scan.basic.scan``, just before it calls the step function.
    """
    found = frame.f_locals
    for inner, outer in _SCAN_LOCALS:
        yield from zip(found[inner], found[outer], strict=True)


def split_join(op: Op, inputs: Sequence[Any]) -> tuple[int, Sequence[Any]]:
    """Return the axis of a ``Join`` and the arrays it joins (3.0 takes the axis as an input)."""
    return (op.axis, inputs) if hasattr(op, "axis") else (int(inputs[0]), inputs[1:])


def sort_axis(op: Op, inputs: Sequence[Any]) -> int:
    """Return the axis of a ``SortOp`` (3.0 takes it as an input)."""
    return op.axis if hasattr(op, "axis") else int(inputs[1])


def protect(fgraph: FunctionGraph, variables: Iterable[Variable]) -> None:
    """Let no rewrite put an operation into a graph that overwrites one of these inputs.

    `fgraph` has not been rewritten yet.
    """
    fgraph.attach_feature(_Protected(list(variables)))


def exchange_ops(fgraph: FunctionGraph, ops: Mapping[Apply, Op]) -> None:
    """Give nodes other operations, which overwrite less."""
    for node, op in ops.items():
        node.op = op
    handler = getattr(fgraph, "destroy_handler", None)
    if ops and handler is not None:  # it knows what each node overwrites
        fgraph.remove_feature(handler)
        fgraph.attach_feature(handler.clone())


class _Protected(Feature):
    """Refuses rewrites that overwrite one of some variables."""

    def __init__(self, variables: list[Variable]) -> None:
        self.variables = variables

    def clone(self) -> "_Protected":
        return type(self)(self.variables)

    def on_validate(self, fgraph: FunctionGraph) -> None:
        if hasattr(fgraph, "has_destroyers") and fgraph.has_destroyers(self.variables):
            raise InconsistencyError("an input that the guard keeps would be overwritten")


def input_shapes(args: Sequence[Any]) -> list:
    """Return the shapes of the inputs from what ``infer_shape`` of an operation is given.

    PyTensor 3.0 passes the graph, the node and the shapes, 3.3 the node and the shapes.
    """
    return list(args[-1])


def rewrite_names(database: RewriteDatabase) -> list[str]:
    """Return the names of all rewrites of a database, also of those in databases inside."""
    found: dict[str, None] = {}
    for rewrites in database.__db__.values():
        for rewrite in rewrites:
            if isinstance(rewrite, RewriteDatabase):
                found |= dict.fromkeys(rewrite_names(rewrite))
            elif rewrite.name:
                found[rewrite.name] = None
    return list(found)
