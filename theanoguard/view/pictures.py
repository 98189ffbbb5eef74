"""Draw graphs with Graphviz."""

import logging
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytensor import config
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op

from theanoguard._arguments import Count, checked
from theanoguard._errors import TheanoguardError
from theanoguard._files import write_atomically
from theanoguard.view.model import GraphModel, Marks, NodeModel, VariableModel, graph_model

logger = logging.getLogger("theanoguard")


class GraphvizError(TheanoguardError, RuntimeError):
    """Graphviz' ``dot`` is missing or failed."""


#: Colour of an Apply node by a part of the name of its op's class; "Output" is for variables.
default_colorCodes = {
    "Scan": "yellow",
    "Shape": "brown",
    "IfElse": "magenta",
    "Elemwise": "#FFAABB",
    "Subtensor": "#FFAAFF",
    "Alloc": "#FFAA22",
    "Output": "lightblue",
}

_ROOT_COLORS = {"input": "green", "shared": "cyan", "constant": "white"}


@checked
def pydotprint(
    fct: Any,
    outfile: str | Path | None = None,
    compact: bool = True,
    format: str = "png",
    with_ids: bool = False,
    high_contrast: bool = True,
    cond_highlight: str | None = None,
    colorCodes: Mapping[str, str] | None = None,
    max_label_size: Count = 70,
    scan_graphs: bool = False,
    var_with_name_simple: bool = False,
    print_output_file: bool = True,
    return_image: bool = False,
    *,
    assert_nb_all_strings: int = -1,
    highlight: Variable | Apply | None = None,
    events: Marks | None = None,
) -> bytes | None:
    """Draw a graph with Graphviz.

    Nodes are ellipses and variables are boxes.  Inputs are green, shared variables cyan, outputs
    blue, and unused variables grey.  A blue edge means that the output is a view of the input.  A
    red edge means that the node overwrites the input.

    Parameters
    ----------
    fct : Variable, Apply, Function, FunctionGraph or list of these
    outfile : str or Path, optional
        The file to write.  By default ``theanoguard.pydotprint.<format>`` in PyTensor's directory
        of compiled code.
    compact : bool
        Leave out intermediate variables without a name.
    format : str
        Any output format of Graphviz, or ``"dot"``, which does not need Graphviz.
    with_ids : bool
        Show the position in the order of execution.
    high_contrast : bool
        Fill the shapes instead of colouring only their border.
    cond_highlight : str, optional
        Name of an ``IfElse``.  Three frames show the nodes that only its left branch needs, only
        its right branch needs, and both need.
    colorCodes : dict of str to str, optional
        Colour by a part of the name of the op's class.
    max_label_size : int
    scan_graphs : bool
        Draw the inner graphs of scans into separate files in the same folder.
    var_with_name_simple : bool
        Show the name of a variable without its type.
    print_output_file : bool
        Print the path of the file.
    return_image : bool
        Return the picture and write no file.
    assert_nb_all_strings : int
        For tests: the required number of different labels; -1 for any number.
    highlight : Variable or Apply, optional
        Draw the path from the inputs to it in red.
    events : mapping of Variable or Apply to object, GuardEvent or list of GuardEvent, optional
        As in :func:`debugprint`.  A marked variable or node is drawn in red, with its path from
        the inputs.

    Returns
    -------
    bytes or None
        The picture if `return_image`.

    Raises
    ------
    GraphvizError
        If ``dot`` is missing or fails.

    Examples
    --------
    >>> from theanoguard.view import pydotprint
    >>> import pytensor.tensor as pt
    >>> picture = pydotprint(pt.log(pt.vector("x")), format="dot", return_image=True)
    >>> picture.startswith(b"digraph")
    True
    """
    model = graph_model(fct, events=events, with_provenance=False)
    for key, thing in model.objects.items():
        if thing is highlight:
            (model.nodes.get(key) or model.variables[key]).events.append("")
    options = _Picture(
        compact=compact,
        with_ids=with_ids,
        high_contrast=high_contrast,
        cond_highlight=cond_highlight,
        colors=default_colorCodes if colorCodes is None else colorCodes,
        max_label_size=max_label_size,
        var_with_name_simple=var_with_name_simple,
    )
    text = dot_text(model, options)
    if assert_nb_all_strings != -1:
        labels = set(re.findall(r'(?m)^  "\w+" \[label="((?:[^"\\]|\\.)*)"', text))
        if len(labels) != assert_nb_all_strings:
            raise AssertionError(
                f"The picture has {len(labels)} different labels, not {assert_nb_all_strings}."
            )
    if return_image:
        return _draw(text, format)
    default = Path(config.compiledir) / f"theanoguard.pydotprint.{format}"
    path = default if outfile is None else Path(outfile)
    if path.suffix != f".{format}":
        path = path.with_name(f"{path.name}.{format}")
    write_atomically(path, _draw(text, format))
    if scan_graphs:
        for node in model.in_order():
            if node.op_type != "Scan":
                continue
            name = re.sub(r"\W+", "_", model.objects[node.key].op.name or "scan")
            inner = path.with_name(f"{path.stem}_{name}_{node.order}.{format}")
            for graph in node.inner.values():
                write_atomically(inner, _draw(dot_text(graph, options), format))
    if print_output_file:
        print("The output file is available at", path)
    return None


