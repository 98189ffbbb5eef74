"""An edited program is built again, and compared with the program as it is."""

import sys

import numpy as np
import pytest

from theanoguard.cli.lint import run_beside
from theanoguard.cli.rebuilding import BuiltRun, Functions

pytestmark = pytest.mark.on_30

HEAD = """\
import numpy as np
import pytensor
import pytensor.tensor as pt
x, s = pt.dvector("x"), pt.dscalar("s")
w = pytensor.shared(np.arange(1.0, 4.0), name="w")
rng = pt.random.utils.RandomStream(1)
"""

# An edit of the line: the program, the text in it and its replacement, and what is said.
EDITS = {
    "other domain": ("y = pt.log(x.prod())", "x.prod()", "abs(x).prod()", None),
    "smaller domain": (
        "y = pt.log(x.prod())",
        "pt.log(x.prod())",
        "pt.log(x).sum()",
        "would be nan",
    ),
    "mended": ("y = pt.log(x.prod())  # fails", "pt.log(x.prod())", "pt.log(x).sum()", None),
    "another constant": (
        "k = 2.0\ny = pt.log1p(k * x)\nk = 5.0",
        "pt.log1p(k * x)",
        "pt.log1p(5.0 * x)",
        "would be",
    ),
    "function of two uses": (
        "f0 = lambda a: pt.log(a.prod())\ny = f0(x) + f0(w)",
        "pt.log(a.prod())",
        "pt.log(x).sum()",
        "would be",
    ),
    "number for NaN": (
        "y = pt.exp(s) / pt.exp(s)",
        "pt.exp(s) / pt.exp(s)",
        "pt.switch(s > 709.0, 2.0, 1.0)",
        "would be 2.0 instead of 1",
    ),
    "shared variable": ("y = pt.exp(w) - 1", "pt.exp(w) - 1", "pt.expm1(w)", None),
    "wrong shared variable": ("y = pt.exp(w * s)", "w * s", "w[::-1] * s", "would be"),
    "drawn numbers": (
        "y = pt.log(pt.exp(rng.normal(size=3)))",
        "pt.log(pt.exp(rng.normal(size=3)))",
        "rng.normal(size=3)",
        None,
    ),
    "other draws": ("y = rng.normal(s, size=3)", "size=3", "2.0, size=3", "would be"),
    "digits": ("y = pt.log1p(s)", "pt.log1p(s)", "pt.log(1 + s)", "would be 0.0 instead of 1e-30"),
    "no change": ("y = pt.log(x)\nz = 1", "z = 1", "z = 2", "builds the same graphs"),
    "other shape": ("y = x.sum()", "x.sum()", "x * 2", "would be shape (3,)"),
    "other number of results": ("y = x * 2", "[y]", "[y, y + 1]", "has 2 results, not 1"),
    "error": ("y = pt.log(x)", "pt.log(x)", "pt.log(x, 1, 2, 3)", "fails: "),
    "no function": ("y = pt.log(x)", "y = pt.log(x)", "raise SystemExit", "builds 0 functions"),
    "unknown input": (
        "import pytensor.sparse as sp\nx = sp.csc_matrix('x')\ny = sp.sp_sum(x) * 2",
        "* 2",
        "* 3",
        "cannot be compared",
    ),
    "loop": (
        "y = pytensor.scan(lambda a, b: b * pt.sqrt(a * a), [x], [s], return_updates=False)",
        "pt.sqrt(a * a)",
        "a",
        "would be",
    ),
    "update": (
        "y = s\nu = {w: pt.log(pt.exp(w))}\n",
        "pt.log(pt.exp(w))",
        "2 * w",
        "would be",
    ),
}


def functions_of(path, monkeypatch):
    """The functions that a program builds, as the command ``fix`` notes them."""
    monkeypatch.setattr(sys, "argv", [*sys.argv])
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    built = BuiltRun(linked=False)
    _, failed = run_beside([str(path)], built.start())
    assert not failed and built.seen
    x = built.seen[0].inputs[0]
    fails = "fails" in path.read_text()
    witnesses = {0: [{x: np.full(3, 1e-200)}]} if fails else {}
    return Functions(built.seen, [str(path)], False, False, witnesses)


@pytest.mark.parametrize("name", EDITS)
def test_edit_is_judged_by_what_the_program_builds(tmp_path, monkeypatch, name):
    body, old, new, said = EDITS[name]
    inputs = [v for v in "xs" if v in body.replace("pytensor.", "").replace("exp", "")]
    inputs = f"[{', '.join(inputs)}]"
    text = f"{HEAD}{body}\nu = globals().get('u', {{}})\n"
    text += f"f = pytensor.function({inputs}, [y], updates=u, on_unused_input='ignore')\n"
    path = tmp_path / "model.py"
    path.write_text(text)
    edited = text.replace(old, new, 1)
    assert edited != text
    found = functions_of(path, monkeypatch).why_not({path: edited.encode()})
    assert found == "" if said is None else said in found, found
    assert path.read_text() == text


def test_edit_of_a_module_that_the_program_imports(tmp_path, monkeypatch):
    path, module = tmp_path / "model.py", tmp_path / "formulas_of_model.py"
    module.write_text("import pytensor.tensor as pt\ndef of(q):\n    return pt.log(q.prod())\n")
    call = "pytensor.function([x], [formulas_of_model.of(x)])  # fails"
    path.write_text(f"{HEAD}import formulas_of_model\nf = {call}\n")
    functions = functions_of(path, monkeypatch)
    text = module.read_bytes()
    right, wrong = (
        text.replace(b"pt.log(q.prod())", b) for b in (b"pt.log(q).sum()", b"pt.log(q).prod()")
    )
    assert functions.why_not({module: right}) == ""
    assert "would be" in functions.why_not({module: wrong})
    assert module.read_bytes() == text
