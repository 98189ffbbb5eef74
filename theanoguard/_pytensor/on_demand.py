"""Loads what only one backend needs when a graph is first compiled for that backend."""

import importlib

from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import GraphRewriter


class LoadModule(GraphRewriter):
    """Leaves the graph as it is and imports a module."""

    def __init__(self, module: str) -> None:
        self.module = module

    def apply(self, fgraph: FunctionGraph) -> None:
        """Import the module."""
        importlib.import_module(self.module)
