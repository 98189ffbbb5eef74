"""Print graphs as trees of text, with further columns."""

import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path
from typing import Any, Literal

from pytensor.graph.basic import Apply, Variable
from pytensor.printing import debugprint as _debugprint
from pytensor.printing import min_informative_str as min_informative_str
from pytensor.printing import pp as pp

from theanoguard._arguments import checked, refuse
from theanoguard._event import GuardEvent
from theanoguard._provenance import Backward, SourceLine
from theanoguard._provenance.places import place_text, short_file
from theanoguard._pytensor import Function
from theanoguard._shown import MOST, bounded
from theanoguard._text import cut_around, encodable, printable, shortened
from theanoguard.view.model import GraphModel, Marks, NodeModel, VariableModel, graph_model
from theanoguard.view.written import written_model

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
        called = cut(model.called(shown) or shown.value or shown.label, MOST_LEFT)
        line = f"{before}{branch}{called} [id {number}]"
        beside = render(model.objects[key], line) if is_new else ""
        if is_new and node is not None and node.op:
            beside += f"  compiled: {cut(node.op)}"
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


_BRANCH, _LAST, _BELOW, _SPACE = " ├─ ", " └─ ", " │  ", "    "  # how PyTensor draws a tree


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


MOST_MARKS = 20  # so many marks stand above a text that does not reach their lines


def tree_text(graph: Any, model: GraphModel) -> str:
    """Return the tree of a graph with the user's lines, as far as a representation may show it.

    Marks in the part that is left out stand above the tree.

    `model`: the model of `graph`.
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
        f"{cut(thing)} <<< {event}"
        for part in model.walk()
        for key, thing in part.objects.items()
        for event in (part.nodes.get(key) or part.variables[key]).events
        if f"<<< {event}" not in shown
    ]
    if len(marks) > MOST_MARKS:
        marks[MOST_MARKS:] = [f"{len(marks) - MOST_MARKS} more marks"]
    return bounded("\n".join([*marks, text]), rest, of) if marks else shown


MOST_LEFT = 56  # largest width of the tree up to which the columns next to it are aligned

MOST_TEXT = 52  # largest number of characters of a source line, or of an operation, in a column


def cut(text: object, most: int = MOST_TEXT) -> str:
    return shortened(printable(str(text)), most)


def short_place(source: SourceLine) -> str:
    """Return a place without its text.  A distant file is shown by folder and name only.

    Examples
    --------
    >>> from theanoguard._provenance import SourceLine
    >>> short_place(SourceLine("/usr/lib/site-packages/net/layers.py", 5, "dense", "x @ w"))
    '.../net/layers.py:5 in dense'
    """
    file = short_file(source.file)
    if Path(file).is_absolute() and len(Path(file).parts) > 3:
        file = "/".join(["...", *Path(file).parts[-2:]])
    # (`place_text` does not shorten a relative path further)
    return place_text(replace(source, file=file), column=False)


def source_text(source: SourceLine) -> str:
    place = short_place(source)
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
                line = short_place(provenance.source)
            elif provenance.backward is None:
                line = source_text(provenance.source)
            else:  # (all that `grad` made comes from its line; the forward operation differs)
                line = f"{short_place(provenance.source)}: {_backward_text(provenance.backward)}"
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
        text += f" through {cut(backward.forward)}"
    if backward.forward_source is not None:
        text += f" at {short_place(backward.forward_source)}"
    return text
