"""Reports for PyTensor's tracker: the programs print what the pages say."""

import re
import sys
from pathlib import Path

import pytensor
import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks import upstream  # noqa: E402

PAGES = sorted((ROOT / "docs" / "upstream").glob("*.md"))

pytestmark = [pytest.mark.on_33, pytest.mark.filterwarnings("ignore")]


def test_each_report_has_a_page():
    assert [page.name for page in PAGES] == sorted(report.file for report in upstream.REPORTS)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_program_of_a_page_prints_what_the_page_says(page):
    text = page.read_text(encoding="utf-8")
    release = re.search(r"^PyTensor (\S+),", text, re.M)[1]
    if pytensor.__version__ != release:
        pytest.skip(f"the page is for PyTensor {release}")
    program, printed = re.search(r"```python\n(.*?)```.*?```\n(.*?)```", text, re.S).groups()
    assert upstream.printed(program) == printed
    as_written, rewritten = (line.partition(":")[2].strip() for line in printed.split("rewritten"))
    assert as_written != rewritten
    assert "`mode.excluding(" in text
