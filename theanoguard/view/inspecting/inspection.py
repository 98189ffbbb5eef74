"""``theanoguard.inspect_graph``."""

import re
import traceback
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from theanoguard._arguments import checked
from theanoguard._collecting import seldom_collecting
from theanoguard._event import GuardEvent
from theanoguard._files import write_atomically
from theanoguard._provenance import SourceLine, notebook_cell
from theanoguard._provenance.places import place_text
from theanoguard._shown import bounded
from theanoguard.guard import GuardError
from theanoguard.view.debugprint import written_text
from theanoguard.view.inspecting import page
from theanoguard.view.inspecting.outline import Outline
from theanoguard.view.inspecting.picture import Picture, picture, pictures
from theanoguard.view.inspecting.subject import Subject, subject_of
from theanoguard.view.written import written_model

TRACEBACK = 15_000  # how many characters of a traceback are kept, from its end


@checked
def inspect_graph(
    thing: Any,
    *,
    values: Mapping | None = None,
    events: Mapping | GuardEvent | GuardError | Sequence[GuardEvent] | None = None,
    times: Mapping | None = None,
) -> "Inspection":
    """Show a graph, a guard error or a guard event.

    Parameters
    ----------
    thing : Variable, Apply, Function, FunctionGraph, list of these, GuardError or GuardEvent
        For an error, the graph of the function that raised it is shown.  For a pickled error or
        an event, only the path in its explanation or the event itself can be shown.
    values : mapping of Variable to array_like or Statistics, optional
        Values to show.  The default for a function is the values that it still holds from its last
        call.  With a linker that collects no garbage (``"cvm_nogc"``) it holds all of them.
    events : mapping, GuardEvent, GuardError or list of GuardEvent, optional
        Events to mark, as for :func:`theanoguard.debugprint`.  The default for a guarded function
        is its last events.
    times : mapping of Apply to float, optional
        Seconds spent in each node.  The default for a function compiled with ``profile=True`` is
        its profile.

    Returns
    -------
    Inspection
        A notebook displays it.

    Raises
    ------
    TypeError
        If `thing` has no graph.

    Examples
    --------
    >>> from theanoguard import inspect_graph
    >>> import pytensor.tensor as pt
    >>> x = pt.dvector("x")
    >>> looked_at = inspect_graph(pt.log(x))
    >>> [node.op for node in looked_at.model.in_order()]
    ['Log']
    >>> looked_at.html().count("<details")
    1
    """
    with seldom_collecting():
        return Inspection(thing, subject_of(thing, values=values, events=events, times=times))


class Inspection:
    """The result of :func:`inspect_graph`.

    Attributes
    ----------
    model : GraphModel
        The graph as plain data.
    written : GraphModel or None
        For a function that was compiled under a guard or inside
        :func:`theanoguard.track_provenance`,
        the graph as you wrote it, with the values and the marks of the compiled graph.
    """

    def __init__(self, thing: Any, subject: Subject) -> None:
        self._subject = subject
        self.model = subject.model
        self.written = written_model(subject.function, subject.model, subject.cause)
        self._traceback = _traceback_text(thing) if isinstance(thing, GuardError) else None

    def __repr__(self) -> str:
        if self.written is not None and self._subject.report is None:
            return written_text(self.written)
        return bounded(self._subject.text(), "the explanation of the error has all of it.")

    def _repr_html_(self) -> str:
        """Return what a notebook stores: of a large graph, the rows that matter most."""
        with seldom_collecting():
            return self._html(stored=True)

    def html(self) -> str:
        """Return the graph as HTML.

        Returns
        -------
        str
            One element that needs no network and no extension.  If scripts do not run, the graph
            is shown as nested lists.
        """
        with seldom_collecting():
            return self._html(stored=False)

    def _html(self, stored: bool) -> str:
        subject = self._subject
        tree = page.tree(Outline(self.model, subject.wanted), subject.title, stored)
        if self.written is not None:
            outline = Outline(self.written, subject.wanted)
            own = page.tree(outline, f"{subject.title}, as you wrote it", stored)
            tree = own + page.fold("The compiled graph", tree)
        if subject.report is None:
            return tree
        parts = [
            f"<style>{page.STYLE}</style>",
            page.colored(subject.report),
            page.fold(f"Graph of {subject.title}, opened at the bad node", tree),
        ]
        if self._traceback is not None:
            parts.append(page.fold("Traceback", page.block(self._traceback)))
        return f"<div>{''.join(parts)}</div>"

    @checked
    def picture(self, before: bool = False) -> Picture:
        """Draw the graph, with a frame around the nodes that one call of your function made.

        If there are many nodes, the frames are folded.  After an error, the picture shows the bad
        node and the nodes up to two steps away from it.  A notebook displays the picture.  Open
        folded boxes and choose nodes by mouse or keyboard.

        Parameters
        ----------
        before : bool
            Also draw the graph as you wrote it, beside the compiled one.  Choosing a node marks
            the corresponding nodes of the other graph.

        Returns
        -------
        Picture
            With the methods ``html()``, ``svg()`` and ``save(path)``.

        Raises
        ------
        ValueError
            If `before` is true and the rewriting was not recorded.  Compile the function under a
            guard or inside :func:`theanoguard.track_provenance`.

        Examples
        --------
        >>> from theanoguard import inspect_graph
        >>> import pytensor.tensor as pt
        >>> inspect_graph(pt.log(pt.dvector("x"))).picture()
        <Picture of graph: 1 node>
        """
        subject = self._subject
        with seldom_collecting():
            if before:
                return pictures(subject.function, self.model, subject.wanted, subject.title)
            return picture(self.written or self.model, subject.wanted, subject.title)

    @checked
    def save(self, path: str | PathLike[str]) -> None:
        """Write the graph as a page that opens in any browser.

        Parameters
        ----------
        path : str or path-like
        """
        text = page.document(self.html(), self._subject.title)
        write_atomically(Path(path), text.encode())


def _traceback_text(error: BaseException) -> str:
    """Return the traceback of an error as plain text, its beginning left out where it is long."""
    text = _FRAME.sub(_with_cell, "".join(traceback.format_exception(error)))
    return text if len(text) <= TRACEBACK else f"...{text[-TRACEBACK:]}"


_FRAME = re.compile(r'^( *)File "(.+)", line (\d+), in (.+)$', re.MULTILINE)


def _with_cell(frame: re.Match[str]) -> str:
    """Return the line of a frame; for a notebook, the cell instead of the kernel's file."""
    indent, file, line, function = frame.groups()
    cell = notebook_cell(file)
    if cell is None:
        return frame[0]
    return indent + place_text(SourceLine(file, int(line), function, "", cell))
