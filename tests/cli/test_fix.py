"""``theanoguard fix``: lines of a script are changed to formulas of the same value."""

import os
import subprocess
import sys

import pytest

from theanoguard.cli.fix import Change, Edit, edits_of

pytestmark = pytest.mark.on_30

SCRIPT = """\
import numpy as np
import pytensor
import pytensor.tensor as pt

def evidence(q):
    return pt.log(q.prod())  # of all observations

q, y = pt.dvector("q"), pt.dvector("y")
f = pytensor.function([q, y], [evidence(q), y / y.sum()], mode="FAST_COMPILE")
print(f(np.full(40, 1e-9), np.zeros(2)))
"""


def fix(folder, *arguments):
    command = [sys.executable, "-m", "theanoguard", "fix", *arguments, "model.py"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


def test_lines_are_counted_as_python_counts_them(tmp_path):
    """No line ends at a form feed, which old files have between pages, nor at these others."""
    pages = "# page \x0c one\nends = '\u2028\x1c\x85'\n\x0c\n"
    script = tmp_path / "model.py"
    script.write_text(pages + SCRIPT, "utf-8")
    done = fix(tmp_path, "--write", "--run")
    assert script.read_text("utf-8") == pages + SCRIPT.replace(
        "pt.log(q.prod())", "pt.log(q).sum()"
    )
    assert "model.py:12: not fixed" in done.stderr


@pytest.mark.parametrize("option", [(), ("--run",)], ids=["lint", "run"])
def test_script_is_fixed_once(tmp_path, option):
    script = tmp_path / "model.py"
    script.write_text(SCRIPT)
    script.chmod(0o755)
    shown = fix(tmp_path, "--diff", *option)
    assert shown.returncode == 1, shown.stderr
    assert "-    return pt.log(q.prod())  # of all observations" in shown.stdout
    assert "+    return pt.log(q).sum()  # of all observations" in shown.stdout
    assert script.read_text() == SCRIPT
    done = fix(tmp_path, "--write", *option)
    assert done.returncode == 0, done.stderr
    assert script.read_text() == SCRIPT.replace("pt.log(q.prod())", "pt.log(q).sum()")
    assert os.access(script, os.X_OK)
    assert "model.py:9: not fixed: no formula of the same value is known." in done.stderr
    again = fix(tmp_path, *option)
    assert again.returncode == 0, again.stderr
    assert again.stdout == ""
    assert "0 lines can be changed" in again.stderr


LONG = """\
import numpy as np
import pytensor
import pytensor.tensor as pt

q, h, r = pt.dvector("q"), pt.dmatrix("h"), pt.dvector("r")
p = (
    pt.exp(h)
    / pt.exp(h).sum(axis=1, keepdims=True)
)
losses = dict(
    first=pt.log(q.prod()),
    second=-pt.log(
        p
    ).sum(),  # of all rows
    third=pt.log(
        r.prod(  # of all
        )
    ),
)
f = pytensor.function([q, h, r], list(losses.values()), mode="FAST_COMPILE")
f(np.full(40, 1e-9), np.array([[0.0, 900.0]]), np.full(40, 1e-9))
"""


def test_expressions_over_several_lines(tmp_path):
    script = tmp_path / "model.py"
    script.write_text(LONG)
    done = fix(tmp_path, "--write", "--run")
    fixed = LONG.replace(
        "-pt.log(\n        p\n    ).sum()", "-pt.special.log_softmax(h, axis=1).sum()"
    )
    assert script.read_text() == fixed.replace("pt.log(q.prod())", "pt.log(q).sum()")
    assert "model.py:15: not fixed: no line can be shown to be right." in done.stderr
    again = fix(tmp_path, "--run")
    assert "0 lines can be changed" in again.stderr


OLD, NEW = "y = pt.log(p.prod())", "y = pt.log(p).sum()"
REFUSED = {
    "not in the file": ("y = 1\n", OLD, NEW),
    "2 lines of the file read": (f"\n{OLD}\nif z:\n    {OLD}\n", OLD, NEW),
    "has several lines": (f"f(\n    {OLD}\n)\n", OLD, f"q = p\n{NEW}"),
}


@pytest.mark.parametrize(
    ("top", "imported"),
    [
        ('"""A model."""\nfrom numpy import (\n    ones,\n)\n', "{top}{new}"),
        ("from __future__ import annotations\n", "{top}{new}"),
        ("import theanoguard.stable\n", "{top}"),
    ],
)
def test_import_of_a_formula_goes_to_the_top(tmp_path, top, imported):
    body = f"class Model:\n    def loss(self, p):\n        {OLD}  # of all\n        return y\n"
    (tmp_path / "model.py").write_text(top + body)
    new = "import theanoguard.stable"
    line = len(top.splitlines()) + 3
    old, edited = f"{OLD}  # of all", f"{new}\n{NEW}  # of all"
    change = Change(tmp_path / "model.py", line, old, edited, "log")
    edits = edits_of([(change,)])
    [edit] = edits.files.values()
    assert not edits.refused and edit.count == 1
    expected = imported.format(top=top, new=f"{new}\n") + body.replace(OLD, NEW)
    assert "".join(edit.new_lines) == expected


@pytest.mark.parametrize("why", REFUSED)
def test_lines_that_are_not_changed(tmp_path, why):
    text, old, new = REFUSED[why]
    (tmp_path / "model.py").write_text(text)
    change = Change(tmp_path / "model.py", 1, old, new, "log")
    edits = edits_of([(change,), (change,)])
    assert not edits.files
    [message] = edits.refused
    assert why in message


def test_two_changes_of_one_line(tmp_path):
    (tmp_path / "model.py").write_text(f"{OLD}\n")
    changes = [Change(tmp_path / "model.py", 1, OLD, new, "log") for new in (NEW, "y = 0", NEW)]
    edits = edits_of([(change,) for change in changes])
    [edit], [message] = edits.files.values(), edits.refused
    assert edit.new_lines == [f"{NEW}\n"]
    assert "another change is on the same line" in message


def test_encoding_and_ends_of_lines_are_kept(tmp_path):
    path = tmp_path / "model.py"
    path.write_bytes(f"# coding: latin-1\r\nname = '\xe9'\r\n{OLD}  # \xe9\r\n".encode("latin-1"))
    edit = Edit.of(path)
    old, new = f"{OLD}  # \xe9", f"import theanoguard\n{NEW}  # \xe9"
    assert edit.add(Change(path, 3, old, new, "log")) == ""
    edit.write()
    after = f"# coding: latin-1\r\nname = '\xe9'\r\nimport theanoguard\r\n{NEW}  # \xe9\r\n"
    assert path.read_bytes() == after.encode("latin-1")


def test_file_that_has_changed_meanwhile(tmp_path):
    path = tmp_path / "model.py"
    path.write_text(f"{OLD}\n")
    edit = Edit.of(path)
    assert edit.add(Change(path, 1, OLD, NEW, "log")) == ""
    path.write_text(f"{OLD}\nz = 2\n")
    with pytest.raises(ValueError, match="has changed while the program ran"):
        edit.write()
    assert path.read_text() == f"{OLD}\nz = 2\n"


def test_script_that_changes_itself(tmp_path):
    text = SCRIPT + "open(__file__, 'a').write('# more')\n"
    (tmp_path / "model.py").write_text(text)
    done = fix(tmp_path, "--write", "--run")
    assert done.returncode == 2
    assert "has changed while the program ran" in done.stderr
    assert (tmp_path / "model.py").read_text() == text + "# more"


def test_changes_of_one_fault_are_made_together(tmp_path):
    (tmp_path / "model.py").write_text(f"{OLD}\nz = 1\n")
    pairs = [(OLD, NEW), ("z = 2", "z = 3")]
    repair = tuple(Change(tmp_path / "model.py", 1, *pair, "log") for pair in pairs)
    edits = edits_of([repair])
    assert not edits.files
    [message] = edits.refused
    assert "not in the file" in message


NOT_SEARCHED = """\
import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.compile.mode import Mode

q = pt.dvector("q")
f = pytensor.function([q], pt.log(q.prod()), mode=Mode("py", "fast_compile"))
x = pt.dmatrix("x")
g = pytensor.function([x], pt.linalg.inv(x) + pt.specify_shape(x, (2, 3)))
f(np.full(40, 1e-9))
"""


@pytest.mark.parametrize(
    ("option", "line", "why"),
    [((), 9, "lint cannot run the graph"), (("--run",), 7, "cannot be guarded")],
)
def test_functions_that_were_not_searched_are_named(tmp_path, option, line, why):
    (tmp_path / "model.py").write_text(NOT_SEARCHED)
    done = fix(tmp_path, *option)
    [said] = [text for text in done.stderr.splitlines() if "not searched" in text]
    assert f"model.py:{line}: not searched: " in said and why in said
    assert done.returncode == 2
