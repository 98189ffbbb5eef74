"""What a watch, or the record of a function's calls, has collected, as a live plot."""

import html
import threading
import weakref
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from theanoguard._text import printable
from theanoguard.guard.history import Recording
from theanoguard.training import Watch
from theanoguard.training.watch import Kind

PANELS: dict[Kind, str] = {"weight": "Norms of weights", "gradient": "Norms of gradients"}
MOST_POINTS = 300
MOST_STRIPS = 60
MOST_LINES = 12
MOST_MARKS = 100
_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 420, 200, 60, 20
COLORS = ("#591fd6", "#c01b60", "#1e7bd2", "#e27132", "#1bc085", "#e3be3b")
"""Of the lines.  Each is lighter than the one before, so that no color has to be told apart."""

Mark: TypeAlias = tuple[int, str]  # a step, and what happened there

Lines: TypeAlias = Mapping[str, tuple[list[int], list[float]]]
"""The steps and the values of each line, by its name."""


def plot_html(shown: Watch | Recording) -> str:
    """Return norms by step as pictures, with marks where something happened.

    - `shown`: watch or Recording of a watch, the norms of weights and gradients; of a recording,
      those of variables and of their updates.
    - Returns: HTML with two SVG pictures on logarithmic scales.  Names that something was said of
      come first, then those with the largest last norms, :data:`MOST_LINES` at most.  Only the last
      :data:`MOST_MARKS` events are marked.  The pointer shows the values of a step.
    """
    panels: dict[str, Lines]
    recording = shown if isinstance(shown, Recording) else shown.recording
    since = None if recording is None else recording.since()
    if isinstance(shown, Recording):
        signs = shown.signs()
        marks = [(sign.call, f"{sign.name}: {sign.text}") for sign in signs]
        shares = shown.lines("bad").items()
        names = {sign.name for sign in signs} | {n for n, (_, v) in shares if v[-1] > 0}
        panels = {"Norms of variables": shown.lines("norm"), "Updates": shown.lines("moved")}
        made = shown.calls
    else:
        marks, names = _marks(shown), {event.variable or "" for event in shown.events}
        panels = {title: _lines(shown, kind) for kind, title in PANELS.items()}
        made = shown.steps
    told = "".join(f"<li>{_text(text)}</li>" for _, text in marks[-5:])
    last = f"<p>{len(marks)} events, the last:</p><ul>{told}</ul>" if marks else ""
    if since is not None and recording is not None:
        # (the function may have been called before it was watched)
        marks = [*marks[1 - MOST_MARKS :], (since.call + made - recording.calls, str(since))]
        names, last = names | {since.name}, f"<p>{_text(since)}</p>{last}"
    marks = marks[-MOST_MARKS:]
    parts = [_panel(title, lines, names, marks) for title, lines in panels.items()]
    return f'<div class="tg-watch" style="display:flex;flex-wrap:wrap">{"".join(parts)}</div>{last}'


def _text(value: object) -> str:
    return html.escape(printable(str(value)))


def _lines(watch: Watch, kind: Kind) -> Lines:
    found = {name: watch.series(name, kind) for name in watch.names}
    return {name: series for name, series in found.items() if series[0]}


def _marks(watch: Watch) -> list[Mark]:
    """Steps at which events happened, and what they were, oldest first."""
    records = {(r.epoch, r.batch): r.step for r in watch.records}
    times = sorted(records)
    marks = []
    for event in watch.events:
        # Statistics are not gathered at every step: the last one before it.
        at = bisect_right(times, (event.epoch or 0, event.batch or 0)) - 1
        step = records[times[max(at, 0)]] if times else watch.steps
        name = event.what
        marks.append((step, f"{event.kind} in {name}, epoch {event.epoch}, batch {event.batch}"))
    return marks