def _draw(text: str, format: str) -> bytes:
    """Run Graphviz, and return the bytes of the picture."""
    if format == "dot":
        return text.encode()
    program = shutil.which("dot")
    if program is None:
        raise GraphvizError(
            "The picture cannot be drawn: Graphviz' program `dot` is not on the PATH.\n"
            "Install Graphviz (`apt-get install graphviz`, `brew install graphviz`, "
            "`conda install graphviz`, or https://graphviz.org/download), or ask for "
            'format="dot", which needs no program.'
        )
    done = subprocess.run(
        [program, f"-T{format}"], input=text.encode(), capture_output=True, check=False
    )
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise GraphvizError(
            f"Graphviz' `dot` failed with code {done.returncode}: {said[0] if said else ''}\n"
            f'Check that it knows the format "{format}" (`dot -T?`).'
        )
    return done.stdout


@dataclass(frozen=True)
class _Picture:
    """How a graph is drawn; the arguments of :func:`pydotprint`."""

    compact: bool = True
    with_ids: bool = False
    high_contrast: bool = True
    cond_highlight: str | None = None
    colors: Mapping[str, str] | None = None
    max_label_size: int = 70
    var_with_name_simple: bool = False


def _quote(text: object) -> str:
    """A DOT string that Graphviz shows literally."""
    # Graphviz interprets entities even in plain labels.
    text = str(text).replace("\\", "\\\\").replace('"', '\\"').replace("&", "&amp;")
    # A NUL or another control character would end the text or its line.
    text = "".join(c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in text)
    return '"' + text.replace("\n", "\\n") + '"'


def _line(what: str, **attributes: str | None) -> str:
    inside = ", ".join(f"{k}={_quote(v)}" for k, v in attributes.items() if v is not None)
    return f"  {what} [{inside}];" if inside else f"  {what};"


def dot_text(model: GraphModel, picture: _Picture | None = None) -> str:
    """The text of a graph in Graphviz' language DOT.

    `picture`: how to draw it.  The defaults are those of :func:`pydotprint`.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> print(dot_text(graph_model(pt.log(pt.scalar("x", dtype="float64")))).splitlines()[3])
      "a0" [label="Log", shape="ellipse", style="filled", fillcolor="#FFAABB"];
    """
    return "\n".join(_Dot(model, picture or _Picture(colors=default_colorCodes)).lines()) + "\n"


