"""The only room that knows version differences of PyTensor.

Everything that differs between the supported releases (3.0 to 3.3), or that is an
internal which may move, is reached through here.
"""

import dataclasses
import importlib
import os
import sys
import traceback
from contextlib import contextmanager
from copy import copy
from functools import partial, wraps

import pytensor
from pytensor.compile import function
from pytensor.compile.aliasing import Supervisor, add_supervisor_to_fgraph, insert_deepcopy
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.compilelock import lock_ctx as compile_lock
from pytensor.compile.io import In, Out
from pytensor.compile.maker import FunctionMaker
from pytensor.compile.mode import (
    JAX,
    NUMBA,
    PYTORCH,
    Mode,
    fast_run_linkers_to_mode,
    get_mode,
    predefined_linkers,
    predefined_modes,
)
from pytensor.configdefaults import config
from pytensor.configparser import config_files_from_pytensorrc
from pytensor.graph import utils as graph_utils
from pytensor.graph.basic import Apply, NominalVariable, Variable
from pytensor.graph.destroyhandler import DestroyHandler
from pytensor.graph.op import Op
from pytensor.graph.rewriting.basic import GraphRewriter
from pytensor.graph.type import Type
from pytensor.link.basic import JITLinker
from pytensor.link.c import cmodule
from pytensor.link.c.cmodule import GCC_compiler, try_blas_flag
from pytensor.link.c.cmodule import get_lib_extension as library_extension
from pytensor.link.jax.linker import JAXLinker
from pytensor.link.numba.linker import NumbaLinker
from pytensor.link.pytorch.linker import PytorchLinker
from pytensor.link.utils import raise_with_op
from pytensor.link.vm import VMLinker
from pytensor.scalar.basic import Composite, ScalarType
from pytensor.scan import basic as scan_basic
from pytensor.scan.op import Scan
from pytensor.scan.utils import ScanProfileStats
from pytensor.tensor import blas, subtensor
from pytensor.tensor.elemwise import CAReduce, Elemwise
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.type import TensorType

from theanoguard._patching import Patch, applied
from theanoguard._patching import apply as apply_patches

try:  # 3.3 moved it
    from pytensor.conditional.op import IfElse, ifelse
except ImportError:
    from pytensor.ifelse import IfElse, ifelse

try:  # 3.3 compiles the branches of an IfElse for Numba and JAX as functions
    from pytensor.conditional.op import LazyIfElse
except ImportError:

    class LazyIfElse(Op):  # type: ignore[no-redef]
        """Stands in for an operation that PyTensor 3.0 does not have."""


try:  # 3.3 fuses indexing and reductions too, for Numba, into ops with an inner graph
    from pytensor.compile.builders import FinalizedOpFromGraph
except ImportError:

    class FinalizedOpFromGraph(OpFromGraph):  # type: ignore[no-redef]
        """Stands in for an operation that PyTensor 3.0 does not have."""


try:  # 3.3 links inner functions through this base class
    from pytensor.compile.inner_function import link_only_mode
except ImportError:
    link_only_mode = None

__all__ = [
    "FinalizedOpFromGraph",
    "IfElse",
    "JAXLinker",
    "JITLinker",
    "LazyIfElse",
    "Mode",
    "NumbaLinker",
    "OpFromGraph",
    "PytorchLinker",
    "Scan",
    "VMLinker",
    "Variable",
    "compile_lock",
    "config",
    "get_mode",
    "ifelse",
    "library_extension",
    "predefined_linkers",
    "predefined_modes",
    "raise_with_op",
]


def is_lazy(op):
    """Whether the thunks of `op` request their inputs one by one."""
    return isinstance(op, IfElse)


def is_numeric(kind):
    """Whether values of this Type hold numbers: arrays, scalars, sparse matrices, lists of such."""
    if isinstance(kind, TensorType | ScalarType):
        return True
    element = getattr(kind, "ttype", None)  # of a typed list
    if element is not None:
        return is_numeric(element)
    return is_sparse(kind)


def is_sparse(kind):
    """Whether values of this Type are sparse matrices."""
    return type(kind).__name__ == "SparseTensorType"  # its module is slow to import


def scalar_ops_of(op):
    """Yield the scalar operations that an ``Elemwise`` or a reduction is made of."""
    scalar_op = getattr(op, "scalar_op", None) if isinstance(op, Elemwise | CAReduce) else None
    if isinstance(scalar_op, Composite):
        yield from (node.op for node in scalar_op.fgraph.toposort())
    elif scalar_op is not None:
        yield scalar_op


