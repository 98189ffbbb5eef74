"""Reports that no command writes: their programs print what the pages say."""

import re
from pathlib import Path

import pytest

PAGES = sorted((Path(__file__).parents[2] / "docs" / "upstream" / "by_hand").glob("*.md"))

pytestmark = [pytest.mark.on_33, pytest.mark.filterwarnings("ignore")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_program_of_a_page_prints_what_the_page_says(page, capsys):
    text = page.read_text(encoding="utf-8")
    program, printed = re.search(r"```python\n(.*?)```.*?```\n(.*?)```", text, re.S).groups()
    exec(compile(program, str(page), "exec"), {})
    assert capsys.readouterr().out == printed
