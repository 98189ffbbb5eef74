"""The provenance of a node: the user's line, and the rewrites that made it."""

from theanoguard._provenance.asking import built_from, inner_input, lookup, lookup_inner, provenance
from theanoguard._provenance.context import track_provenance, watch_rewriting
from theanoguard._provenance.designating import given_name, meaning
from theanoguard._provenance.records import Backward, Provenance, RewriteStep
from theanoguard._provenance.source import (
    SourceLine,
    is_built_at,
    is_user_file,
    module_of,
    notebook_cell,
    source_line,
    source_place,
    stack_traces,
)
from theanoguard._provenance.tracker import (
    TRACK_PROVENANCE,
    ProvenanceTracker,
    attach,
    leave_origins,
    overflowed,
    tracker_of,
)
from theanoguard._pytensor.files import user_stacklevel
from theanoguard._pytensor.recording import thawed_variables