class _Dot:
    def __init__(self, model: GraphModel, picture: _Picture) -> None:
        self.model = model
        self.picture = picture
        self.clients = model.clients()
        self.bad = _path_to_events(model)

    def lines(self) -> Iterator[str]:
        yield "digraph {"
        yield "  rankdir=TB;"
        yield '  node [fontname="sans-serif"];'
        drawn: set[str] = set()
        for node in self.model.in_order():
            yield self._node(node)
            for key in (*node.inputs, *node.outputs):
                if key not in drawn and self._is_drawn(key):
                    drawn.add(key)
                    yield self._variable(self.model.variables[key])
            for i, key in enumerate(node.inputs):
                yield self._input_edge(node, i, key)
            for i, key in enumerate(node.outputs):
                if self._is_drawn(key):
                    label = str(i) if len(node.outputs) > 1 else None
                    yield self._edge(node.key, key, label, None)
        for key in self.model.outputs:
            if key not in drawn:
                drawn.add(key)
                yield self._variable(self.model.variables[key])
        for key in drawn:
            if (old := self.model.variables[key].update_of) is not None and old in drawn:
                yield self._edge(old, key, "UPDATE", self._color("Output"))
        yield from self._branches()
        yield "}"

    def _is_drawn(self, key: str) -> bool:
        shown = self.model.variables[key]
        return (
            shown.owner is None
            or shown.is_output
            or not self.clients[key]
            or not self.picture.compact
            or shown.name is not None
            or bool(shown.events)
        )

    def _color(self, name: str) -> str | None:
        return (self.picture.colors or {}).get(name)

    def _style(self, color: str | None) -> dict[str, str]:
        if color is None:
            return {}
        if self.picture.high_contrast:
            return {"style": "filled", "fillcolor": color}
        return {"color": color}

    def _cut(self, text: str, tail: str = "") -> str:
        size = self.picture.max_label_size
        if len(text) + len(tail) > size:
            text = text[: max(size - 3 - len(tail), 1)] + "..."
        return text + tail

    def _marked(self, label: str, key: str, events: Iterable[str]) -> tuple[str, dict[str, str]]:
        style = {"color": "red", "penwidth": "3"} if key in self.bad else {}
        return "\n".join([label, *(event for event in events if event)]), style

    def _node(self, node: NodeModel) -> str:
        tail = f" id={node.order}" if self.picture.with_ids else ""
        if node.seconds is not None:
            tail += f" ({node.seconds:.3f}s)"
        label, style = self._marked(self._cut(node.op, tail), node.key, node.events)
        color = None
        for part, found in (self.picture.colors or {}).items():
            if part in node.op_type:
                color = found
        attributes = {**self._style(color), **style}
        return _line(f'"{node.key}"', label=label, shape="ellipse", **attributes)

    def _variable(self, shown: VariableModel) -> str:
        if shown.name is not None:
            simple = self.picture.var_with_name_simple
            label = shown.name if simple else f"name={shown.name} {shown.type}"
        elif shown.kind == "constant":
            label = f"val={shown.value} {shown.type}"
        else:
            label = shown.type
        color = _ROOT_COLORS.get(shown.kind)
        if shown.is_output:
            color = self._color("Output") or "lightblue"
        elif shown.kind == "computed" and not self.clients[shown.key]:
            color = "grey"
        label, style = self._marked(self._cut(label), shown.key, shown.events)
        return _line(f'"{shown.key}"', label=label, shape="box", **{**self._style(color), **style})

    def _input_edge(self, node: NodeModel, i: int, key: str) -> str:
        shown = self.model.variables[key]
        label = str(i) if len(node.inputs) > 1 else ""
        color = None
        if any(i in ins for ins in node.view_map.values()):
            color = "blue"
        if any(i in ins for ins in node.destroy_map.values()):
            color = "red"
        if shown.owner is None or self._is_drawn(key):
            return self._edge(key, node.key, label or None, color)
        return self._edge(
            shown.owner, node.key, self._cut(f"{label} {shown.type}".strip()), color, key
        )

    def _edge(
        self,
        start: str,
        end: str,
        label: str | None,
        color: str | None,
        variable: str | None = None,
    ) -> str:
        bad = end in self.bad and (variable or start) in self.bad
        width = "3" if bad else None
        color = "red" if bad else color
        return _line(f'"{start}" -> "{end}"', label=label, color=color, penwidth=width)

    def _branches(self) -> Iterator[str]:
        """Frames around the nodes that the branches of the named IfElse need."""
        name = self.picture.cond_highlight
        if name is None:
            return
        chosen = [
            node
            for node in self.model.in_order()
            if node.op_type == "IfElse" and getattr(self._op(node), "name", None) == name
        ]
        if not chosen:
            logger.warning(
                "pydotprint: cond_highlight is set but there is no IfElse node in the graph"
            )
            return
        left, right = (self._needed(key) for key in chosen[-1].inputs[1:3])
        for title, keys in [
            ("Left", left - right),
            ("Right", right - left),
            ("Middle", left & right),
        ]:
            if keys:
                inside = "; ".join(f'"{key}"' for key in sorted(keys))
                yield f'  subgraph "cluster_{title}" {{ label="{title}"; {inside}; }}'

    def _op(self, node: NodeModel) -> Op | None:
        return getattr(self.model.objects.get(node.key), "op", None)

    def _needed(self, key: str) -> set[str]:
        """Keys of the nodes that a variable is computed from."""
        return self.model.upstream([key]) & self.model.nodes.keys()


def _path_to_events(model: GraphModel) -> set[str]:
    """Keys of marked variables and nodes, and of everything upstream of them."""
    bad = {key for key, node in model.nodes.items() if node.events}
    bad |= {key for key, variable in model.variables.items() if variable.events}
    return model.upstream(bad)
