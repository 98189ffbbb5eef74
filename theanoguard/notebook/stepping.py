"""The stepper as a widget (extra ``notebook``)."""

import html
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from theanoguard._provenance import lookup
from theanoguard._provenance.places import source_text
from theanoguard._text import cut, cut_apart, printable
from theanoguard.monitor import Stepper
from theanoguard.monitor.operands import Operand, counted, made_by, operands, short, source_around
from theanoguard.view.inspecting import page

BINS = 30
CONTEXT = 2
_WIDTH, _HEIGHT = 90, 22
_HERE = Path(__file__).parent
STYLE = (_HERE / "stepping.css").read_text(encoding="utf-8")


class StepView:
    """A timeline of the nodes of a call, with the values that each node read and wrote.

    - `timeline`: its `value` is the number of the current step; moving it forward runs nodes.  Its
      `bad` has the steps with NaN or Inf in an output.
    - Raises ``ImportError``: if ipywidgets or anywidget are not installed.
    """

    def __init__(self, stepper: Stepper) -> None:
        try:
            import ipywidgets

            timeline = _timeline_class()
        except ImportError as error:
            raise ImportError(
                f"the stepper's widget needs {error.name}, which is not installed.\n"
                "Install it with: pip install ipywidgets anywidget, "
                "or use theanoguard.step_through."
            ) from error
        self.stepper = stepper
        self.error: Exception | None = None
        self._last = 0
        self._note: str | None = None
        self._kept: Any = None
        self._name = page.unique("tg-kept")
        self.timeline = timeline(max=max(len(stepper.fgraph.apply_nodes), 1))
        self.timeline.add_class(f"{self._name}-live")
        self.timeline.observe(lambda change: self.move_to(change["new"]), names="value")
        buttons = []
        for text, act in [
            ("Back", stepper.back),
            ("Next", stepper.next),
            ("Next bad", self._next_bad),
            ("To the end", stepper.run),
        ]:
            button = ipywidgets.Button(description=text, layout=ipywidgets.Layout(width="auto"))
            button.on_click(lambda _, act=act: self._do(act))
            buttons.append(button)
        self.shown = ipywidgets.HTML()
        self.box = ipywidgets.VBox([self.timeline, ipywidgets.HBox(buttons), self.shown])
        self._show()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.stepper.where()}>"

    def _ipython_display_(self) -> None:
        """Show the widget, and as HTML what it shows, for readers without a kernel."""
        from IPython.display import display

        widget = {**self.box._repr_mimebundle_(), "text/plain": repr(self), "text/html": ""}
        display(widget, raw=True)
        self._kept = display(self._static(), raw=True, display_id=True)

    def _static(self) -> dict[str, str]:
        """Return what the widget shows, seen only where the widget has no kernel."""
        name, lost = self._name, ".jupyter-widgets-disconnected"
        output = f".jp-OutputArea-child:has(+ .jp-OutputArea-child #{name})"
        hidden = (
            f":root:has(.{name}-live:not({lost} *) .tg-timeline) #{name}",
            f"{output}:has({lost})",  # (after a restart of the kernel)
            f"{output} > .jupyter-widgets:not(:has(*))",  # (a message that there is no model)
        )
        style = f"{page.STYLE}{STYLE}{', '.join(hidden)} {{ display: none; }}"
        kept = f'<div id="{name}"><style>{style}</style>{self.shown.value}</div>'
        return {"text/html": kept, "text/plain": ""}

    def move_to(self, number: int) -> None:
        """Go to a step, and run the nodes up to it that have not run.

        `number` counts from 1.  Steps that the stepper no longer keeps cannot be reached.
        """

        if number != self.stepper.number:
            self._do(lambda: self.stepper.goto(max(number, 1)))

    def _do(self, act: Callable[[], object]) -> None:
        self._note = None
        try:
            act()
        except Exception as error:  # whatever the node raises is shown with it
            self.error = error
        self._show()

    def _next_bad(self) -> None:
        if self.stepper.until(bad=True) is None:
            self._note = "No later step has a bad value. To the end completes the call."

    def _show(self) -> None:
        self._last = max(self._last, self.stepper.number)
        timeline = self.timeline
        timeline.run, timeline.bad = self._last, list(self.stepper.bad_steps)
        if self.stepper.done:  # nodes of branches that were not taken have not been run
            timeline.max = self._last
        timeline.value = self.stepper.number
        # (it may be wider than the cell, and is then scrolled by the keyboard as well)
        shown = "".join(self._html())
        self.shown.value = f'<div class="tg-step" tabindex="0" role="group">{shown}</div>'
        if self._kept is not None:
            self._kept.update(self._static(), raw=True)

    def _html(self) -> Iterator[str]:
        stepper = self.stepper
        if stepper.step is None:
            yield f"<p>{_text(stepper.where())}: click a step, or press Next.</p>"
            return
        node = stepper.step.node
        found = lookup(stepper.fgraph, node)
        name = made_by(stepper.fgraph, node)
        title = f"<b>{_text(cut(name))}</b>, {_text(cut(node.op, 60))}"
        line = (
            f": <code>{_text(source_text(found.source))}</code>" if found.source is not None else ""
        )
        yield f"<p>Step {stepper.number}, {title}{line}</p>"
        if lines := list(self._source()):
            yield f"<pre>{'&#10;'.join(lines)}</pre>"
        yield "<table><tr><td></td>"
        for title in ("Name", "NaN and Inf", "Range", "Values", "Type", "Histogram"):
            yield f"<th>{title}</th>"
        yield "</tr>"
        shown = operands(stepper.fgraph, stepper.step)
        names = cut_apart([operand.name for operand in shown], 24)
        yield from map(_row, shown, names)
        yield "</table>"
        if self._note is not None:
            yield f"<p>{_text(self._note)}</p>"
        if self.error is not None:
            told = f"{type(self.error).__name__}: {self.error}"
            yield f'<pre class="tg-wrong">{_text(told).replace(chr(10), "&#10;")}</pre>'
        elif stepper.done:
            yield f"<p>The call is complete: {_text(short(stepper.result))}</p>"

    def _source(self) -> Iterator[str]:
        for number, text, is_here in source_around(self.stepper.fgraph, self.stepper.node, CONTEXT):
            shown = f"{'->' if is_here else '  '} {number:4}  {_text(text)}"
            yield f"<b>{shown}</b>" if is_here else shown


