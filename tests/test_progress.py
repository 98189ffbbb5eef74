"""Long searches say on a terminal that they are running."""

import io
import sys

import pytest

import theanoguard
from theanoguard import _progress


class Terminal(io.StringIO):
    """Standard error that tells when something has been written."""

    def isatty(self):
        return True


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_search_shows_a_line_on_a_terminal_and_removes_it(is_terminal, monkeypatch):
    stream = Terminal() if is_terminal else io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(_progress, "FIRST", 0.001)

    def wait():
        while is_terminal and not stream.getvalue():
            pass

    with _progress.searching("lint"), _progress.searching("precision"):
        wait()
    shown = stream.getvalue()
    assert shown.startswith("\rtheanoguard lint: ") == is_terminal
    assert "precision" not in shown
    assert not shown or shown.rpartition("\r")[0].rpartition("\r")[2].isspace()


@pytest.mark.parametrize("name", ["compare", "lint", "precision"])
def test_searches_have_the_line_and_raise_as_without_it(name, monkeypatch):
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    with pytest.raises((TypeError, ValueError)):
        getattr(theanoguard, name)(3, {})
    assert not stream.getvalue()