def link_inner(op, impl, make_linker, wrap_mode=lambda mode: mode):
    """Return a copy of `op` whose inner function is linked by a linker of ours.

    Parameters
    ----------
    op : Scan or OpFromGraph
        Left as it is: ops are shared between graphs.
    impl : {None, "py"}
        What the outer linker passes to ``make_thunk``.
    make_linker : callable
        ``make_linker(vm_linker)`` returns a linker with the settings of `vm_linker`, or None
        to leave the op alone.
    wrap_mode : callable
        Applied to the mode with which 3.0 rewrites the inner graph.

    Returns
    -------
    Op or None
        None if the op needs a linker that is not a ``VMLinker``, or is not to be guarded.
    """
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


def _inner_mode_3_0(mode, impl, make_linker, wrap_mode):
    linker = mode.linker
    if not isinstance(linker, VMLinker):
        linker = VMLinker(use_cloop=bool(config.cxx) and impl is None)
    linker = make_linker(linker)
    return None if linker is None else wrap_mode(Mode(linker, mode.provided_optimizer))


def _link_scan_3_0(op, impl, make_linker, wrap_mode):
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
        accept_inplace=False,
        profile=profile or None,
        on_unused_input="ignore",
        fgraph=new.fgraph,
    ).create()
    return new


def _link_op_from_graph_3_0(op, impl, make_linker, wrap_mode):
    new = copy(op)
    kwargs = dict(new.kwargs)
    mode = get_mode(kwargs.pop("mode", None)).excluding("symbolic_op_recognition")
    mode = _inner_mode_3_0(mode, impl, make_linker, wrap_mode)
    if mode is None:
        return None
    new._fn = function(new.inner_inputs, new.inner_outputs, mode=mode, **kwargs)
    new._fn.trust_input = True
    return new


def failed_node(vm, error):
    """Return the node at which a virtual machine raised `error`, None if it was at none.

    The C machine stores the position.  For a loop in Python it is read from the loop's frame.
    """
    position = getattr(vm, "position", -1)
    if position >= 0:
        return vm.nodes[position]
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if frame.f_locals.get("self") is vm:
            for name in ("current_apply", "node"):
                if isinstance(node := frame.f_locals.get(name), Apply):
                    return node
    return None


def fast_run_modes():
    """Return the modes that FAST_RUN may mean, by linker."""
    # In 3.0 the one for "vm" is a tuple by mistake.
    return {
        linker: mode[0] if isinstance(mode, tuple) else mode
        for linker, mode in fast_run_linkers_to_mode.items()
    }


def forget_module_cache():
    """Have PyTensor read its compile cache from disk again.

    What it keeps in memory names classes; those of a module that is imported a second time
    are equal but not the same, and cannot be written.
    """
    cmodule._module_cache = None


def c_compiler():
    """Return PyTensor's wrapper of the C++ compiler."""
    return GCC_compiler


def blas_links(flags):
    """Whether a program that calls the BLAS compiles, links and runs with these flags."""
    return bool(try_blas_flag(flags.split()))


# The file of PyTensor's own `sys.excepthook`, which calls Python's.
excepthook_file = importlib.import_module("pytensor.utils").__file__


def configuration_files():
    """Return the configuration files that PyTensor looks for, whether they exist or not."""
    return config_files_from_pytensorrc()


def default_impl():
    """Return "c" where PyTensor has a C++ compiler, else "py"."""
    return "c" if pytensor.config.cxx else "py"


def inner_graph(op):
    """Return the inner graph of `op` as it was linked, else as the op holds it.

    In both, inputs and outputs are in the op's own order.
    """
    linked = getattr(op, "_fn", None)
    return op.fgraph if linked is None else linked.maker.fgraph


def thawed_graph(op):
    """Return the inner graph of `op` as one whose variables have their names and stack traces."""
    return op.fgraph.unfreeze() if hasattr(op.fgraph, "unfreeze") else op.fgraph


# The tags of the rewrites that make one loop of several nodes: without them, and without those that
# work in place, a compiled graph keeps the values between.  (The last one is 3.3's, for Numba.)
FUSING = ("fusion", "fuse_indexed_into_elemwise")
IN_PLACE = ("inplace",)


def _existing(module, *names):
    return tuple(getattr(module, name) for name in names if hasattr(module, name))