def _row(operand: Operand, name: str) -> str:
    wrong = ' class="tg-wrong"' if operand.is_bad else ""
    cells = (
        operand.verb,
        f"<i>{_text(name)}</i>",
        f"<span{wrong}>{_text(operand.bad)}</span>",
        _text(operand.range),
        f"<code>{_text(cut(short(operand.value), 40))}</code>",
        _text(operand.type),
        histogram(operand.value),
    )
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


@cache
def _timeline_class() -> Any:
    import anywidget
    import traitlets

    class Timeline(anywidget.AnyWidget):
        """The steps of a call as a bar."""

        _esm = _HERE / "timeline.js"
        _css = page.STYLE + STYLE
        value = traitlets.Int(0).tag(sync=True)
        max = traitlets.Int(1).tag(sync=True)
        run = traitlets.Int(0).tag(sync=True)
        bad = traitlets.List().tag(sync=True)

    return Timeline


def _text(value: object) -> str:
    return html.escape("" if value is None else "\n".join(map(printable, str(value).split("\n"))))


def histogram(value: Any) -> str:
    """Return the histogram of a value's finite elements as a small SVG picture.

    Beside it stands how many elements are NaN or infinite, and thus in no bar.

    Returns: empty where there are not at least two different finite numbers.

    Examples
    --------
    >>> histogram(np.array([1.0, 1.0])), histogram(np.array([1.0, 2.0]))[:4]
    ('', '<svg')
    """
    array = np.asarray(value.data if hasattr(value, "tocsr") else value)
    if array.dtype.kind not in "biuf":
        return ""
    finite = array[np.isfinite(array)].astype("float64")
    left_out = counted(value)
    if not finite.size or finite.min() == finite.max():
        return f"<small>{left_out}</small>" if left_out else ""
    # (a difference of two large numbers may overflow, half of it may not)
    scale = max(abs(finite.min()), abs(finite.max()))
    counts, edges = np.histogram(finite / scale, bins=BINS)
    width = _WIDTH / BINS
    bars = "".join(
        f'<rect x="{i * width:.1f}" y="{_HEIGHT * (1 - n / counts.max()):.1f}" '
        f'width="{width - 0.5:.1f}" height="{_HEIGHT * n / counts.max():.1f}"/>'
        for i, n in enumerate(counts)
        if n
    )
    ends = f"{finite.min():.4g} to {finite.max():.4g}"
    beside = f" <small>not shown: {left_out}</small>" if left_out else ""
    return (
        f'<svg role="img" aria-label="histogram of {finite.size} values, {ends}" '
        f'width="{_WIDTH}" height="{_HEIGHT}" fill="currentColor">{bars}</svg>{beside}'
    )
