"""Render graphs as text, as pictures, and as tables of time and memory.

The op ``Print`` is in a module of its own.
"""

import logging
import math
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pytensor import config
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.printing import debugprint as _debugprint
from pytensor.printing import min_informative_str as min_informative_str
from pytensor.printing import pp as pp

from theanoguard._arguments import checked, refuse
from theanoguard._errors import TheanoguardError
from theanoguard._event import GuardEvent
from theanoguard._files import write_atomically
from theanoguard._provenance import Backward, SourceLine, lookup
from theanoguard._provenance.places import cut_around, encodable, place_text, printable, short_file
from theanoguard._pytensor import Function, is_numeric
from theanoguard._shown import MOST, bounded, brief
from theanoguard.view.model import GraphModel, Marks, NodeModel, VariableModel, graph_model
from theanoguard.view.written import written_model

logger = logging.getLogger("theanoguard")

# --------------------------------------------------------------------------------------
# debugprint

_ID = re.compile(r" (\[id [^\]]*\])")
_OUTPUT = re.compile(r"\.(\d+)$")


@checked
def debugprint(
    graph_like: Any = None,
    depth: int = -1,
    print_type: bool = False,
    print_shape: bool = False,
    file: Any = None,
    id_type: str = "CHAR",
    stop_on_name: bool = False,
    done: Any = None,
    print_storage: bool = False,
    used_ids: Any = None,
    *,
    obj: Any = None,
    ids: str | None = None,
    print_inner_graphs: bool | Literal["auto"] = "auto",
    print_clients: bool = False,
    print_source: bool = False,
    print_rewrites: bool = False,
    values: Mapping | None = None,
    events: Mapping | GuardEvent | Sequence[GuardEvent] | None = None,
    times: Mapping | None = None,
    as_written: bool = False,
    **pytensor_kwargs: Any,
) -> Any:
    """Print a graph as text, with further columns on request.

    Without the additional arguments, the text is the same as from
    ``pytensor.printing.debugprint``.

    Parameters
    ----------
    graph_like : Variable, Apply, Function, FunctionGraph or list of these
    depth, print_type, print_shape, file, id_type, stop_on_name, done, print_storage, used_ids
        The same as in PyTensor.  Further keyword arguments are passed to PyTensor.
    obj, ids
        Theano's names of `graph_like` and `id_type`.
    print_inner_graphs : bool or "auto"
        Print the inner graphs below the graph: those of all operations, of none, or of ``Scan``
        and ``OpFromGraph`` but not of PyTensor's own symbolic operations.
    print_clients : bool
        Show which nodes read a node, if there are several, as Theano does.
    print_source : bool
        Show the user's line that made each node.
    print_rewrites : bool
        Show the rewrites that led from the user's node to this one, latest first.
    values : mapping of Variable to array_like or Statistics, optional
        Last values.  Their minimum, maximum, mean and number of bad elements are shown.
    events : mapping of Variable or Apply to object, GuardEvent or list of GuardEvent, optional
        The variables and nodes to mark with ``<<<``, and the text of each mark.  A `GuardEvent`
        marks the variable or node that it names.
    times : mapping of Apply to float, optional
        Seconds spent in each node.  If a function was compiled with ``profile=True``, and `values`
        or `times` is given, the times are read from its profile.
    as_written : bool
        Print one line for each expression of your program, with your line, and with the values and
        the marks of the compiled graph.  The function must be compiled with :class:`GuardMode` or
        inside :func:`track_provenance`.  Only `depth`, `file`, `values`, `events` and `times`
        have an effect then.

    Returns
    -------
    str or file or None
        The text if `file` is ``"str"``, else `file`.

    Raises
    ------
    TypeError
        If there is nothing to print, or if it has no graph.
    ValueError
        If further columns are requested together with ``file="rich"``, or if the graph as written
        is not known.

    Examples
    --------
    >>> from theanoguard import debugprint
    >>> import pytensor.tensor as pt
    >>> x = pt.vector("x")
    >>> print(debugprint(pt.log(x), file="str", values={x: [1.0, 4.0]}), end="")
    Log [id A]
     └─ x [id B]  | min=1 max=4 mean=2.5 bad=0
    """
    graph = obj if graph_like is None else graph_like
    if graph is None:
        raise TypeError("debugprint has nothing to print.\nGive a variable, node or function.")
    if not (file is None or str(file) in ("str", "rich") or hasattr(file, "write")):
        raise refuse("debugprint", "file", file, 'file must be an open file, "str" or "rich"')
    id_type = id_type if ids is None else ids
    used_ids = {} if used_ids is None else used_ids
    columns = print_clients or print_source or print_rewrites
    columns = columns or not (values is None and events is None and times is None)
    kwargs = {
        "depth": depth,
        "print_type": print_type,
        "print_shape": print_shape,
        "stop_on_name": stop_on_name,
        "done": done,
        "print_storage": print_storage,
        "print_inner_graphs": print_inner_graphs,
        **pytensor_kwargs,
    }
    if as_written:
        return _sent(_as_written(graph, depth, values, events, times), file)
    if not columns:
        return _debugprint(graph, file=file, id_type=id_type, used_ids=used_ids, **kwargs)
    if file == "rich":
        raise ValueError(
            "debugprint cannot add columns to a rich tree.\n"
            'Leave out file="rich", or the arguments that ask for columns.'
        )
    model = graph_model(
        graph,
        values=values,
        events=events,
        times=times,
        with_provenance=print_source or print_rewrites,
    )
    # The identifier of a line gives its variable.  If the user wants no identifiers, they are
    # removed afterwards.
    text = _debugprint(graph, file="str", id_type=id_type or "CHAR", used_ids=used_ids, **kwargs)
    render = _Columns(
        model,
        clients=print_clients,
        source=print_source,
        rewrites=print_rewrites,
        times=times is not None or values is not None,
    )
    return _sent(_beside(text, render, used_ids, with_ids=bool(id_type)), file)


