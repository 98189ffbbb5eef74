"""A graph, or an error of the guard, as something to look into: HTML, and a picture."""

from theanoguard.view.inspecting.inspection import Inspection, inspect_graph

__all__ = ["Inspection", "inspect_graph"]
