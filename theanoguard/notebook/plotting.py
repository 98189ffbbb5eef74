"""The norms that a :class:`~theanoguard.training.Watch` has collected, as a live plot."""

import html
import threading
import weakref
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from theanoguard._text import printable
from theanoguard.training import Watch
from theanoguard.training.watch import Kind

PANELS: dict[Kind, str] = {"weight": "Norms of weights", "gradient": "Norms of gradients"}
MOST_POINTS = 300
MOST_LINES = 12
MOST_MARKS = 100
_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 420, 200, 60, 20
_COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")


def plot_html(watch: Watch) -> str:
    """Return the norms of weights and gradients by step, with marks where events happened.

    Returns
    -------
    str
        HTML with one SVG picture for weights and one for gradients, on logarithmic scales.  If
        there are more than :data:`MOST_LINES` parameters, only those with the largest last norms
        are drawn, and only the last :data:`MOST_MARKS` events are marked.
    """
    marks = _marks(watch)
    drawn = marks[-MOST_MARKS:]
    parts = [_panel(watch, kind, title, drawn) for kind, title in PANELS.items()]
    told = "".join(f"<li>{_text(text)}</li>" for _, text in marks[-5:])
    last = f"<p>{len(marks)} events, the last:</p><ul>{told}</ul>" if marks else ""
    return f'<div class="tg-watch" style="display:flex;flex-wrap:wrap">{"".join(parts)}</div>{last}'


def _text(value: object) -> str:
    return html.escape(printable(str(value)))


def _marks(watch: Watch) -> list[tuple[int, str]]:
    """Steps at which events happened, and what they were, oldest first."""
    records = {(r.epoch, r.batch): r.step for r in watch.records}
    times = sorted(records)
    marks = []
    for event in watch.events:
        # Statistics are not gathered at every step: the last one before it.
        at = bisect_right(times, (event.epoch or 0, event.batch or 0)) - 1
        step = records[times[max(at, 0)]] if times else watch.steps
        name = event.variable or event.op or event.role
        marks.append((step, f"{event.kind} in {name}, epoch {event.epoch}, batch {event.batch}"))
    return marks


def _panel(watch: Watch, kind: Kind, title: str, marks: Sequence[tuple[int, str]]) -> str:
    series = {name: watch.series(name, kind) for name in watch.names}
    series = {name: (steps, norms) for name, (steps, norms) in series.items() if steps}
    shown = sorted(series, key=lambda name: -np.nan_to_num(series[name][1][-1]))[:MOST_LINES]
    steps = [step for name in shown for step in series[name][0]] + [step for step, _ in marks]
    norms = np.array([norm for name in shown for norm in series[name][1]], dtype="float64")
    norms = norms[np.isfinite(norms) & (norms > 0)]
    if not norms.size:
        return f"<p>{title}: nothing yet.</p>"
    low, high = np.floor(np.log10(norms.min())), np.ceil(np.log10(norms.max()))
    first, last = min(steps), max(steps)

    def x(step: float) -> float:
        return _LEFT + (_WIDTH - _LEFT) * (step - first) / max(last - first, 1)

    def y(norm: float) -> float:
        share = (np.log10(norm) - low) / max(high - low, 1)
        return (_HEIGHT - _BOTTOM) * (1 - share) + 4

    parts = [
        f'<text x="0" y="{y(10.0**edge) + 4:.0f}">1e{edge:+.0f}</text>' for edge in {low, high}
    ]
    parts += [
        f'<text x="{_LEFT}" y="{_HEIGHT + 12}">step {first}</text>',
        f'<text x="{_WIDTH}" y="{_HEIGHT + 12}" text-anchor="end">{last}</text>',
    ]
    for step, text in marks:
        place = f'x1="{x(step):.1f}" x2="{x(step):.1f}" y1="0" y2="{_HEIGHT}"'
        parts.append(f'<line {place} stroke="#c8282f"><title>{_text(text)}</title></line>')
    for number, name in enumerate(shown):
        color = _COLORS[number % len(_COLORS)]
        dash = ' stroke-dasharray="4"' if number >= len(_COLORS) else ""
        # A norm that is not finite, or zero, has no place on the scale: the line is broken there.
        pairs = list(zip(*series[name], strict=True))
        pairs = pairs[:: -(-len(pairs) // MOST_POINTS)]
        for run in _runs(pairs):
            points = " ".join(f"{x(step):.1f},{y(norm):.1f}" for step, norm in run)
            parts.append(
                f'<polyline points="{points}" fill="none" stroke="{color}"{dash}>'
                f"<title>{_text(name)}</title></polyline>"
            )
    keys = ", ".join(
        f'<span style="color:{_COLORS[number % len(_COLORS)]}">{_text(name)}</span>'
        for number, name in enumerate(shown)
    )
    more = f" and {len(series) - len(shown)} more" if len(series) > len(shown) else ""
    return (
        f'<figure style="margin:0 1em 0 0"><figcaption>{title}: {keys}{more}</figcaption>'
        f'<svg role="img" aria-label="{title}" width="{_WIDTH}" height="{_HEIGHT + 16}" '
        f'font-size="11" fill="currentColor">{"".join(parts)}</svg></figure>'
    )


def _runs(pairs: Iterable[tuple[int, float]]) -> Iterator[list[tuple[int, float]]]:
    """Yield the stretches of pairs whose norm is finite and positive."""
    run: list[tuple[int, float]] = []
    for step, norm in pairs:
        if np.isfinite(norm) and norm > 0:
            run.append((step, norm))
        elif run:
            yield run
            run = []
    if run:
        yield run


class WatchPlot:
    """The plot of a watch, as a widget that is redrawn while the training runs.

    Parameters
    ----------
    seconds : float
        How long it waits between two looks at the watch.

    Attributes
    ----------
    shown : ipywidgets.HTML

    Raises
    ------
    ImportError
        If ipywidgets are not installed.
    """

    def __init__(self, watch: Watch, seconds: float = 1.0) -> None:
        try:
            import ipywidgets
        except ImportError as error:
            raise ImportError(
                "the live plot needs ipywidgets, which is not installed.\n"
                "Install it with: pip install ipywidgets, or display the watch itself."
            ) from error
        self.shown = ipywidgets.HTML(plot_html(watch))
        self._ended = threading.Event()
        # The thread keeps no watch alive.
        arguments = (weakref.ref(watch), self.shown, self._ended, seconds)
        self._thread = threading.Thread(target=_follow, args=arguments, daemon=True)
        self._thread.start()

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        return self.shown._repr_mimebundle_(**kwargs)

    def stop(self) -> None:
        """Stop redrawing it."""
        self._ended.set()
        self._thread.join()


def _follow(
    watch_of: weakref.ref[Watch], shown: Any, ended: threading.Event, seconds: float
) -> None:
    drawn: tuple[int, int] | None = None
    while not ended.wait(seconds) and (watch := watch_of()) is not None:
        state = (watch.steps, len(watch.events))
        if state != drawn:
            shown.value, drawn = plot_html(watch), state
        del watch
