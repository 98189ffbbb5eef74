"""``theanoguard.inspect_graph``."""

import traceback
from pathlib import Path

from theanoguard._collecting import seldom_collecting
from theanoguard._files import write_atomically
from theanoguard.guard import GuardError
from theanoguard.view.inspecting import page
from theanoguard.view.inspecting.outline import Outline
from theanoguard.view.inspecting.picture import picture, pictures
from theanoguard.view.inspecting.subject import subject_of

TRACEBACK = 15_000
"""Characters of a traceback that are kept, its end."""


def inspect_graph(thing, *, values=None, events=None, times=None):
    """Look into a graph, or into an error of the guard.

    Parameters
    ----------
    thing : Variable, Apply, Function, FunctionGraph, list of these, GuardError or GuardEvent
        Of an error as it was caught the function that raised it is shown; of one that has been
        pickled, and of an event, what they tell by themselves.
    values : mapping of Variable to array_like or Statistics, optional
        Last values.  Of a function, those that its last call has left are found without being
        asked for: all with a linker that collects no garbage (``"cvm_nogc"``), else few.
    events : mapping, GuardEvent, GuardError or list of GuardEvent, optional
        What to mark, as for :func:`theanoguard.debugprint`; of a guarded function, its last
        events by default.
    times : mapping of Apply to float, optional
        Seconds spent in each node; of a function compiled with ``profile=True`` its profile is
        read.

    Returns
    -------
    Inspection
        Which a notebook displays.

    Raises
    ------
    TypeError
        If there is nothing to look into.

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
    """What :func:`inspect_graph` has found.

    Attributes
    ----------
    model : GraphModel
        The graph as plain data.
    """

    def __init__(self, thing, subject):
        self._subject = subject
        self.model = subject.model
        self._traceback = _traceback_text(thing) if isinstance(thing, GuardError) else None

    def __repr__(self):
        return self._subject.text()

    def html(self):
        """Return it as HTML.

        Returns
        -------
        str
            One element that needs nothing else: no network, no installed extension.  Where
            scripts are not run it is nested lists to unfold.
        """
        subject = self._subject
        tree = page.tree(Outline(self.model, subject.wanted), subject.title)
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

    _repr_html_ = html

    def picture(self, before=False):
        """Draw the graph: boxes by your functions, folded where there are many nodes.

        It opens at the bad node, with what is two steps around it.  A notebook displays it; a
        click or the keyboard opens folded boxes and shows the facts of a node.

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
            If `before` is asked for, and the rewriting was not recorded.  Compile the function
            under a guard or inside :func:`theanoguard.track_provenance`.

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
            return picture(self.model, subject.wanted, subject.title)

    def save(self, path):
        """Write it into a file of its own, which any browser shows.

        Parameters
        ----------
        path : str or path-like
        """
        text = page.document(self.html(), self._subject.title)
        write_atomically(Path(path), text.encode())


def _traceback_text(error):
    """Return the traceback of an error as plain text, its beginning left out where it is long."""
    text = "".join(traceback.format_exception(error))
    return text if len(text) <= TRACEBACK else f"...{text[-TRACEBACK:]}"
