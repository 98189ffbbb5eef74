"""A figure that a notebook shows without ``%matplotlib inline``; imported where it is used."""

import io
from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure


class ShownFigure(Figure):
    """A figure with a picture of its own; ``%matplotlib inline`` goes before it."""

    def _repr_png_(self) -> bytes:
        file = io.BytesIO()
        self.savefig(file, format="png")
        return file.getvalue()


def drawn(
    lines: Mapping[str, tuple[Sequence[float], Sequence[float]]], xlabel: str, ylabel: str
) -> ShownFigure:
    """Return a figure of lines, each the x and the y of its points, with a legend."""
    figure = ShownFigure(layout="constrained")
    axes = figure.add_subplot(xlabel=xlabel, ylabel=ylabel)
    for name, points in lines.items():
        if points[0]:
            # (a label that begins with "_" would be left out of the legend)
            axes.plot(*points, label=f"\u200b{name}" if name[:1] == "_" else name)
    if axes.lines:
        axes.legend()
    return figure
