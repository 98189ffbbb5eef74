"""Following the graph through the rewrites: where nodes come from, and what is left out."""

from pytensor.graph.rewriting.basic import GraphRewriter

from theanoguard._pytensor import Mode
from theanoguard.guard.policy import Exemptions
from theanoguard.provenance import attach, leave_origins, watch_rewriting


class Watched(GraphRewriter):
    """A rewriter during which provenance and exemptions are followed."""

    def __init__(self, rewriter):
        self.rewriter = rewriter

    def add_requirements(self, fgraph):
        attach(fgraph)
        fgraph.attach_feature(Exemptions())
        return self.rewriter.add_requirements(fgraph)

    def apply(self, fgraph, *args, **kwargs):
        with watch_rewriting():
            result = self.rewriter.apply(fgraph, *args, **kwargs)
        leave_origins(fgraph)
        return result

    def __getattr__(self, name):
        if name == "rewriter":
            raise AttributeError(name)
        return getattr(self.rewriter, name)


class WatchedMode(Mode):
    """A mode whose rewriting is watched."""

    @property
    def optimizer(self):
        return Watched(super().optimizer)
