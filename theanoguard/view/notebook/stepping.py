"""The stepper as a widget (extra ``notebook``)."""

import html

import numpy as np

from theanoguard._provenance import lookup
from theanoguard._provenance.places import printable
from theanoguard.monitor.stepper import is_bad
from theanoguard.view.inspecting.facts import cut
from theanoguard.view.model import statistics

BINS = 30
_WIDTH, _HEIGHT = 180, 36
_STYLE = """<style>
.tg-step table { border-collapse: collapse; } .tg-step { overflow-x: auto; }
.tg-step :is(td, th) { padding: 0.2em 0.8em 0.2em 0; text-align: start; vertical-align: top; }
.tg-step .tg-wrong { color: #c8282f; font-weight: 700; }
.tg-step pre { margin: 0; max-width: 32em; overflow-x: auto; white-space: pre; }
</style>"""


class StepView:
    """A slider over the nodes of a call, and what each has read and written.

    Parameters
    ----------
    stepper : Stepper

    Attributes
    ----------
    slider : ipywidgets.IntSlider
        Number of the step in view; moving it forward runs nodes.
    shown : ipywidgets.HTML
    box : ipywidgets.VBox

    Raises
    ------
    ImportError
        If ipywidgets are not installed.
    """

    def __init__(self, stepper):
        try:
            import ipywidgets
        except ImportError as error:
            raise ImportError(
                "the stepper's widget needs ipywidgets, which is not installed.\n"
                'Install it with: pip install "theanoguard[notebook]", or use '
                "theanoguard.step_through."
            ) from error
        self.stepper = stepper
        self.error = None
        self._last = 0
        self._note = None
        count = max(len(stepper.fgraph.apply_nodes), 1)
        self.slider = ipywidgets.IntSlider(
            value=0,
            min=0,
            max=count,
            description="Step",
            continuous_update=False,
            layout=ipywidgets.Layout(width="60%"),
        )
        self.slider.observe(lambda change: self.move_to(change["new"]), names="value")
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
        self.box = ipywidgets.VBox([self.slider, ipywidgets.HBox(buttons), self.shown])
        self._show()

    def _repr_mimebundle_(self, **kwargs):
        return self.box._repr_mimebundle_(**kwargs)

    def move_to(self, number):
        """Bring a step into view; run what has not been run.

        Parameters
        ----------
        number : int
            From 1.  Steps that the stepper keeps no more cannot be reached.
        """

        if number != self._number:
            self._do(lambda: self.stepper.goto(max(number, 1)))

    @property
    def _number(self):
        return self.stepper.step.number if self.stepper.step else 0

    def _do(self, act):
        self._note = None
        try:
            act()
        except Exception as error:  # whatever the node raises is shown with it
            self.error = error
        self._show()

    def _next_bad(self):
        if self.stepper.until(bad=True) is None:
            self._note = "No later step has a bad value. To the end completes the call."

    def _show(self):
        self._last = max(self._last, self._number)
        if self.stepper.done:  # nodes of branches that were not taken have not been run
            self.slider.max = self._last
        self.slider.value = self._number
        self.shown.value = f'{_STYLE}<div class="tg-step">{"".join(self._html())}</div>'

    def _html(self):
        stepper = self.stepper
        if stepper.step is None:
            yield f"<p>{_text(stepper.where())}: move the slider, or press Next.</p>"
            return
        node = stepper.node
        found = lookup(stepper.fgraph, node)
        line = f": <code>{_text(found.source)}</code>" if found.source is not None else ""
        yield f"<p>Step {self._number}, <b>{_text(cut(node.op))}</b>{line}</p>"
        yield "<table><tr><th></th><th>Variable</th><th>Values</th><th>Histogram</th></tr>"
        for word, variables, values in (
            ("input", node.inputs, stepper.inputs),
            ("output", node.outputs, stepper.outputs),
        ):
            for i, (variable, value) in enumerate(zip(variables, values, strict=False)):
                yield self._row(f"{word} {i}", variable, value)
        yield "</table>"
        if self._note is not None:
            yield f"<p>{_text(self._note)}</p>"
        if self.error is not None:
            yield f'<p class="tg-wrong">{_text(type(self.error).__name__)}: {_text(self.error)}</p>'
        elif stepper.done:
            yield f"<p>The call is complete: {_text(excerpt(stepper.result))}</p>"

    def _row(self, word, variable, value):
        known = lookup(self.stepper.fgraph, variable)
        name = variable.name or (known.name if known.own_name else None) or ""
        found = statistics(value)
        wrong = ' class="tg-wrong"' if is_bad(value) else ""
        shape = f"shape {found.shape}" if found is not None else ""
        return (
            f"<tr><td>{word}</td><td><i>{_text(name)}</i> {_text(variable.type)} {shape}</td>"
            f"<td><span{wrong}>{_text(found or '')}</span><pre>{_text(excerpt(value))}</pre></td>"
            f"<td>{histogram(value)}</td></tr>"
        )


def _text(value):
    return html.escape("" if value is None else "\n".join(map(printable, str(value).split("\n"))))


def excerpt(value, most=300):
    """Return the first and last elements of a value as text of at most `most` characters.

    Examples
    --------
    >>> excerpt(np.arange(1000))
    '[  0   1   2 ... 997 998 999]'
    """
    if isinstance(value, np.ndarray):
        shown = np.array2string(value, threshold=20, precision=5)
    else:
        with np.printoptions(threshold=20, precision=5):
            shown = str(value)
    return shown if len(shown) <= most else f"{shown[:most]}..."


def histogram(value):
    """Return the histogram of a value's finite elements as a small SVG picture.

    Below it stands how many elements are NaN or infinite, and thus in no bar.

    Parameters
    ----------
    value : object

    Returns
    -------
    str
        Empty where there are not at least two different finite numbers.

    Examples
    --------
    >>> histogram(np.array([1.0, 1.0])), histogram(np.array([1.0, 2.0]))[:4]
    ('', '<svg')
    """
    array = np.asarray(value.data if hasattr(value, "tocsr") else value)
    if array.dtype.kind not in "biuf":
        return ""
    finite = array[np.isfinite(array)].astype("float64")
    counts = ((np.isnan(array).sum(), "NaN"), (np.isinf(array).sum(), "Inf"))
    left_out = ", ".join(f"{n} {word}" for n, word in counts if n)
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
    if left_out:
        ends += f"; not shown: {left_out}"
    return (
        f'<svg role="img" aria-label="histogram of {finite.size} values, {ends}" '
        f'width="{_WIDTH}" height="{_HEIGHT}" fill="currentColor">{bars}</svg><br>'
        f"<small>{ends}</small>"
    )