def _panel(title: str, series: Lines, bad: Collection[str], marks: Sequence[Mark]) -> str:
    def rank(name: str) -> tuple[bool, float]:
        last = series[name][1][-1]
        return name not in bad and bool(np.isfinite(last)), -np.nan_to_num(last)

    shown = sorted(series, key=rank)[:MOST_LINES]
    numbers = np.array([norm for name in shown for norm in series[name][1]], dtype="float64")
    numbers = numbers[np.isfinite(numbers) & (numbers > 0)]
    if not numbers.size:
        return f"<p>{title}: nothing yet.</p>"
    low, high = np.floor(np.log10(numbers.min())), np.ceil(np.log10(numbers.max()))
    steps = sorted({step for name in shown for step in series[name][0]})
    first = min([steps[0], *(step for step, _ in marks)])
    last = max([steps[-1], *(step for step, _ in marks)])

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
    styles = dict(zip(shown, _styles(), strict=False))
    for name in shown:
        # A norm that is not finite, or zero, has no place on the scale: the line is broken there.
        for run in _runs(_thinned(list(zip(*series[name], strict=True)), MOST_POINTS)):
            points = " ".join(f"{x(step):.1f},{y(norm):.1f}" for step, norm in run)
            parts.append(f'<polyline points="{points}" fill="none" {styles[name]}/>')
    values = {name: dict(zip(*series[name], strict=True)) for name in shown}
    strips = _thinned(steps, MOST_STRIPS)
    width = (_WIDTH - _LEFT) / len(strips)
    for step in strips:
        told = [f"{name}: {at[step]:.4g}" for name, at in values.items() if step in at]
        text = "\n".join(map(_text, [f"step {step}", *told]))
        parts.append(
            f'<rect x="{x(step) - width / 2:.1f}" width="{width:.1f}" height="{_HEIGHT}" '
            f'fill="transparent"><title>{text}</title></rect>'
        )
    for step, text in marks:
        place = f'x1="{x(step):.1f}" x2="{x(step):.1f}" y1="0" y2="{_HEIGHT}"'
        parts.append(f'<line {place} stroke="#c8282f"><title>{_text(text)}</title></line>')
    keys = "".join(
        f'<span style="white-space:nowrap;margin-right:1em"><svg width="24" height="10">'
        f'<line class="tg-key" x2="24" y1="5" y2="5" stroke-width="3" {style}/></svg> '
        f"{_text(name)}{'' if rank(name)[0] else ' (bad)'}</span>"
        for name, style in styles.items()
    )
    more = f"and {len(series) - len(shown)} more" if len(series) > len(shown) else ""
    return (
        f'<figure style="margin:0 1em 0 0;max-width:{_WIDTH}px"><figcaption>{title}: '
        f"{keys}{more}</figcaption>"
        f'<svg role="img" aria-label="{title}" width="{_WIDTH}" height="{_HEIGHT + 16}" '
        f'font-size="11" fill="currentColor">{"".join(parts)}</svg></figure>'
    )


def _styles() -> Iterator[str]:
    """Yield how lines are drawn: in each color, and then in each color dashed."""
    for dash in ("", ' stroke-dasharray="4"'):
        for color in COLORS:
            yield f'stroke="{color}"{dash}'


def _thinned(items: list, most: int) -> list:
    return items[:: -(-len(items) // most)]


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
    """The plot of a watch or a recording, as a widget that is redrawn while the training runs.

    - `seconds`: how long it waits between two looks at the watch.
    - Raises ``ImportError``: if ipywidgets are not installed.
    """

    def __init__(self, watch: Watch | Recording, seconds: float = 1.0) -> None:
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
    watch_of: weakref.ref[Watch | Recording], shown: Any, ended: threading.Event, seconds: float
) -> None:
    drawn: tuple[int, int] | None = None
    while not ended.wait(seconds) and (watch := watch_of()) is not None:
        if isinstance(watch, Recording):
            state = watch.calls, 0
        else:
            state = watch.steps, len(watch.events)
        if state != drawn:
            shown.value, drawn = plot_html(watch), state
        del watch