def _sent(text: str, file: Any) -> Any:
    """Return a text, or write it to a file and return that."""
    if file == "str":
        return text
    stream = sys.stdout if file is None else file
    stream.write(encodable(text, stream))
    return file


def _as_written(
    function: Any, depth: int, values: Mapping | None, events: Marks | None, times: Mapping | None
) -> str:
    """Return the tree of a function's expressions."""
    model = None
    if isinstance(function, Function):
        compiled = graph_model(function, values=values, events=events, times=times)
        model = written_model(function, compiled)
    if model is None:
        raise ValueError(
            "debugprint(as_written=True): the graph as you wrote it is not known.\nPass a function "
            "that was compiled with GuardMode or inside track_provenance, or leave out as_written."
        )
    return _in_columns([*_written_lines(model, depth)])


def _written_lines(model: GraphModel, depth: int = -1) -> Iterator[tuple[str, str]]:
    """Yield each expression of a graph as written as a line, with the text of its right column."""
    render = _Columns(model, clients=False, source=True, rewrites=False, times=True, text=False)
    numbers: dict[str, int] = {}
    todo = [(key, "", "", "") for key in reversed(model.outputs)]
    while todo:
        key, before, branch, below = todo.pop()
        shown, is_new = model.variables[key], key not in numbers
        number = numbers.setdefault(key, len(numbers))
        node = model.maker(shown)
        line = f"{before}{branch}{_label(shown, node)} [id {number}]"
        beside = render(model.objects[key], line) if is_new else ""
        if is_new and node is not None:
            beside += f"  compiled: {_cut(node.op)}"
        yield line, beside.lstrip()
        operands = node.inputs if node is not None else []
        before += below
        if not operands or len(before) // len(_BELOW) + 1 == depth:
            continue
        if is_new:
            last, *others = reversed(operands)
            todo.append((last, before, _LAST, _SPACE))
            todo += [(operand, before, _BRANCH, _BELOW) for operand in others]
        else:
            yield f"{before}{_LAST}···", ""


