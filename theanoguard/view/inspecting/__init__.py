"""A graph, or an error of the guard, as HTML and as a picture."""

from theanoguard.view.inspecting.inspection import Inspection, inspect_graph

__all__ = ["Inspection", "inspect_graph"]
