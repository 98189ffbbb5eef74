"""Tracks provenance and exemptions, and keeps indices, while a graph is rewritten."""

from collections.abc import Iterable
from contextvars import ContextVar
from typing import Any

from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import GraphRewriter
from pytensor.graph.rewriting.db import RewriteDatabaseQuery

from theanoguard._backends import backend_of
from theanoguard._context import setting
from theanoguard._provenance import attach, leave_origins, watch_rewriting
from theanoguard._pytensor import Mode, is_numeric, protect
from theanoguard.guard.bounds import KeepsIndices, check_indices
from theanoguard.guard.lost import POSITION, ShowLost
from theanoguard.guard.plan import overwritten
from theanoguard.guard.policy import Exemptions, warn_of_unmatched

# PyTensor 3.3 rewrites the body of a loop while it rewrites the graph around it.
_inside = ContextVar("inside", default=False)


class Watched(GraphRewriter):
    """A rewriter that tracks provenance and exemptions, and keeps indices, while it runs."""

    def __init__(
        self,
        rewriter: GraphRewriter,
        keeps_inputs: bool,
        checks_masks: bool,
        unused: set[str],
    ) -> None:
        self.rewriter = rewriter
        self.keeps_inputs = keeps_inputs
        self.checks_masks = checks_masks
        self.unused = unused

    def add_requirements(self, fgraph: FunctionGraph) -> Any:
        if self.unused and not _inside.get():
            warn_of_unmatched(self.unused, fgraph)
            self.unused.clear()
        attach(fgraph)
        fgraph.attach_feature(Exemptions())
        fgraph.attach_feature(KeepsIndices())
        # The inputs of a loop's body are the loop's own, which may overwrite its state.
        if self.keeps_inputs and not _inside.get():
            # (To copy the state of a random generator is slow.  The linker has nodes that overwrite
            # a shared variable write beside it.)
            given = (v for v in fgraph.inputs if not isinstance(v, SharedVariable))
            arrays = {v for v in given if is_numeric(v.type)}
            # An input that the user's own operation overwrites cannot be protected.
            arrays.difference_update(*map(overwritten, fgraph.apply_nodes))
            protect(fgraph, arrays)
        return self.rewriter.add_requirements(fgraph)

    def apply(self, fgraph: FunctionGraph, *args: Any, **kwargs: Any) -> Any:
        with setting(_inside, True), watch_rewriting():
            if self.checks_masks:
                check_indices(fgraph)
            result = self.rewriter.apply(fgraph, *args, **kwargs)
        leave_origins(fgraph)
        return result

    def __getattr__(self, name: str) -> Any:
        if name == "rewriter":
            raise AttributeError(name)
        return getattr(self.rewriter, name)


class WatchedMode(Mode):
    """A mode whose rewriting is watched, and whose fused operations hide no NaN.

    - `*args`, `**kwargs`: as for ``Mode``.
    - `anywhere`: whether they hide no Inf either.
    - `check_indices`: whether the length of a boolean index is checked where PyTensor's rewrites
      drop it.
    - `names`: patterns of names of which the first function that is compiled should have one each.
    """

    def __init__(
        self,
        *args: Any,
        anywhere: bool = False,
        check_indices: bool = True,
        names: Iterable[str] = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._check_indices = check_indices
        self._unused = set(names)
        self._optimizer: Any
        if isinstance(self._optimizer, RewriteDatabaseQuery):
            self._optimizer = self._optimizer.register((ShowLost(anywhere), POSITION))

    @property
    def optimizer(self) -> Watched:
        backend = backend_of(self.linker)
        keeps_inputs = backend is not None and backend.keeps_arguments
        checks_masks = backend is not None and backend.drops_masks and self._check_indices
        return Watched(super().optimizer, keeps_inputs, checks_masks, self._unused)