_BRANCH, _LAST, _BELOW, _SPACE = " ├─ ", " └─ ", " │  ", "    "
"""How PyTensor draws a tree."""


def _label(shown: VariableModel, node: NodeModel | None) -> str:
    """Return the name of a row, and its expression where that is another."""
    if node is None:
        return shown.name or shown.value or shown.label
    written = " ".join((node.written or node.op).split())
    name = shown.name
    # (PyTensor calls the result of ``x.mean()`` "mean")
    is_named = name is not None and name != written and f"{name}(" not in written
    return _cut(f"{name} = {written}" if is_named else written, MOST_LEFT)


def _beside(
    text: str,
    render: Callable[[Any, str], str],
    used_ids: Mapping[Any, str],
    with_ids: bool = True,
) -> str:
    """Return a tree with the columns beside its lines."""
    things = {identifier: thing for thing, identifier in used_ids.items()}
    lines = []
    for line in text.splitlines():
        added = ""
        if found := _ID.search(line):
            added = render(things.get(found.group(1)), line[: found.start()])
            if not with_ids:
                line = _ID.sub("", line)
        lines.append((line, added))
    return _in_columns(lines)


def _in_columns(lines: Sequence[tuple[str, str]]) -> str:
    """Return lines with their right columns."""
    # A single long line must not move the columns of all other lines to the right.
    wide = max((len(line) for line, added in lines if added and len(line) <= MOST_LEFT), default=0)
    return "\n".join(f"{x.ljust(wide)}  | {added}" if added else x for x, added in lines) + "\n"


class _Full(Exception):
    """A page has no room for more."""


class _Page(StringIO):
    """A file that ends PyTensor's printing: the tree of a deep graph has megabytes."""

    def write(self, text: str) -> int:
        if self.tell() > MOST:
            raise _Full
        return super().write(text)


MOST_MARKS = 20
"""So many marks stand above a text that does not reach their lines."""


def tree_text(graph: Any, model: GraphModel) -> str:
    """Return the tree of a graph with the user's lines, as far as a representation may show it.

    Marks in the part that is left out stand above the tree.

    Parameters
    ----------
    graph : as for :func:`debugprint`
    model : GraphModel
        The model of `graph`.
    """
    page = _Page()
    used_ids: dict[Any, str] = {}
    of = None
    try:
        _debugprint(graph, file=page, used_ids=used_ids)
    except _Full:
        of = f"{len(model.nodes)} nodes"
    render = _Columns(model, clients=False, source=True, rewrites=False, times=True)
    text = _beside(page.getvalue(), render, used_ids)
    return _with_marks(text, model, "print_source", of)


def written_text(model: GraphModel) -> str:
    """Return the tree of a graph as written, as far as a representation may show it.

    `model`: from :func:`~theanoguard.view.written.written_model`.
    """
    lines: list[tuple[str, str]] = []
    size = 0
    for line, beside in _written_lines(model):
        lines.append((line, beside))
        size += len(line)
        if size > MOST:
            break
    of = f"{len(model.nodes)} expressions" if size > MOST else None
    return _with_marks(_in_columns(lines), model, "as_written", of)


def _with_marks(text: str, model: GraphModel, how: str, of: str | None) -> str:
    """Return the part of a tree that a representation may show, and the marks of the rest above."""
    rest = f"theanoguard.debugprint(..., {how}=True) prints all of it, save(path) writes it."
    shown = bounded(text, rest, of)
    marks = [
        f"{_cut(thing)} <<< {event}"
        for part in model.walk()
        for key, thing in part.objects.items()
        for event in (part.nodes.get(key) or part.variables[key]).events
        if f"<<< {event}" not in shown
    ]
    if len(marks) > MOST_MARKS:
        marks[MOST_MARKS:] = [f"{len(marks) - MOST_MARKS} more marks"]
    return bounded("\n".join([*marks, text]), rest, of) if marks else shown


