"""Rewrites of graphs, which Theano calls optimizations."""

import logging
import sys
from contextlib import contextmanager
from functools import partial

from pytensor.graph.destroyhandler import DestroyHandler
from pytensor.graph.rewriting import basic
from pytensor.graph.rewriting.basic import copy_stack_trace

from ._graphs import is_in_graph, working_on
from .graph import is_same_graph, nodes_constructed
from .op import Op
from .utils import MethodNotDefined, StandsFor

FromFunctionOptimizer = basic.FromFunctionGraphRewriter
optimizer = basic.graph_rewriter
inplace_optimizer = basic.inplace_graph_rewriter
Updater = basic.DispatchingFeature
CheckStrackTraceFeature = basic.CheckStackTraceFeature
CheckStackTraceOptimization = basic.CheckStackTraceRewriter
is_same_graph_with_merge = is_same_graph

_logger = logging.getLogger("theano.gof.opt")
theano = sys.modules["theano"]  # the package, which code takes from here too


class Optimizer(basic.GraphRewriter, metaclass=StandsFor):
    """Rewrites a graph: ``apply(fgraph)`` does it."""

    stands_for = basic.GraphRewriter

    def apply(self, fgraph):
        """Do nothing."""


class LocalOptimizer(basic.NodeRewriter, metaclass=StandsFor):
    """Rewrites a node: ``transform(node)`` returns what replaces its outputs, or False."""

    stands_for = basic.NodeRewriter

    def transform(self, fgraph, node, enforce_tracks=True):
        """Raise MethodNotDefined."""
        raise MethodNotDefined("transform", type(self), type(self).__name__)


def _in_its_graph(fn, fgraph, node):
    """Call a function of a node that may ask the node for its graph."""
    with working_on(fgraph):
        return fn(node)


class FromFunctionLocalOptimizer(basic.FromFunctionNodeRewriter):
    """A rewrite of nodes by a function of the node; PyTensor's gets the graph first."""

    def __init__(self, fn, tracks=None, requirements=()):
        super().__init__(partial(_in_its_graph, fn), tracks, requirements)

    def transform(self, *args, enforce_tracks=True):
        """Return what replaces the outputs of a node, or False."""
        if len(args) == 1:
            (fn,) = self.fn.args
            return fn(*args)
        return super().transform(*args, enforce_tracks=enforce_tracks)


def local_optimizer(tracks, inplace=False, requirements=()):
    """Make a rewrite of nodes from a function of the node.

    Parameters
    ----------
    tracks : list of Op, or of classes of Op, or None
        Which nodes it applies to; None for all.
    inplace : bool
        Whether it works in place.
    requirements : sequence of callable
        Called with the graph first.
    """

    def decorator(f):
        if tracks is not None and not tracks:
            raise ValueError(
                "Use None instead of an empty list to apply to all nodes.",
                f.__module__,
                f.__name__,
            )
        for t in tracks or ():
            if not (isinstance(t, Op) or issubclass(t, Op)):
                raise ValueError("Tracks are op classes or instances", f.__module__, f.__name__)
        needed = tuple(requirements)
        if inplace:
            needed += (lambda fgraph: fgraph.attach_feature(DestroyHandler()),)
        rewrite = FromFunctionLocalOptimizer(f, tracks, needed)
        rewrite.__name__ = f.__name__
        return rewrite

    return decorator


class LocalOptGroup(basic.SequentialNodeRewriter):
    """Applies a list of rewrites to a node."""

    def __init__(self, *optimizers, apply_all_opts=False, profile=False, apply_all_rewrites=False):
        if len(optimizers) == 1 and isinstance(optimizers[0], list | tuple):
            optimizers = optimizers[0]
        super().__init__(
            *optimizers, apply_all_rewrites=apply_all_opts or apply_all_rewrites, profile=profile
        )

    @property
    def opts(self):
        return self.rewrites


class SeqOptimizer(basic.SequentialGraphRewriter):
    """Applies a list of rewrites to a graph, one after the other."""

    def __init__(self, *opts, failure_callback=None):
        if len(opts) == 1 and isinstance(opts[0], list | tuple):
            opts = opts[0]
        super().__init__(*opts, failure_callback=failure_callback)


class OpSub(basic.SubstitutionNodeRewriter):
    """Replaces one operation by another that takes the same inputs."""

    reentrant = False
    retains_inputs = True

    def op_key(self):
        return self.op1


class OpRemove(basic.NodeRewriter):
    """Replaces each output of an operation by the input at the same place."""

    reentrant = False

    def __init__(self, op):
        self.op = op

    def op_key(self):
        return self.op

    def tracks(self):
        return [self.op]

    def transform(self, fgraph, node, enforce_tracks=True):
        return node.inputs if node.op == self.op else False

    def __str__(self):
        return f"{self.op}(x) -> x"


