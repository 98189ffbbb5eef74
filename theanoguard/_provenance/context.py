"""Tracking under any mode: what is replaced in PyTensor for a while."""

from contextlib import contextmanager

import pytensor
from pytensor.graph.rewriting.basic import GraphRewriter

from theanoguard._patching import Patch, applied
from theanoguard._provenance.tracker import attach, leave_origins, tracker_of
from theanoguard._pytensor import recording

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


# What is replaced while provenance is tracked.
_PATCHES = [Patch(GraphRewriter, "rewrite", _tracked_rewrite), *recording.HOOKS]


def watch_rewriting():
    """Track whatever graph is rewritten inside the block, and keep the tags of inner graphs."""
    return applied(_PATCHES)


@contextmanager
def track_provenance():
    """Track the provenance of every function that is compiled inside, under any mode.

    A graph that is *built* inside also keeps longer stack traces, so that a gradient through a
    deep graph keeps the user's line.

    While it is active, in any thread, ``GraphRewriter.rewrite`` is replaced, and the recording
    hooks are in place; on leaving the outermost one what was there before is put back.

    Examples
    --------
    >>> import pytensor
    >>> import pytensor.tensor as pt
    >>> from theanoguard import provenance, track_provenance
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
