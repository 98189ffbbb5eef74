"""A figure that a notebook shows without ``%matplotlib inline``; imported where it is used."""

import io

from matplotlib.figure import Figure


class ShownFigure(Figure):
    """A figure with a picture of its own; ``%matplotlib inline`` goes before it."""

    def _repr_png_(self) -> bytes:
        file = io.BytesIO()
        self.savefig(file, format="png")
        return file.getvalue()