# PyTensor 3.3 has no separate op for one vector of integers along the first axis.
advanced_subtensor_ops = _existing(subtensor, "AdvancedSubtensor", "AdvancedSubtensor1")
advanced_increment_ops = _existing(subtensor, "AdvancedIncSubtensor", "AdvancedIncSubtensor1")
# The last one's methods that refuse to broadcast a length which only turns out to be 1.
increment_broadcast_checks = [
    name for name in vars(advanced_increment_ops[-1]) if name.startswith("_check_runtime_broadcast")
]
# 3.3 has no rank-one update any more.
ger_ops = _existing(blas, "Ger")


def join_rewrite(database, name, rewriter):
    """Let whoever asks `database` for the rewrite called `name` get `rewriter` too."""
    # `add_tags` refuses a tag that is already the name of a rewrite.
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


def is_constructor_file(file):
    """Whether functions of `file` make variables for whoever calls them."""
    return file in _CONSTRUCTORS


def is_nominal(variable):
    """Whether `variable` is an input of an inner graph, known by its number alone."""
    return isinstance(variable, NominalVariable)


def has_inner_function(op):
    """Whether `op` runs its inner graph as a function that it links by itself."""
    return isinstance(op, Scan | OpFromGraph) or hasattr(op, "compile_fn")


def is_optimizer(op):
    """Whether `op` is one of ``pytensor.tensor.optimize``, which calls its inner function."""
    module = sys.modules.get("pytensor.tensor.optimize")
    return module is not None and isinstance(op, module.ScipyWrapperOp)


def link_optimizer(op, make_linker, wrap_mode):
    """Return a copy of an optimizer whose objective is linked by a linker of ours.

    Parameters
    ----------
    op, make_linker, wrap_mode
        As for :func:`link_inner`.

    Returns
    -------
    Op or None
    """
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


def _is_built():
    """Do nothing: the inner function has been built."""


def python_thunk(node, storage_map, compute_map):
    """Return the thunk of `node` that runs in Python; the one in C where there is no other.

    Nothing is compiled for it, and the op's own inner function is left alone.
    """
    op = node.op
    if has_inner_function(op):
        linked = link_inner(
            op,
            "py",
            lambda linker: VMLinker(use_cloop=False, c_thunks=False, allow_gc=linker.allow_gc),
            lambda mode: Mode(mode.linker, "fast_compile"),
        )
        op = op if linked is None else linked
        outputs = [v.clone() for v in node.outputs]
        for ours, theirs in zip(outputs, node.outputs, strict=True):
            storage_map[ours], compute_map[ours] = storage_map[theirs], compute_map[theirs]
        node = Apply(op, node.inputs, outputs)
    in_python = op.make_thunk(node, storage_map, compute_map, [], impl="py")

    def thunk():
        try:
            return in_python()
        except NotImplementedError:
            if not config.cxx:
                raise
        return op.make_thunk(node, storage_map, compute_map, [], impl="c")()

    return thunk


# What `add_tag_trace` leaves away at the inner end of a stack trace, and this file.
_UNTRACED = (
    "pytensor/tensor/",
    "pytensor/compile/",
    "pytensor/graph/",
    "pytensor/scalar/basic.py",
    "pytensor/scan/",
    "pytensor/sparse/",
    "pytensor/typed_list/",
    __file__.replace("\\", "/"),
)


def _is_untraced(file):
    file = file.replace("\\", "/")
    return any(part in file for part in _UNTRACED) and "tests" not in file


def _retrace(variable):
    """Give `variable` the stack trace that it would have without the hooks on the stack.

    A frame of this file would end the run of PyTensor's own frames that PyTensor skips.
    """
    if config.traceback__compile_limit > 0:
        return
    limit = config.traceback__limit
    frame = sys._getframe(2)
    while frame is not None and _is_untraced(frame.f_code.co_filename):
        frame = frame.f_back
    # Two frames may be ours at every level of operations that apply operations.
    depth = None if limit == -1 else 3 * limit
    trace = graph_utils.simple_extract_stack(frame, depth) if frame is not None else []
    trace = [entry for entry in trace if entry[0] != __file__]
    trace = trace if limit == -1 else trace[-limit:]
    variable.tag.trace = [trace] if trace else []


def _no_frames(limit):
    return 0


