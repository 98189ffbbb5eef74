"""The program on the front pages, and its report: a text in the README, a picture in the site."""

import html
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import theanoguard

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.rst", ROOT / "docs" / "index.rst"]
IMAGES = ROOT / "docs" / "images"

# Pixels: the width of a character, the height of a line, and the margin.
WIDTH, HEIGHT, MARGIN = 8.4, 20, 16
# The terminal's codes ("" is plain text), and for each theme its background and the colours of the
# codes.  Each colour has a contrast of at least 6 on the background.
CODES = ("", "1;31", "38;5;30", "38;5;28", "2")
THEMES = {
    "light": ("#f6f8fa", ("#1f2328", "#b3141c", "#0757ba", "#116329", "#4d5661")),
    "dark": ("#14181d", ("#d6dbe1", "#ff8f8a", "#7ab8ff", "#6fd587", "#9aa4af")),
}


def program(page):
    """Return the program that a front page shows."""
    found = re.search(
        r"code-block:: python\n(?: +:.*\n)*\n((?:    *.*\n|\n)+)", page.read_text(encoding="utf-8")
    )
    return textwrap.dedent(found[1]).strip() + "\n"


def text_of(report):
    """Return a report without colours."""
    return re.sub(r"\x1b\[[\d;]*m", "", report)


def picture(report, theme):
    """Return a coloured report as SVG."""
    background, colors = THEMES[theme]
    fills = dict(zip(CODES, colors, strict=True))
    lines = report.split("\n")
    parts, code = [], ""
    for number, line in enumerate(lines):
        column = 0
        for escape, piece in re.findall(r"\x1b\[([\d;]*)m|([^\x1b]+)", line):
            if not piece:
                code = escape if escape != "0" else ""
                continue
            weight = ' font-weight="bold"' if code.startswith("1;") else ""
            for words in re.finditer(r"\S+(?: \S+)*", piece):
                x, y = MARGIN + (column + words.start()) * WIDTH, MARGIN + number * HEIGHT + 14
                parts.append(
                    f'<text x="{x:.1f}" y="{y}" fill="{fills[code]}"{weight}'
                    f' textLength="{len(words[0]) * WIDTH:.1f}">{html.escape(words[0])}</text>'
                )
            column += len(piece)
    columns = max(map(len, text_of(report).split("\n")))
    size = f"{columns * WIDTH + 2 * MARGIN:.0f} {len(lines) * HEIGHT + 2 * MARGIN}"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}"'
            ' font-family="ui-monospace, Menlo, Consolas, monospace" font-size="14">',
            f'<rect width="100%" height="100%" rx="6" fill="{background}"/>',
            *parts,
            "</svg>\n",
        ]
    )


@pytest.fixture(scope="module")
def report(tmp_path_factory, needs_cxx):
    """What the program prints on a terminal, behind the frames of the traceback."""
    folder = tmp_path_factory.mktemp("front_page")
    (folder / "step.py").write_text(program(PAGES[0]), encoding="utf-8")
    found = [str(Path(theanoguard.__file__).parents[1]), os.environ.get("PYTHONPATH")]
    unset = {"NO_COLOR", "PYTHON_COLORS", "COLUMNS"}
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, found))
    run = subprocess.run(
        [sys.executable, "step.py"],
        env={**environment, "FORCE_COLOR": "1"},
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 1
    printed = re.search(r"theanoguard\.GuardError(?:\x1b\[0m)?: (.*)", run.stderr, re.DOTALL)[1]
    without_links = re.sub(r"\x1b\]8;;.*?\x1b\\", "", printed.strip())
    return f"theanoguard.GuardError: {without_links}"


def test_both_front_pages_show_the_same_program():
    first, second = map(program, PAGES)
    assert first == second


def test_an_error_leaves_the_shared_variable_as_it_was(report):
    assert "w[1] = 2.03" in text_of(report)


@pytest.mark.parametrize("theme", THEMES)
def test_the_picture_shows_the_report(report, theme, request):
    path = IMAGES / f"report_{theme}.svg"
    if request.config.getoption("--update-golden"):
        path.write_text(picture(report, theme), encoding="utf-8")
    assert path.read_text(encoding="utf-8") == picture(report, theme)


def test_the_picture_has_a_text_for_those_who_do_not_see_it(report):
    first = text_of(report).partition("\n")[0].removeprefix("theanoguard.GuardError: ")
    texts = re.findall(r":alt: (.*(?:\n +[^:\s].*)*)", PAGES[1].read_text(encoding="utf-8"))
    assert len(texts) == len(THEMES)
    for text in texts:
        assert first in " ".join(text.split())


def test_the_readme_shows_the_report_as_text(report):
    block = textwrap.indent(text_of(report), "    ", lambda line: bool(line.strip()))
    assert f"::\n\n{block}\n" in PAGES[0].read_text(encoding="utf-8")


def test_the_readme_needs_no_other_file():
    """It is also shown where only its text is, as on the page of a package."""
    text = PAGES[0].read_text(encoding="utf-8")
    assert not re.findall(r"^\.\. (?:image|figure|include|literalinclude)::", text, re.MULTILINE)