class PatternSub(basic.PatternNodeRewriter):
    """Replaces what matches one pattern by another pattern."""

    def __init__(
        self,
        in_pattern,
        out_pattern,
        allow_multiple_clients=False,
        skip_identities_fn=None,
        name=None,
        pdb=False,
        tracks=(),
        get_nodes=None,
        values_eq_approx=None,
    ):
        self.skip_identities_fn = skip_identities_fn
        self.constraint = None
        if isinstance(in_pattern, dict) and not isinstance(in_pattern["pattern"], str):
            # PyTensor has constraints on what a variable of the pattern stands for only.
            self.constraint, in_pattern = in_pattern.get("constraint"), in_pattern["pattern"]
        super().__init__(
            in_pattern,
            out_pattern,
            allow_multiple_clients=allow_multiple_clients,
            name=name,
            tracks=tracks,
            get_nodes=get_nodes,
            values_eq_approx=values_eq_approx,
            allow_cast=False,
        )

    def op_key(self):
        return self.tracks()[0]

    def transform(self, *args, **kwargs):
        """Return what replaces the outputs of a node, or False."""
        expression = args[-1].outputs[0]
        if self.skip_identities_fn is not None and self.skip_identities_fn(expression):
            return False
        if self.constraint is not None and not self.constraint(expression):
            return False
        return super().transform(*args, **kwargs)


class NavigatorOptimizer(basic.NodeProcessingGraphRewriter):
    """Applies a rewrite of nodes to the nodes of a graph; which ones, a subclass says."""

    def __init__(self, local_opt, ignore_newtrees="auto", failure_callback=None):
        super().__init__(local_opt, ignore_newtrees, failure_callback)

    @property
    def local_opt(self):
        return self.node_rewriter


class TopoOptimizer(basic.WalkingGraphRewriter):
    """Applies a rewrite of nodes to each node in topological order, or in reverse."""

    def __init__(self, local_opt, order="in_to_out", ignore_newtrees=False, failure_callback=None):
        super().__init__(local_opt, order, ignore_newtrees, failure_callback)

    @property
    def local_opt(self):
        return self.node_rewriter


def _topological(order, local_opts, name, kwargs):
    if len(local_opts) > 1:
        local_opt = LocalOptGroup(*local_opts)
    else:
        (local_opt,) = local_opts
        name = name or local_opt.__name__
    found = TopoOptimizer(
        local_opt, order=order, failure_callback=TopoOptimizer.warn_inplace, **kwargs
    )
    if name:
        found.__name__ = name
    return found


def in2out(*local_opts, name=None, **kwargs):
    """Return the rewrite that applies `local_opts` to each node, from the inputs on."""
    return _topological("in_to_out", local_opts, name, kwargs)


def out2in(*local_opts, name=None, **kwargs):
    """Return the rewrite that applies `local_opts` to each node, from the outputs back."""
    return _topological("out_to_in", local_opts, name, kwargs)


class OpKeyOptimizer(TopoOptimizer):
    """Applies a rewrite to the nodes of one operation, the rewrite's ``op_key()``."""

    def __init__(self, local_opt, ignore_newtrees=True, failure_callback=None):
        if not hasattr(local_opt, "op_key"):
            raise TypeError("LocalOptimizer for OpKeyOptimizer must have an 'op_key' method.")
        super().__init__(
            local_opt, ignore_newtrees=ignore_newtrees, failure_callback=failure_callback
        )

    def process_node(self, fgraph, node, *args, **kwargs):
        keys = self.local_opt.op_key()
        keys = keys if isinstance(keys, list | tuple) else [keys]
        if not any(node.op == key for key in keys):
            return False
        return super().process_node(fgraph, node, *args, **kwargs)


class EquilibriumOptimizer(basic.EquilibriumGraphRewriter):
    """Applies rewrites until none of them changes the graph."""

    def __init__(
        self,
        optimizers,
        failure_callback=None,
        ignore_newtrees=True,
        tracks_on_change_inputs=False,
        max_use_ratio=None,
        final_optimizers=None,
        cleanup_optimizers=None,
    ):
        if max_use_ratio is None:
            raise AssertionError("max_use_ratio has to be a number")
        super().__init__(
            optimizers,
            failure_callback,
            ignore_newtrees,
            tracks_on_change_inputs,
            max_use_ratio,
            final_optimizers,
            cleanup_optimizers,
        )


class _InSomeGraph:
    """Contains the nodes of every graph there is, which are not to be changed."""

    def __contains__(self, node):
        return node is not None and is_in_graph(node)


class _EveryGraph:
    """Stands for the graph that a function of PyTensor's takes and one of Theano's does not."""

    apply_nodes = _InSomeGraph()


def pre_constant_merge(vars):
    """Return `vars` with equal constants of their graphs made one; changes the graphs."""
    return basic.pre_constant_merge(_EveryGraph(), vars)


def pre_greedy_local_optimizer(list_optimizations, out):
    """Return `out` with rewrites of nodes applied to it and to what it is computed from."""
    return basic.pre_greedy_node_rewriter(_EveryGraph(), list_optimizations, out)


def check_chain(r, *chain):
    """Whether `r` is computed by a chain of operations: ``check_chain(y, exp, neg)``."""
    if not isinstance(r, basic.Apply):
        r = r.owner
    for elem in chain:
        if elem is None:
            if r is not None:
                return False
            break
        if r is None or r.op != elem:
            return False
        r = r.inputs[0].owner
    return True


@contextmanager
def inherit_stack_trace(from_var):
    """Give what is applied in the block the stack trace of a variable."""
    with nodes_constructed() as new:
        yield
    copy_stack_trace(from_var, new)