MOST_LEFT = 56
"""Largest width of the tree up to which the columns next to it are aligned."""

MOST_TEXT = 52
"""Largest number of characters of a source line, or of an operation, in a column."""


def _cut(text: object, most: int = MOST_TEXT) -> str:
    text = printable(str(text))
    return text if len(text) <= most else f"{text[: most - 3]}..."


def _short_place(source: SourceLine) -> str:
    """Return a place without its text.  A distant file is shown by folder and name only.

    Examples
    --------
    >>> from theanoguard._provenance import SourceLine
    >>> _short_place(SourceLine("/usr/lib/site-packages/net/layers.py", 5, "dense", "x @ w"))
    '.../net/layers.py:5 in dense'
    """
    file = short_file(source.file)
    if Path(file).is_absolute() and len(Path(file).parts) > 3:
        file = "/".join(["...", *Path(file).parts[-2:]])
    # (`place_text` does not shorten a relative path further)
    return place_text(replace(source, file=file), column=False)


def _source_text(source: SourceLine) -> str:
    place = _short_place(source)
    if not source.text:
        return place
    text, *_ = cut_around(printable(source.text), *(source.marked or (0, 0)), MOST_TEXT)
    return f"{place}: {text}"


Clients = dict[str, list[tuple[NodeModel, int]]]
"""The nodes that read each variable, with the number of the input."""


@dataclass
class _Columns:
    """The columns of one variable's line."""

    model: GraphModel
    clients: bool
    source: bool
    rewrites: bool
    times: bool
    text: bool = True

    def __post_init__(self) -> None:
        # The outer graph comes last, so that it wins for a variable that is in several graphs.
        self.where: dict[Variable | Apply, tuple[GraphModel, str, Clients]] = {}
        for part in reversed(list(self.model.walk())):
            reads = part.clients() if self.clients else {}
            for key, thing in part.objects.items():
                self.where[thing] = part, key, reads

    def __call__(self, thing: Variable | Apply | None, before: str) -> str:
        if thing is None or thing not in self.where:
            return ""
        if isinstance(thing, Variable):
            variable = thing
        else:
            number = _OUTPUT.search(before) if len(thing.outputs) > 1 else None
            variable = thing.outputs[int(number.group(1)) if number else 0]
        part, key, reads = self.where[variable]
        shown = part.variables[key]
        node = part.maker(shown)
        return "  ".join(text for text in self._texts(shown, node, reads.get(key, ())) if text)

    def _texts(
        self,
        shown: VariableModel,
        node: NodeModel | None,
        reads: Collection[tuple[NodeModel, int]],
    ) -> Iterator[str]:
        for event in (*shown.events, *(node.events if node is not None else ())):
            yield f"<<< {event}"
        provenance = shown.provenance
        if self.source and provenance is not None and provenance.source is not None:
            if not self.text:
                line = _short_place(provenance.source)
            elif provenance.backward is None:
                line = _source_text(provenance.source)
            else:  # (all that `grad` made comes from its line; the forward operation differs)
                line = f"{_short_place(provenance.source)}: {_backward_text(provenance.backward)}"
            yield line if provenance.own_source else f"near {line}"
        if self.rewrites and provenance is not None and provenance.history:
            yield "from " + ", ".join(f"{s.op} by {s.reason}" for s in provenance.history)
        if self.clients and len(reads) > 1:
            yield "clients:" + ", ".join(f"{client.op}[{i}]" for client, i in reads)
        if shown.statistics is not None:
            yield str(shown.statistics)
        if self.times and node is not None and node.seconds is not None:
            yield f"time={node.seconds:.3g}s"