@contextmanager
def without_traces():
    """Build variables without stack traces while the block runs, to save time.

    Threads may overlap: PyTensor's ``change_flags`` would then restore the wrong limit.
    """
    config.traceback__limit  # noqa: B018 (it gets its value when it is first read)
    limit = config._config_var_dict["traceback__limit"]
    with applied([Patch(limit, "val", _no_frames)]):
        yield


def construction_hooks(applied, made, suspended, before_scan_step):
    """Patch PyTensor so that graph construction can be watched.

    Parameters
    ----------
    applied : callable
        ``applied(node)`` is called for each node that ``Op.__call__`` has built.
    made : callable
        ``made(variable)`` is called for each variable that a Type has made.
    suspended : callable
        Returns a context manager that is entered while a graph is rewritten or compiled.
    before_scan_step : callable
        ``before_scan_step(frame)`` is called with the frame of ``scan`` just before it calls
        the step function.

    Returns
    -------
    callable
        Puts everything back.
    """

    def watch_apply(apply_op):
        @wraps(apply_op)
        def watched(self, *inputs, **kwargs):
            result = apply_op(self, *inputs, **kwargs)
            first = result[0] if isinstance(result, list | tuple) and result else result
            if isinstance(first, Variable) and first.owner is not None:
                applied(first.owner)
            return result

        return watched

    def watch_made(make_variable):
        @wraps(make_variable)
        def watched(self, *args, **kwargs):
            variable = make_variable(self, *args, **kwargs)
            _retrace(variable)
            made(variable)
            return variable

        return watched

    def keep_quiet(method):
        @wraps(method)
        def quiet(self, *args, **kwargs):
            with suspended():
                return method(self, *args, **kwargs)

        return quiet

    def watch_step(collect_new_shareds):
        @wraps(collect_new_shareds)
        def watched():
            before_scan_step(sys._getframe(1))
            return collect_new_shareds()

        return watched

    return apply_patches(
        [
            Patch(Op, "__call__", watch_apply),
            Patch(RandomVariable, "__call__", watch_apply),  # does not call Op's
            Patch(Type, "__call__", watch_made),
            Patch(GraphRewriter, "rewrite", keep_quiet),
            Patch(FunctionMaker, "__init__", keep_quiet),
            Patch(scan_basic, "collect_new_shareds", watch_step),
        ]
    )


def scan_placeholders(frame):
    """Yield (argument of the step function, outer variable with its first value).

    Parameters
    ----------
    frame : frame
        Of ``pytensor.scan.basic.scan``, just before it calls the step function.
    """
    found = frame.f_locals
    for inner, outer in (
        ("inner_seqs", "inner_slices"),
        ("mit_sot_inner_inputs", "mit_sot_inner_slices"),
        ("sit_sot_inner_inputs", "sit_sot_inner_slices"),
        ("untraced_sit_sot_inner_inputs", "untraced_sit_sot_scan_inputs"),
    ):
        yield from zip(found[inner], found[outer], strict=True)


class _Captured(Exception):
    """Carries the values of a function's inputs out of its ``__call__``."""


def _call_with_machine(fn, vm, args, kwargs):
    """Call `fn`, whose own code treats arguments and results, with another machine in it."""
    probe = object.__new__(type(fn))
    for name in type(fn).__slots__:
        setattr(probe, name, getattr(fn, name))
    probe.vm = vm
    try:
        return probe(*args, **kwargs)
    finally:
        for container in fn.input_storage:
            if container.required:
                container.storage[0] = None


def captured_inputs(fn, args, kwargs):
    """Return the values that ``fn(*args, **kwargs)`` would compute with, without computing.

    One value for each input of the compiled graph, shared variables among them.  Wrong
    arguments raise what the call itself raises.
    """

    def stop():
        raise _Captured([cell.storage[0] for cell in fn.input_storage])

    try:
        _call_with_machine(fn, stop, args, kwargs)
    except _Captured as captured:
        return captured.args[0]


def finished_call(fn, args, kwargs, outputs):
    """Return what ``fn(*args, **kwargs)`` returns if its graph has computed `outputs`.

    Shared variables get their updates.
    """

    def vm():
        return list(outputs)

    vm.allow_gc = False
    result = _call_with_machine(fn, vm, args, kwargs)
    for i_out, i_in in fn.maker.fgraph.update_mapping.items():
        fn.input_storage[i_in].storage[0] = outputs[i_out]
    return result


def split_join(op, inputs):
    """Return the axis of a ``Join`` and the arrays it joins (3.0 takes the axis as an input)."""
    return (op.axis, inputs) if hasattr(op, "axis") else (int(inputs[0]), inputs[1:])


