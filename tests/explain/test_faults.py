"""Each program of the index of errors raises its error, and the repaired program does not."""

import re
import subprocess
import sys

import pytensor
import pytest

from theanoguard import GuardError
from theanoguard._faults import GROUPS, IMPORTS, faults, find
from theanoguard.cli.main import main
from theanoguard.explain.advice import hints

pytestmark = pytest.mark.on_33


def run(code, path):
    """Run a program as a script at `path`, so that its report quotes its lines."""
    text = f"{IMPORTS}\n{code.strip()}\n"
    path.write_text(text, encoding="utf-8")
    exec(compile(text, str(path), "exec"), {"__name__": "__main__"})


@pytest.fixture
def script(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path / "model.py"


@pytest.mark.deep  # one compilation each, of operations that the gallery also has
@pytest.mark.parametrize("fault", faults().values(), ids=faults())
def test_the_program_raises_this_error(fault, golden, script, c_backend, needs_cxx):
    with pytest.raises(Exception) as caught:
        run(fault.before, script)
    error = caught.value
    if isinstance(error, GuardError):
        assert error.explanation.cause.hint.key == fault.key
        report = str(error)
    else:  # an operation has refused its operands
        report = error.__notes__[0]
    assert report.startswith(f"{fault.message}\n")
    if pytensor.__version__.startswith("3.0"):
        return  # PyTensor 3.0 gives other paths
    text = re.sub(r"\(\d+ more operations\)", "(more operations)", report)
    own = ("  called from ", "Node: ")  # (lines of this test, and PyTensor's name of the node)
    kept = [line for line in text.splitlines() if not line.startswith(own)]
    golden(f"fault_{fault.code}", "\n".join([*kept, ""]))


@pytest.mark.deep
@pytest.mark.parametrize("fault", faults().values(), ids=faults())
def test_the_repaired_program_does_not(fault, script, needs_cxx):
    run(fault.after, script)


def test_every_hint_has_a_code():
    keys = {key for _ops, key, _when, _text in hints._TABLE}  # (not those of other tests)
    keys |= {hint.key for hint in hints.CAME_IN.values()}
    assert keys <= {*faults()}


def test_codes_are_unique_and_in_order():
    codes = [fault.code for fault in faults().values()]
    assert codes == sorted({*codes})
    assert all(re.fullmatch(r"TG\d{3}", code) and code[:3] in GROUPS for code in codes)


def test_the_command_prints_a_page(capsys):
    assert main(["explain", "tg101"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("TG101 log-zero: Logarithm of zero\n")
    assert "GuardMode()" in shown and "Message: Inf in log" in shown
    assert main(["explain", "log-zero"]) == 0
    assert capsys.readouterr().out == shown


def test_the_command_lists_all_codes(capsys):
    assert main(["explain"]) == 0
    shown = capsys.readouterr().out
    assert all(fault.code in shown and fault.title in shown for fault in faults().values())


def test_the_list_of_codes_fits_into_a_terminal(capsys, monkeypatch):
    for columns, has_names in [(80, False), (120, True)]:
        monkeypatch.setenv("COLUMNS", str(columns))
        main(["explain"])
        shown = capsys.readouterr().out
        assert max(map(len, shown.splitlines())) <= columns
        assert ("log-zero" in shown) is has_names


def test_an_unknown_code(capsys):
    assert main(["explain", "TG999"]) == 2
    assert "no fault with the code 'TG999'" in capsys.readouterr().err
    with pytest.raises(ValueError, match="TG999"):
        find("TG999")


def test_the_command_does_not_import_pytensor():
    program = "import sys; from theanoguard.cli.main import main; main(['explain', 'TG101'])"
    loaded = "print('pytensor' in sys.modules, file=sys.stderr)"
    run = [sys.executable, "-c", f"{program}; {loaded}"]
    assert subprocess.run(run, capture_output=True, text=True).stderr == "False\n"
