"""Tracking under any mode: what is replaced in PyTensor for a while."""

from contextlib import contextmanager
from copy import copy

import pytensor
from pytensor.graph.rewriting.basic import GraphRewriter

from theanoguard._patching import Patch, applied
from theanoguard._provenance.tracker import attach, leave_origins, tracker_of
from theanoguard._pytensor import frozen_graph_class

# Frames kept per variable inside `track_provenance`; PyTensor's own limit of 8 may be used up
# by the frames of `grad`.
_TRACE_LIMIT = 48


def _tracked_rewrite(rewrite):
    def tracked(self, fgraph, *args, **kwargs):
        if tracker_of(fgraph) is not None:
            return rewrite(self, fgraph, *args, **kwargs)
        attach(fgraph)
        result = rewrite(self, fgraph, *args, **kwargs)
        leave_origins(fgraph)
        return result

    return tracked


# Where a frozen inner graph keeps the tags of the variables it was frozen from: per output
# variable of its nodes in topological order, (name, tag).
_FROZEN_TAGS = "_theanoguard_tags"


def _tagged_freeze(freeze):
    def frozen(cls, inputs, outputs, toposort, dedup_nodes):
        toposort = list(toposort)
        graph = freeze.__func__(cls, inputs, outputs, toposort, dedup_nodes)
        tags = [(v.name, copy(v.tag)) for node in toposort for v in node.outputs]
        setattr(graph, _FROZEN_TAGS, tags)
        return graph

    return classmethod(frozen)


def _tagged_bind(bind):
    def bound(self, replace, *, return_memo=False):
        outputs, memo = bind(self, replace, return_memo=True)
        for frozen, (name, tag) in frozen_tags(self).items():
            thawed = memo[frozen]
            thawed.name = thawed.name or name
            thawed.tag = copy(tag)
        return (outputs, memo) if return_memo else outputs

    return bound


def frozen_tags(graph):
    """Map the variables of a frozen graph to (name, tag) of those they were frozen from."""
    variables = [v for node in graph.toposort() for v in node.outputs]
    tags = getattr(graph, _FROZEN_TAGS, ())
    return dict(zip(variables, tags, strict=True)) if tags else {}


# What is replaced while provenance is tracked.
_PATCHES = [Patch(GraphRewriter, "rewrite", _tracked_rewrite)]
if frozen_graph_class is not None:
    _PATCHES += [
        Patch(frozen_graph_class, "_freeze", _tagged_freeze),
        Patch(frozen_graph_class, "bind", _tagged_bind),
    ]


def watch_rewriting():
    """Track whatever graph is rewritten inside the block, and keep the tags of inner graphs."""
    return applied(_PATCHES)


@contextmanager
def track_provenance():
    """Track the provenance of every function that is compiled inside, under any mode.

    A graph that is *built* inside also keeps longer stack traces, so that a gradient through a
    deep graph keeps the user's line, and, in PyTensor 3.3, the lines inside of a ``Scan`` or
    an ``OpFromGraph``, which are otherwise lost as soon as it is built.

    While it is active, in any thread, three methods of PyTensor are replaced
    (``GraphRewriter.rewrite`` and, in 3.3, how inner graphs are frozen and
    thawed); on leaving the outermost one they are put back.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> from theanoguard._provenance import provenance
    >>> x = pt.vector("x")
    >>> with track_provenance():
    ...     f = pytensor.function([x], pt.log(x), mode="CVM")
    >>> provenance(f)[f.maker.fgraph.outputs[0]].op
    'Log'
    """
    limit = pytensor.config.traceback__limit
    longer = limit if limit < 0 else max(limit, _TRACE_LIMIT)
    with watch_rewriting(), pytensor.config.change_flags(traceback__limit=longer):
        yield
