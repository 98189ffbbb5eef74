"""Tables of the time and memory that the nodes of a function take."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from pytensor.graph.basic import Apply, Variable

from theanoguard._arguments import checked
from theanoguard._provenance import SourceLine, lookup
from theanoguard._pytensor import Function, is_numeric
from theanoguard._shown import brief
from theanoguard.view.debugprint import cut, short_place, source_text
from theanoguard.view.model import graph_model


@brief
@dataclass(frozen=True)
class ProfileRow:
    """Time and memory of one node."""

    node: Apply  # the node itself
    op: str
    order: int  # position in the order of execution
    seconds: float  # total time
    percent: float  # percentage of the time of all nodes
    calls: int
    impl: Literal["C", "Py"]
    #: Bytes newly allocated for the outputs in the last call.  Views and outputs computed in place
    #: do not count.  None if the shapes are not known.
    bytes: int | None
    name: str | None  # name of the output, or the expression that it equals
    source: SourceLine | None  # the user's line

    @property
    def seconds_per_call(self) -> float:
        """Mean time of one call."""
        return self.seconds / self.calls if self.calls else 0.0


@brief
@dataclass(frozen=True, repr=False)
class Profile:
    """The Apply table and the memory table of a function."""

    rows: tuple[ProfileRow, ...]  # in descending order of time
    calls: int  # calls of the function
    seconds: float  # time spent in these calls
    name: str | None = None  # name of the function

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
    parts = [cut(row.op)]
    if row.name:
        parts.append(f"({cut(row.name)})")
    if row.source is not None:
        parts.append((short_place if row.name else source_text)(row.source))
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
    model = graph_model(fn)
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
                name=model.called(model.variables[node.outputs[0]]) or None,
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
