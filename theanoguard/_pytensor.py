"""The only room that knows version differences of PyTensor.

Everything that differs between the supported releases (3.0 to 3.3), or that is an
internal which may move, is reached through here.
"""

import importlib
import os
from copy import copy

import pytensor
from pytensor.compile import function
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.compilelock import lock_ctx as compile_lock
from pytensor.compile.mode import Mode, get_mode, predefined_modes
from pytensor.configdefaults import config
from pytensor.graph.basic import Variable
from pytensor.link.c.cmodule import GCC_compiler
from pytensor.link.c.cmodule import get_lib_extension as library_extension
from pytensor.link.utils import raise_with_op
from pytensor.link.vm import VMLinker
from pytensor.scalar.basic import Composite, ScalarType
from pytensor.scan.op import Scan
from pytensor.tensor import blas, subtensor
from pytensor.tensor.elemwise import CAReduce, Elemwise
from pytensor.tensor.type import TensorType

try:  # 3.3 moved it
    from pytensor.conditional.op import IfElse
except ImportError:
    from pytensor.ifelse import IfElse

try:  # 3.3 links inner functions through this base class
    from pytensor.compile.inner_function import link_only_mode
except ImportError:
    link_only_mode = None

__all__ = [
    "IfElse",
    "Mode",
    "OpFromGraph",
    "Scan",
    "VMLinker",
    "Variable",
    "compile_lock",
    "config",
    "get_mode",
    "library_extension",
    "predefined_modes",
    "raise_with_op",
]


def is_lazy(op):
    """Whether the thunks of `op` ask for their inputs one by one."""
    return isinstance(op, IfElse)


def is_numeric(kind):
    """Whether values of this Type hold numbers: arrays, scalars, sparse matrices, lists of such."""
    if isinstance(kind, TensorType | ScalarType):
        return True
    element = getattr(kind, "ttype", None)  # of a typed list
    if element is not None:
        return is_numeric(element)
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
        ``make_linker(vm_linker)`` returns a linker with the settings of `vm_linker`.
    wrap_mode : callable
        Applied to the mode with which 3.0 rewrites the inner graph.

    Returns
    -------
    Op or None
        None when the op insists on a linker that is no ``VMLinker``.
    """
    if link_only_mode is not None:
        new = copy(op)
        new._fn = None
        linker = new.link_mode("c" if impl is None and config.cxx else impl).linker
        if not isinstance(linker, VMLinker):
            return None
        new._fn = new.compile_fn(link_only_mode(make_linker(linker)))
        return new
    if isinstance(op, Scan):
        return _link_scan_3_0(op, impl, make_linker, wrap_mode)
    return _link_op_from_graph_3_0(op, impl, make_linker, wrap_mode)


def _inner_mode_3_0(mode, impl, make_linker, wrap_mode):
    linker = mode.linker
    if not isinstance(linker, VMLinker):
        linker = VMLinker(use_cloop=bool(config.cxx) and impl is None)
    return wrap_mode(Mode(make_linker(linker), mode.provided_optimizer))


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
    mode = _inner_mode_3_0(mode, impl, make_linker, wrap_mode)
    new._fn = mode.function_maker(
        inputs,
        outputs,
        mode=mode,
        accept_inplace=False,
        profile=None,
        on_unused_input="ignore",
        fgraph=new.fgraph,
    ).create()
    return new


def _link_op_from_graph_3_0(op, impl, make_linker, wrap_mode):
    new = copy(op)
    kwargs = dict(new.kwargs)
    mode = get_mode(kwargs.pop("mode", None)).excluding("symbolic_op_recognition")
    mode = _inner_mode_3_0(mode, impl, make_linker, wrap_mode)
    new._fn = function(new.inner_inputs, new.inner_outputs, mode=mode, **kwargs)
    new._fn.trust_input = True
    return new


def c_compiler():
    """Return PyTensor's wrapper of the C++ compiler."""
    return GCC_compiler


def default_impl():
    """Return "c" where PyTensor has a C++ compiler, else "py"."""
    return "c" if pytensor.config.cxx else "py"


def inner_graph(op):
    """Return the inner graph of `op` as it was linked, else as the op holds it.

    Inputs and outputs stand in the op's own order in both.
    """
    linked = getattr(op, "_fn", None)
    return op.fgraph if linked is None else linked.maker.fgraph


def _existing(module, *names):
    return tuple(getattr(module, name) for name in names if hasattr(module, name))


# 3.3 has no op of its own for one vector of integers along the first axis.
advanced_subtensor_ops = _existing(subtensor, "AdvancedSubtensor", "AdvancedSubtensor1")
advanced_increment_ops = _existing(subtensor, "AdvancedIncSubtensor", "AdvancedIncSubtensor1")
# 3.3 has no rank-one update any more.
ger_ops = _existing(blas, "Ger")


_LIBRARIES = tuple(
    os.path.dirname(os.path.abspath(path)) + os.sep for path in (pytensor.__file__, __file__)
)


def is_user_file(path):
    """Whether `path` is no file of PyTensor or of this package (tests count as the user's)."""
    path = os.path.abspath(path)
    return not path.startswith(_LIBRARIES) or f"{os.sep}tests{os.sep}" in path


def source_line(variable):
    """Return ``"file:line: text"`` of the user's line that built `variable`, or None."""
    for trace in getattr(variable.tag, "trace", None) or ():
        for path, line, _function, text in reversed(trace):
            if is_user_file(path):
                return f"{path}:{line}: {text}" if text else f"{path}:{line}"
    return None


def join_rewrite(database, name, rewriter):
    """Let whoever asks `database` for the rewrite called `name` get `rewriter` too."""
    # `add_tags` refuses a tag that is already the name of a rewrite.
    database.__db__[name].add(rewriter)


# 3.3 keeps the inner graphs of ops frozen, and loses names and stack traces in freezing; 3.0
# has the class for Composite alone, and no such hook.
frozen_graph_class = getattr(importlib.import_module("pytensor.graph.fg"), "FrozenFunctionGraph")
if not hasattr(frozen_graph_class, "_freeze"):
    frozen_graph_class = None
