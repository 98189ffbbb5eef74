"""Track provenance under any mode, by temporary patches of PyTensor."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytensor
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import GraphRewriter

from theanoguard._context import block
from theanoguard._patching import Patch, applied
from theanoguard._provenance.tracker import attach, leave_origins, tracker_of
from theanoguard._pytensor import recording

# Frames kept per variable inside `track_provenance`.  With PyTensor's own limit of 8 frames, the
# frames of `grad` may leave no place for the user's line.
_TRACE_LIMIT = 48


def _tracked_rewrite(rewrite: Callable) -> Callable:
    def tracked(self: GraphRewriter, fgraph: FunctionGraph, *args: Any, **kwargs: Any) -> Any:
        if tracker_of(fgraph) is not None:
            return rewrite(self, fgraph, *args, **kwargs)
        attach(fgraph)
        result = rewrite(self, fgraph, *args, **kwargs)
        leave_origins(fgraph)
        return result

    return tracked


# The patches that are active while provenance is tracked.
_PATCHES = [Patch(GraphRewriter, "rewrite", _tracked_rewrite), *recording.HOOKS]


def watch_rewriting() -> AbstractContextManager:
    """Track every graph that is rewritten inside the block, and keep the tags of inner graphs."""
    return applied(_PATCHES)


@block
def track_provenance() -> Iterator[None]:
    """Track the provenance of every function that is compiled inside, under any mode.

    A graph that is *built* inside also keeps longer stack traces, so that a gradient through a
    deep graph keeps the user's line.

    While the block is active, in any thread, ``GraphRewriter.rewrite`` is replaced and the
    recording hooks are installed.  Leaving the outermost block restores the original functions.

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
