"""Each program of the index of errors raises its error, and the repaired program does not."""

import re
import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.op import RandomVariable
from told import told

import theanoguard
from theanoguard import GuardError
from theanoguard._faults import GROUPS, IMPORTS, faults, find
from theanoguard.cli.main import main
from theanoguard.explain import failure
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
    if isinstance(error, GuardError):
        golden(f"fault_{fault.code}", told(error.explanation))
        return
    text = re.sub(r"\(\d+ more operations\)", "(more operations)", report)
    own = ("  called from ", "Node: ")  # (lines of this test, and PyTensor's name of the node)
    kept = [line for line in text.splitlines() if not line.startswith(own)]
    golden(f"fault_{fault.code}", "\n".join([*kept, ""]))


@pytest.mark.deep
@pytest.mark.parametrize("fault", faults().values(), ids=faults())
def test_the_repaired_program_does_not(fault, script, needs_cxx):
    run(fault.after, script)


LINKS = {"log": pt.exp, "logit": pt.sigmoid, "arctanh": pt.tanh}
"""From the name of a free number, such as ``log_scale``, to the number of the first program."""

AS_LOGARITHM = ("exp-overflow", "product-overflow")
"""Faults whose result is too large, so that the repaired program returns its logarithm."""


@dataclass
class Compiled:
    """A function that a program has compiled, and the arguments of its calls."""

    inputs: list
    outputs: list
    calls: list


@pytest.fixture
def compiled(monkeypatch):
    made = []
    original = pytensor.function

    def function(inputs, outputs, **kwargs):
        f = original(inputs, outputs, **kwargs)
        made.append(Compiled(inputs, [outputs], []))

        def call(*args):
            made[-1].calls.append(args)
            return f(*args)

        return call

    monkeypatch.setattr(pytensor, "function", function)
    return made


def as_in(variables, outputs, fault):
    """Return outputs of the first program as formulas of the variables of the repaired one."""
    named = {v.name: v for v in ancestors(outputs) if v.owner is None and v.name}
    own = {v.name: v for v in variables}
    formulas = {name: eval(text, {"pt": pt}, own) for name, text in fault.links.items()}
    changed = {named[name]: formula for name, formula in formulas.items()}
    for v in variables:
        kind, _, name = v.name.partition("_")
        if v.name in named:
            changed[named[v.name]] = v
        elif kind in LINKS and name in named:
            changed[named[name]] = LINKS[kind](v)
    unknown = [n for n, v in named.items() if v not in changed and not isinstance(v, Constant)]
    assert not unknown, f"{fault.code} needs links = {{{unknown[0]} = ...}} in faults.toml"
    is_logarithm = fault.key in AS_LOGARITHM
    return clone_replace([pt.log(o) if is_logarithm else o for o in outputs], changed)


def around(args):
    """Yield arguments, arguments of the same signs near them, and ordinary ones."""
    rng = np.random.default_rng(0)
    args = [np.asarray(a) for a in args]
    yield args
    for _ in range(4):
        yield [a * rng.uniform(0.3, 1, a.shape).astype(a.dtype) if is_float(a) else a for a in args]
        yield [ordinary(a, rng) for a in args]


def is_float(array):
    return array.dtype.kind == "f"


def ordinary(array, rng):
    if is_float(array):
        return rng.uniform(0.1, 0.9, array.shape).astype(array.dtype)
    return rng.integers(0, 2 if array.dtype == "int8" else 100, array.shape, array.dtype)


def compared(expected, found):
    """Assert that values agree with exact ones where those exist; return how many do."""
    there = (expected.known == "number") & (abs(expected.mid) < np.finfo(found.dtype).max)
    rtol = 1e-4 if found.dtype == "float32" else 1e-9
    np.testing.assert_allclose(found[there], expected.mid[there], rtol=rtol, atol=1e-12)
    return int(there.sum())


WITHOUT_A_VALUE = ("bad-constant", "folded-constant")
"""Faults whose first program has no value for any input."""


@pytest.mark.deep
@pytest.mark.parametrize("fault", faults().values(), ids=faults())
def test_the_repaired_program_is_the_same_function(fault, script, compiled, monkeypatch):
    """It has the exact value of the first program, where there is one, and of its own formula."""
    with pytest.raises(Exception):  # noqa: B017  (each fault has its own)
        run(fault.before, script)
    run(fault.after, script)
    before, after = compiled
    if any(v.owner and isinstance(v.owner.op, RandomVariable) for v in ancestors(after.outputs)):
        return  # (a draw has no exact value)
    monkeypatch.undo()
    plain = pytensor.function(after.inputs, after.outputs, mode=Mode("py", "fast_compile"))
    shared = [v for v in ancestors(after.outputs) if isinstance(v, SharedVariable)]
    same = as_in([*after.inputs, *shared], before.outputs, fault)
    points = [*around(after.calls[-1])]
    if [v.name for v in after.inputs] == [v.name for v in before.inputs]:
        points.append(before.calls[-1])
    count, own = 0, 0
    for point in points:
        given = dict(zip(after.inputs, point, strict=True))
        with np.errstate(all="ignore"):
            found = np.asarray(plain(*point)[0])
        count += compared(theanoguard.exact(same, given)[0], found)
        own += compared(theanoguard.exact(after.outputs, given)[0], found)
    assert own
    assert (count > 0) == (fault.key not in WITHOUT_A_VALUE)


BOUND = re.compile(r"(maximum|minimum|clip)\(|\beps\b|\+ 1e-|-1e9")
"""Text that recommends a bound or an epsilon."""


def is_marked(text):
    """Whether each sentence with a bound says that it changes the function."""
    sentences = re.split(r"(?<=[.:]) (?=[A-Z])", text)
    return all("changes the function" in s for s in sentences if BOUND.search(s))


def test_a_bound_is_marked_as_a_change_of_the_function():
    rows = [hints.Rule(*row) for _ops, *row in hints._TABLE]
    texts = [text for row in (*rows, *failure._ERRORS) for text in (row.fact, row.advice)]
    texts += [text for fault in faults().values() for text in (fault.remedy, fault.after)]
    assert [text for text in texts if not is_marked(text)] == []
    assert not is_marked("The argument is 0. Use log(maximum(x, eps)).")


def test_every_hint_has_a_code():
    keys = {key for _ops, key, *_ in hints._TABLE}  # (not those of other tests)
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
