"""Support the Ops and types that old code defines, and its use of variables and nodes."""

import os
import pickle
import warnings
from functools import wraps

from pytensor.compile import mode as compile_mode
from pytensor.compile.debug.debugmode import DebugMode
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph import op as graph_op
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting import db
from pytensor.graph.rewriting.basic import (
    FromFunctionNodeRewriter,
    GraphRewriter,
    NodeRewriter,
)
from pytensor.link.basic import Linker
from pytensor.link.c.cmodule import KeyData
from pytensor.link.c.interface import CLinkerObject
from pytensor.tensor.type import TensorType

from theanoguard._pytensor.for_theano import fast_run_modes

from .._words import in_theanos_names, theanos_words
from ..compile import debugmode, sharedvalue
from ..gof import _graphs, _oldstyle, link, optdb
from ..gof.graph import NoParams, init_variable
from ..gof.op import _get_test_value
from . import Patch


def adapting(owner, *tables):
    """Return an ``__init_subclass__`` for `owner` that adapts each new class."""
    original = vars(owner).get("__init_subclass__")

    @classmethod
    def init_subclass(cls, **kwargs):
        _oldstyle.adapt_class(cls, *tables)
        if original is None:
            super(owner, cls).__init_subclass__(**kwargs)
        else:
            original.__func__(cls, **kwargs)

    return Patch(owner, "__init_subclass__", init_subclass)


def run_params(node):
    """Return the parameters of a node's operation, or NoParams."""
    return node.op.get_params(node) if getattr(node.op, "params_type", None) else NoParams


class NoGradientError(AttributeError, NotImplementedError):
    """An operation has no method `grad`: Theano's error, and PyTensor's."""


_grad = graph_op.Op.grad


def grad(self, inputs, output_grads):
    """Return the gradients by ``pullback``, PyTensor's name, of the first class that defines it."""
    for cls in type(self).__mro__:
        pullback = vars(cls).get("pullback")
        if pullback not in (None, graph_op.Op.pullback, *_oldstyle.BY_OLD_METHODS):
            return pullback(self, inputs, self(*inputs, return_list=True), output_grads)
    try:
        return _grad(self, inputs, output_grads)
    except NotImplementedError:
        raise NoGradientError(f"'{type(self).__name__}' object has no attribute 'grad'") from None


_pullback = graph_op.Op.pullback


@wraps(_pullback)
def pullback(self, inputs, outputs, cotangents):
    """Return the gradients by `grad`, which is not deprecated in Theano."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".* should implement `pullback`", FutureWarning)
        return _pullback(self, inputs, outputs, cotangents)


def all_subclasses(cls):
    """Return all direct and indirect subclasses of a class, each once."""
    return {sub for direct in cls.__subclasses__() for sub in (direct, *all_subclasses(direct))}


def mode_text(self):
    """Return the text of a mode as Theano has it, without the database of all rewrites."""
    linker, optimizer = self.provided_linker, self.provided_optimizer
    text = f"{type(self).__name__}(linker = {linker}, optimizer = {optimizer})"
    return in_theanos_names(text)


def mode_representation(self):
    """Return the representation of a mode, with the name of its class in Theano."""
    return in_theanos_names(object.__repr__(self))


def query_text(self):
    """Return the text of a query as Theano has it."""
    return (
        f"Query{{inc={self.include},ex={self.exclude},require={self.require},"
        f"subquery={self.subquery},position_cutoff={self.position_cutoff:f},"
        f"extra_opts={self.extra_rewrites}}}"
    )


def same_query(self, other):
    """Whether two queries choose the same: PyTensor makes new ones for each mode."""
    return type(self) is type(other) and vars(self) == vars(other)


def intersection_update(self, others):
    """Keep the elements that are in `others`: for ``mode.requiring(tag)``."""
    for element in [element for element in self if element not in others]:
        self.discard(element)


def without_graph(infer_shape):
    """Let ``infer_shape`` be called without the graph, the first argument in PyTensor 3.0."""

    @_oldstyle.wraps(infer_shape)
    def adapted(self, *args):
        return infer_shape(self, *(args if len(args) == 3 else (None, *args)))

    return adapted


_save_key = KeyData.save_pkl


def save_key(self):
    """Save what identifies compiled code, or raise the error after which PyTensor goes on without.

    The class of an operation may be defined inside a function.  Python cannot pickle it, and says
    so by an AttributeError.
    """
    try:
        _save_key(self)
    except AttributeError as error:
        os.remove(self.key_pkl)
        raise pickle.PicklingError(str(error)) from error


PATCHES = [
    Patch(KeyData, "save_pkl", save_key),
    *(
        Patch(cls, "infer_shape", without_graph(vars(cls)["infer_shape"]))
        for cls in all_subclasses(graph_op.Op)
        if "infer_shape" in vars(cls) and _oldstyle._positional(cls.infer_shape) == 4
    ),
    Patch(graph_op.Op, "pullback", pullback),
    Patch(compile_mode.Mode, "__str__", mode_text),
    Patch(compile_mode.Mode, "__repr__", mode_representation),
    Patch(db.RewriteDatabaseQuery, "__str__", query_text),
    Patch(db.RewriteDatabaseQuery, "__eq__", same_query),
    Patch(db.RewriteDatabaseQuery, "__hash__", lambda self: hash(frozenset(self.include))),
    Patch(db.OrderedSet, "__repr__", lambda self: f"OrderedSet({[*self] or ''})"),
    Patch(db.OrderedSet, "intersection_update", intersection_update),
    Patch(compile_mode, "fast_run_linkers_to_mode", fast_run_modes()),
    adapting(graph_op.Op),
    adapting(CLinkerObject),
    adapting(NodeRewriter, {"transform": _oldstyle.skip_fgraph}, ()),
    Patch(FromFunctionNodeRewriter, "transform", _oldstyle.transform_of_function),
    Patch(graph_op.Op, "grad", grad),
    Patch(graph_op.Op, "_get_test_value", staticmethod(_get_test_value)),
    Patch(GraphRewriter, "optimize", GraphRewriter.rewrite),
    Patch(db.RewriteDatabase, "register", theanos_words()(db.RewriteDatabase.register)),
    Patch(db.SequenceDB, "register", optdb.register_at),
    Patch(db.EquilibriumDB, "register", optdb.register_final),
    Patch(FunctionGraph, "__init__", _graphs.remembering_init),
    Patch(FunctionGraph, "replace", _graphs.replace),
    Patch(FunctionGraph, "change_input", FunctionGraph.change_node_input),
    Patch(Apply, "fgraph", property(_graphs.graph_of)),
    Patch(Apply, "run_params", run_params),
    Patch(Variable, "__init__", init_variable),
    Patch(Variable, "fgraph", property(_graphs.graph_of)),
    Patch(Variable, "clients", property(_graphs.clients_of)),
    Patch(Linker, "make_function", link.make_function),
    Patch(SharedVariable, "__init__", sharedvalue.init_shared),
    Patch(SharedVariable, "default_update", sharedvalue.default_update),
    Patch(DebugMode, "__init__", debugmode.init_debugmode),
    Patch(DebugMode, "__str__", mode_text),
    Patch(TensorType, "is_valid_value", debugmode.is_valid_value),
    *(Patch(DebugMode, name, flag) for name, flag in debugmode.FLAGS.items()),
]