def sort_axis(op, inputs):
    """Return the axis of a ``SortOp`` (3.0 takes it as an input)."""
    return op.axis if hasattr(op, "axis") else int(inputs[1])


def register_rewrite(database, name, rewriter, *tags, **settings):
    """Register a rewrite and return a function that takes it out of the database again.

    Parameters
    ----------
    database : RewriteDatabase
    name : str
    rewriter : RewriteDatabase, GraphRewriter or NodeRewriter
    *tags : str
    **settings
        As for ``database.register``.
    """
    before = set(database.__db__)
    database.register(name, rewriter, *tags, **settings)

    def undo():
        for tag, rewriters in list(database.__db__.items()):
            rewriters.discard(rewriter)
            if not rewriters and tag not in before:
                del database.__db__[tag]
        database._names.discard(name)
        for table in ("__position__", "__final__", "__cleanup__"):
            getattr(database, table, {}).pop(name, None)

    return undo


def withhold_rewrite(database, name):
    """Take a rewrite out of a database and return a function that puts it back in its place.

    Parameters
    ----------
    database : RewriteDatabase
    name : str
        Where there is no rewrite of the name, nothing happens.
    """
    if name not in database:
        return lambda: None
    rewriter = database[name]
    before = {
        tag: list(rewriters) for tag, rewriters in database.__db__.items() if rewriter in rewriters
    }
    for tag in before:
        database.__db__[tag].discard(rewriter)

    def undo():
        for tag, order in before.items():
            rewriters = database.__db__[tag]
            since = [one for one in rewriters if one not in order]
            rewriters.clear()
            rewriters.update([*order, *since])

    return undo


def renamed(module, *names):
    """Return what a module has under one of these names, the older ones first."""
    return _existing(module, *names)[0]


def name_rewrites(database, alias, name):
    """Let `alias` choose what `name` does in a database; return a function that undoes it.

    Parameters
    ----------
    database : RewriteDatabase
    alias : str
    name : str
        The name or a tag of rewrites.
    """
    database.__db__[alias] = copy(database.__db__[name])
    return lambda: database.__db__.pop(alias)


def protect(fgraph, variables):
    """Let no rewrite put an operation into a graph that overwrites one of these inputs.

    Parameters
    ----------
    fgraph : FunctionGraph
        Before it is rewritten.
    variables : iterable of Variable
    """
    known = getattr(fgraph, "_supervisor", None)
    if known is None:
        fgraph.attach_feature(Supervisor(list(variables)))
    else:
        known.protected = list(dict.fromkeys([*known.protected, *variables]))


def input_shapes(args):
    """Return the shapes of the inputs from what ``infer_shape`` of an operation is given.

    PyTensor 3.0 passes the graph, the node and the shapes, 3.3 the node and the shapes.
    """
    return list(args[-1])


class CheckedBody(OpFromGraph):
    """An ``OpFromGraph`` whose graph is compiled as it stands."""


class CheckedIfElse(LazyIfElse):
    """A ``LazyIfElse`` whose branches have checks for JAX."""


class _Rewritten(Mode):
    """A mode that rewrites nothing, and stays so."""

    def including(self, *tags):
        return self

    excluding = including

    @property
    def optimizer(self):
        return lambda fgraph: None


def inner_graphs_for_numba(node, compiled_by):
    """Return the graphs that Numba compiles for a node as functions of their own.

    Parameters
    ----------
    node : Apply
        Of a graph that has been rewritten for Numba.
    compiled_by : callable
        ``compiled_by(kind)`` is what compiles ops of a class.

    Returns
    -------
    list of FunctionGraph
        As they will be compiled; none for other ops.
    """

    def rewritten_3_0():
        if isinstance(node.op, Scan):
            return _rewritten_scan_3_0(node)
        return _rewritten_body_3_0(node)

    return _inner_graphs(node.op, compiled_by, rewritten_3_0)


def _inner_graphs(op, compiled_by, rewritten_3_0):
    if isinstance(op, LazyIfElse):
        return [op.true_branch.fgraph, op.false_branch.fgraph]
    if not isinstance(op, Scan | OpFromGraph):
        return []
    if isinstance(op, OpFromGraph) and compiled_by(type(op)) is not compiled_by(OpFromGraph):
        return []  # compiled as one piece: a fused operation, or JAX's own softmax
    if link_only_mode is not None:  # 3.3 has rewritten them with the graph outside
        return [op.fgraph]
    return [rewritten_3_0()]


