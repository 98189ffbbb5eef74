"""The picture of a graph that Graphviz lays out in the browser (extra ``notebook``)."""

import re
from dataclasses import replace
from functools import cache
from pathlib import Path

from theanoguard._provenance import tracker_of
from theanoguard.view.inspecting.facts import facts
from theanoguard.view.inspecting.outline import Outline
from theanoguard.view.model import GraphModel, graph_model
from theanoguard.view.printing import dot_text

_HERE = Path(__file__).parent


def picture(model, wanted, most):
    """Return the picture of one graph.

    Parameters
    ----------
    model : GraphModel
    wanted : tuple of str
        Names of inputs, as for an :class:`Outline`.
    most : int
        How many nodes are drawn.

    Returns
    -------
    ipywidgets.VBox

    Raises
    ------
    ImportError
        If the extra is not installed.
    """
    return _widget({"after": model}, {"before": {}, "after": {}}, wanted, most)


def pictures(function, model, wanted, most):
    """Return the pictures of a function's graph before and after rewriting, side by side.

    Parameters
    ----------
    function : Function
    model, wanted, most
        As for :func:`picture`; the graph after.

    Returns
    -------
    ipywidgets.VBox

    Raises
    ------
    ImportError
        If the extra is not installed.
    ValueError
        If no rewriting was recorded.
    """
    before, links = before_rewriting(function, model)
    return _widget({"before": before, "after": model}, links, wanted, most)


def before_rewriting(function, model):
    """Return the graph before rewriting, and which of its nodes became which.

    Parameters
    ----------
    function : Function
    model : GraphModel
        Of its graph, with live objects.

    Returns
    -------
    before : GraphModel
    links : dict of str to dict of str to list of str
        Under ``"after"``, for each node the keys of those that it was rewritten from; under
        ``"before"`` the same the other way round.

    Raises
    ------
    ValueError
        If it was not recorded.
    """
    tracker = None if function is None else tracker_of(function.maker.fgraph)
    if tracker is None:
        raise ValueError(
            "nothing is known of the graph before it was rewritten.\n"
            "Compile the function under a guard, or inside theanoguard.track_provenance()."
        )
    outputs, copies = tracker.before()
    before = graph_model(outputs)
    keys = {thing: key for key, thing in before.objects.items()}
    links = {"before": {}, "after": {}}
    for key in model.nodes:
        for node in tracker.replaced_by(model.objects[key]):
            if (old := keys.get(copies[node])) is not None:
                links["after"].setdefault(key, []).append(old)
                links["before"].setdefault(old, []).append(key)
    return before, links


def part_of(model, wanted, most):
    """Return the part of a graph that matters most.

    Parameters
    ----------
    model : GraphModel
    wanted : tuple of str
    most : int
        Number of nodes.

    Returns
    -------
    GraphModel
        What is computed by a node that is left out is an input there.
    """
    if len(model.nodes) <= most:
        return model
    weighed = (model.variables[key].owner for key in Outline(model, wanted).by_weight())
    kept = list(dict.fromkeys(owner for owner in weighed if owner is not None))[:most]
    nodes = {key: model.nodes[key] for key in model.nodes if key in set(kept)}
    read = {key for node in nodes.values() for key in (*node.inputs, *node.outputs)}
    # The panel names the shared variable that an update belongs to, also where no node reads it.
    read |= {old for key in read if (old := model.variables[key].update_of) is not None}
    variables = {
        key: v if v.owner in nodes or v.owner is None else replace(v, owner=None, kind="input")
        for key, v in model.variables.items()
        if key in read
    }
    outputs = [key for key in model.outputs if key in variables]
    inputs = [key for key in model.inputs if key in variables]
    return GraphModel(inputs, outputs, variables, nodes, model.name, model.objects)


# To dim what is not chosen the widget computes with colours, and it knows no names of them.
_COLORS = {
    "black": "#000000",
    "blue": "#0757ba",
    "brown": "#c8a27c",
    "cyan": "#9be7e7",
    "green": "#98dc98",
    "grey": "#d0d0d0",
    "lightblue": "#add8e6",
    "magenta": "#f2a6f2",
    "red": "#c8282f",
    "white": "#ffffff",
    "yellow": "#fff59d",
}
_DEFAULTS = (
    '  node [style="filled", fillcolor="white", color="black"];\n  edge [color="black"];\n  node ['
)


def dot_source(model):
    """Return the text of a graph in DOT, with every colour as a number.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> 'fillcolor="#98dc98"' in dot_source(graph_model(pt.log(pt.dscalar("x"))))
    True
    """
    text = dot_text(model).replace("  node [", _DEFAULTS, 1)
    return re.sub(
        r'\b((?:fill)?color)="(\w+)"',
        lambda found: f'{found[1]}="{_COLORS.get(found[2], found[2])}"',
        text,
    )


def panel_facts(model):
    """Return what the panel shows of each node and variable, by key."""
    found = {key: list(facts(model, variable)) for key, variable in model.variables.items()}
    for key, node in model.nodes.items():
        found[key] = found[node.outputs[0]]
    return found


def _widget(models, links, wanted, most):
    try:
        import graphviz_anywidget
        import ipywidgets
    except ImportError as error:
        raise ImportError(
            f"the picture needs {error.name}, which is not installed.\n"
            'Install it with: pip install "theanoguard[notebook]"'
        ) from error
    shown, told = [], {"before": {}, "after": {}}
    for side, model in models.items():
        drawn = part_of(model, wanted, most)
        told[side] = panel_facts(drawn)
        part = graphviz_anywidget.graphviz_widget(dot_source(drawn))
        part.layout.width = f"{100 // len(models)}%"
        part.children[0].layout.flex_flow = "row wrap"
        part.add_class(f"tg-{side}")
        title = f"{side} rewriting: " if len(models) > 1 else ""
        some = f"{len(drawn.nodes)} of " if drawn is not model else ""
        head = ipywidgets.Label(f"{title}{some}{len(model.nodes)} nodes")
        part.children = (head, *part.children)
        shown.append(part)
    box = ipywidgets.VBox([ipywidgets.HBox(shown), _panel_class()(facts=told, links=links)])
    box.add_class("tg-picture")
    return box


@cache
def _panel_class():
    import anywidget
    import traitlets

    class Panel(anywidget.AnyWidget):
        """What the clicked node is."""

        _esm = _HERE / "picture.js"
        _css = _HERE / "picture.css"
        facts = traitlets.Dict().tag(sync=True)
        links = traitlets.Dict().tag(sync=True)

    return Panel
