"""Where a node came from: the user's source line, and the chain of rewrites that made it."""

from theanoguard.provenance.asking import (
    ProvenanceMap,
    lookup,
    lookup_inner,
    provenance,
    thawed_variables,
)
from theanoguard.provenance.context import track_provenance, watch_rewriting
from theanoguard.provenance.records import Backward, Provenance, RewriteStep
from theanoguard.provenance.source import SourceLine, is_user_file, source_line, stack_traces
from theanoguard.provenance.tracker import (
    TRACK_PROVENANCE,
    ProvenanceTracker,
    TrackProvenance,
    attach,
    leave_origins,
    tracker_of,
)

__all__ = [
    "TRACK_PROVENANCE",
    "Backward",
    "Provenance",
    "ProvenanceMap",
    "ProvenanceTracker",
    "RewriteStep",
    "SourceLine",
    "TrackProvenance",
    "attach",
    "is_user_file",
    "leave_origins",
    "lookup",
    "lookup_inner",
    "provenance",
    "source_line",
    "stack_traces",
    "thawed_variables",
    "track_provenance",
    "tracker_of",
    "watch_rewriting",
]