def _rewritten_scan_3_0(node):
    """Do what ``numba_funcify`` of a Scan does before it compiles the inner graph."""
    op = node.op
    fgraph = op.fgraph.clone(clone_inner_graphs=True)
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


def _rewritten_body_3_0(node):
    """Do what ``numba_funcify`` of an OpFromGraph does before it compiles the inner graph."""
    fgraph = node.op.fgraph.clone(clone_inner_graphs=True)
    specs = [In(v, borrow=True, mutable=False) for v in fgraph.inputs]
    add_supervisor_to_fgraph(fgraph=fgraph, input_specs=specs, accept_inplace=True)
    NUMBA.excluding("symbolic_op_recognition").optimizer(fgraph)
    outs = [Out(v, borrow=False) for v in fgraph.outputs]
    insert_deepcopy(fgraph, wrapped_inputs=specs, wrapped_outputs=outs)
    return fgraph


def inner_graphs_for_jax(node, compiled_by):
    """Return the graphs that JAX traces for a node as functions of their own.

    Parameters
    ----------
    node : Apply
        Of a graph that has been rewritten for JAX.
    compiled_by : callable
        As for :func:`inner_graphs_for_numba`.

    Returns
    -------
    list of FunctionGraph
        As they will be traced; none for other ops.
    """
    return _inner_graphs(node.op, compiled_by, lambda: _rewritten_for_jax_3_0(node.op))


def inner_graphs_for_pytorch(node, compiled_by):
    """Return the graphs that PyTorch compiles for a node, within the function that it is in.

    Parameters
    ----------
    node : Apply
        Of a graph that has been rewritten for PyTorch.
    compiled_by : callable
        As for :func:`inner_graphs_for_numba`.

    Returns
    -------
    list of FunctionGraph
        As they will be compiled; none for other ops.
    """

    def rewritten_3_0():  # what ``pytorch_funcify`` does to the graph of the op itself
        fgraph = node.op.fgraph.clone(clone_inner_graphs=True)
        PYTORCH.optimizer(fgraph)
        return fgraph

    if isinstance(node.op, Scan):
        return []  # PyTensor cannot convert it
    return _inner_graphs(node.op, compiled_by, rewritten_3_0)


def _rewritten_for_jax_3_0(op):
    fgraph = op.fgraph.clone(clone_inner_graphs=True)
    if isinstance(op, Scan):  # what ``jax_funcify`` does to the graph of the op itself
        mode = get_mode(op.mode).including("jax").excluding("numba", *JAX._optimizer.exclude)
        mode.optimizer(fgraph)
    else:
        JAX.optimizer(fgraph)
    return fgraph


def with_flag(op, graphs, n=1):
    """Return a copy of `op` that JAX traces with other inner graphs.

    Parameters
    ----------
    op : Scan, OpFromGraph or LazyIfElse
    graphs : list of FunctionGraph
        In the place of those of :func:`inner_graphs_for_jax`, with `n` outputs more at the end,
        which the op then gives as well.  That of a Scan also takes what these were at the step
        before, as inputs before those that do not change.
    n : int

    Returns
    -------
    Op
    """
    new = _with_graphs(op, graphs, lambda info: {"n_untraced_sit_sot": info.n_untraced_sit_sot + n})
    if isinstance(op, LazyIfElse):
        new.__class__ = CheckedIfElse
    return new


def with_inner_graphs(op, graphs):
    """Return a copy of `op` that Numba compiles with other inner graphs.

    Parameters
    ----------
    op : Scan, OpFromGraph or LazyIfElse
    graphs : list of FunctionGraph
        In the place of those of :func:`inner_graphs_for_numba`, with one input more at the end,
        which the op then takes as well.

    Returns
    -------
    Op
    """
    new = _with_graphs(op, graphs, lambda info: {"n_non_seqs": info.n_non_seqs + 1})
    if isinstance(op, Scan) and link_only_mode is None:
        new.fgraph.attach_feature(DestroyHandler())
    return new


def _with_graphs(op, graphs, changes):
    """Return a copy of `op` with other inner graphs; `changes` gives those of a Scan's info."""
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
        new.__class__ = CheckedBody
        return new
    new.info = dataclasses.replace(op.info, **changes(op.info))
    if link_only_mode is None:
        new.mode = _Rewritten()
    return new