def _backward_text(backward: Backward) -> str:
    text = f"gradient of {backward.cost or 'a cost'}"
    if backward.forward is not None:
        text += f" through {_cut(backward.forward)}"
    if backward.forward_source is not None:
        text += f" at {_short_place(backward.forward_source)}"
    return text


# --------------------------------------------------------------------------------------
# Pictures


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


def pydotprint(
    fct: Any,
    outfile: str | Path | None = None,
    compact: bool = True,
    format: str = "png",
    with_ids: bool = False,
    high_contrast: bool = True,
    cond_highlight: str | None = None,
    colorCodes: Mapping[str, str] | None = None,
    max_label_size: int = 70,
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
    >>> from theanoguard import pydotprint
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
        found: set[str] = set()
        todo = [key]
        while todo:
            owner = self.model.variables[todo.pop()].owner
            if owner is not None and owner not in found:
                found.add(owner)
                todo += self.model.nodes[owner].inputs
        return found


def _path_to_events(model: GraphModel) -> set[str]:
    """Keys of marked variables and nodes, and of everything upstream of them."""
    bad = {key for key, node in model.nodes.items() if node.events}
    bad |= {key for key, variable in model.variables.items() if variable.events}
    todo = list(bad)
    while todo:
        key = todo.pop()
        if key in model.nodes:
            before = model.nodes[key].inputs
        else:
            owner = model.variables[key].owner
            before = [owner] if owner is not None else []
        new = [k for k in before if k not in bad]
        bad.update(new)
        todo += new
    return bad


# --------------------------------------------------------------------------------------
# Time and memory


@brief
@dataclass(frozen=True)
class ProfileRow:
    """Time and memory of one node.

    Parameters
    ----------
    node : Apply
        The node itself.
    order : int
        Position in the order of execution.
    seconds : float
        Total time.
    percent : float
        Percentage of the time of all nodes.
    impl : {"C", "Py"}
    bytes : int or None
        Bytes newly allocated for the outputs in the last call.  Views and outputs computed in
        place do not count.  None if the shapes are not known.
    name : str or None
        Name of the output, or the expression that it equals.
    source : SourceLine or None
        The user's line.
    """

    node: Apply
    op: str
    order: int
    seconds: float
    percent: float
    calls: int
    impl: Literal["C", "Py"]
    bytes: int | None
    name: str | None
    source: SourceLine | None

    @property
    def seconds_per_call(self) -> float:
        """Mean time of one call."""
        return self.seconds / self.calls if self.calls else 0.0


@brief
@dataclass(frozen=True, repr=False)
class Profile:
    """The Apply table and the memory table of a function.

    Parameters
    ----------
    rows : tuple of ProfileRow
        In descending order of time.
    calls : int
        Calls of the function.
    seconds : float
        Time spent in these calls.
    name : str or None
        Name of the function.
    """

    rows: tuple[ProfileRow, ...]
    calls: int
    seconds: float
    name: str | None = None

    def by_time(self) -> tuple[ProfileRow, ...]:
        """The rows in descending order of time."""
        return self.rows

    def by_memory(self) -> tuple[ProfileRow, ...]:
        """The rows with known memory, in descending order of memory."""
        known = (row for row in self.rows if row.bytes is not None)
        return tuple(sorted(known, key=lambda row: -(row.bytes or 0)))

    def __str__(self) -> str:
        in_nodes = sum(row.seconds for row in self.rows)
        lines = [
            f"{self.name or 'function'}: {self.calls} calls, {self.seconds:.3e} s, "
            f"of which {in_nodes:.3e} s in {len(self.rows)} nodes",
            "",
            "Apply table",
            f"{'%':>6} {'seconds':>10} {'s/call':>10} {'calls':>7} {'impl':<4} {'id':>4}  node",
        ]
        for row in self.by_time():
            lines.append(
                f"{row.percent:6.1f} {row.seconds:10.3e} {row.seconds_per_call:10.3e} "
                f"{row.calls:7d} {row.impl:<4} {row.order:4d}  {_row_text(row)}"
            )
        lines += ["", "Memory table"]
        memory = self.by_memory()
        if memory:
            lines.append(f"{'bytes':>12} {'id':>4}  node")
            lines += [f"{row.bytes:12d} {row.order:4d}  {_row_text(row)}" for row in memory]
            of = "all nodes"
            if len(memory) < len(self.rows):
                of = f"{len(memory)} of {len(self.rows)} nodes; the other sizes are not known"
            lines.append(f"{sum(row.bytes or 0 for row in memory):12d}       {of}")
        else:
            lines.append(
                "not recorded: set pytensor.config.profile and profile_memory to True before "
                "compiling and calling"
            )
        return "\n".join(lines)

    __repr__ = __str__


def _row_text(row: ProfileRow) -> str:
    # (a line makes many nodes: its place is enough beside the expression)
    parts = [_cut(row.op)]
    if row.name:
        parts.append(f"({_cut(row.name)})")
    if row.source is not None:
        parts.append((_short_place if row.name else _source_text)(row.source))
    return "  ".join(parts)


@checked
def profile_nodes(fn: Function) -> Profile:
    """Time and memory per node of a function, in descending order, with provenance.

    Parameters
    ----------
    fn : Function
        A function that was compiled with ``profile=True``, and called.  PyTensor records memory
        only if its flags ``profile`` and ``profile_memory`` were set when the function was
        compiled and called.  Without the flags, the memory of a node is known only if its shapes
        are static or its values were kept.

    Returns
    -------
    Profile
        Its ``str`` is the table as text.

    Raises
    ------
    ValueError
        If `fn` was not compiled with ``profile=True``.
    """
    stats = getattr(fn, "profile", None)
    if not stats or not hasattr(stats, "apply_time"):
        raise ValueError(
            "The function was not compiled for profiling, so there is nothing to show.\n"
            "Compile it with pytensor.function(..., profile=True) and call it first."
        )
    fgraph = fn.maker.fgraph
    model = graph_model(fn, with_provenance=False)
    storage_map = getattr(fn.vm, "storage_map", None) or {}
    total = sum(node.seconds or 0.0 for node in model.nodes.values())
    rows = []
    for node in model.in_order():
        live = model.objects[node.key]
        provenance = lookup(fgraph, live)
        rows.append(
            ProfileRow(
                node=live,
                op=node.op,
                order=node.order,
                seconds=node.seconds or 0.0,
                percent=100 * node.seconds / total if total and node.seconds else 0.0,
                calls=node.calls or 0,
                impl="C" if (stats.apply_cimpl or {}).get(live) else "Py",
                bytes=_allocated(live, stats.variable_shape, storage_map),
                name=(provenance.name if provenance.own_name else None) or provenance.expression,
                source=provenance.source,
            )
        )
    rows.sort(key=lambda row: -row.seconds)
    name = fn.name or getattr(fgraph, "name", None)
    return Profile(tuple(rows), stats.fct_callcount, stats.fct_call_time, name)


def _allocated(
    node: Apply, shapes: Mapping[Variable, Any], storage_map: Mapping[Variable, Any]
) -> int | None:
    """Bytes that a node allocates for its outputs; None if a shape is not known."""
    reused = {*(node.op.view_map or {}), *(node.op.destroy_map or {})}
    total = 0
    for i, output in enumerate(node.outputs):
        if i in reused:
            continue
        shape = shapes.get(output)
        if shape is None:
            # If the function keeps intermediate values (allow_gc=False), use the last value.
            kept = storage_map.get(output, [None])[0]
            shape = getattr(kept, "shape", getattr(output.type, "shape", None))
        if not isinstance(shape, tuple) or None in shape or not is_numeric(output.type):
            return None
        total += math.prod(shape) * np.dtype(output.type.dtype).itemsize
    return total
