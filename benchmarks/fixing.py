"""``theanoguard fix`` on scripts with a fault: what is changed, kept and mended.

    python -m benchmarks.fixing [--run] [NAME ...]

Each script compiles ``f`` in ``FAST_COMPILE``, and calls it at inputs at which it fails.
``theanoguard fix --write`` changes a copy, and both are run at the failing inputs and at sound
ones.

*applied*: a line was changed.  *kept*: where the old results are finite, the new ones are the
same to a relative 1e-9.  *mended*: at the failing inputs, the new results are the right ones,
which are written here.  A changed number is *wrong*.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

CLOSE = 1e-9


@dataclass(frozen=True)
class Script:
    """A script with a fault.

    Parameters
    ----------
    text : str
        Builds ``out`` of the inputs in ``args``.
    fails : str
        The arguments of a call that fails.
    right : str
        Its right results, as Python.
    sound : str
        The arguments of calls that do not fail.
    """

    text: str
    fails: str
    right: str
    sound: str


# The names: x, y are vectors, s, t scalars, A a matrix.
SCRIPTS = {
    "softplus": Script(
        "out = pt.log(1 + pt.exp(s))\nargs = [s]", "800.0", "800.0", "(1.5,), (-3.0,)"
    ),
    "sigmoid cross entropy": Script(
        "p = pt.sigmoid(s)\nout = -pt.log(1 - p)\nargs = [s]", "60.0", "60.0", "(1.5,), (-3.0,)"
    ),
    "log of sigmoid": Script(
        "p = 1 / (1 + pt.exp(-s))\nout = pt.log(p)\nargs = [s]",
        "-800.0",
        "-800.0",
        "(1.5,), (-3.0,)",
    ),
    "softmax by hand": Script(
        "e = pt.exp(x)\nout = e / e.sum()\nargs = [x]",
        "np.array([1000.0, 1000.0])",
        "np.array([0.5, 0.5])",
        "(np.array([1.0, 2.0]),), (np.array([-3.0, 0.5]),)",
    ),
    "log of softmax": Script(
        "e = pt.exp(x)\nout = pt.log(e / e.sum())\nargs = [x]",
        "np.array([0.0, 1000.0])",
        "np.array([-1000.0, 0.0])",
        "(np.array([1.0, 2.0]),), (np.array([-3.0, 0.5]),)",
    ),
    "log of a sum of exponentials": Script(
        "out = pt.log(pt.exp(x).sum())\nargs = [x]",
        "np.array([1000.0, 1000.0])",
        "1000.0 + np.log(2)",
        "(np.array([1.0, 2.0]),), (np.array([-3.0, 0.5]),)",
    ),
    "likelihood": Script(
        "out = pt.log(pt.prod(x))\nargs = [x]",
        "np.full(50, 1e-9)",
        "50 * np.log(1e-9)",
        "(np.array([0.2, 0.7]),), (np.array([3.0, 0.5, 1e-3]),)",
    ),
    "normal likelihood": Script(
        "d = pt.exp(-(x - s) ** 2 / 2) / np.sqrt(2 * np.pi)\nout = pt.log(d).sum()\nargs = [x, s]",
        "np.array([0.0, 50.0]), 1.0",
        "-(1 + 49.0**2) / 2 - np.log(2 * np.pi)",
        "(np.array([0.2, 0.7]), 0.5), (np.array([3.0, -2.0]), 1.0)",
    ),
    "norm": Script(
        "out = pt.sqrt((x**2).sum())\nargs = [x]",
        "np.array([3e200, 4e200])",
        "5e200",
        "(np.array([1.0, 2.0]),), (np.array([-3.0, 0.5]),)",
    ),
    "two sides": Script(
        "out = pt.sqrt(s**2 + t**2)\nargs = [s, t]",
        "3e200, 4e200",
        "5e200",
        "(1.0, 2.0), (-3.0, 0.5)",
    ),
    "tanh by hand": Script(
        "out = (pt.exp(s) - pt.exp(-s)) / (pt.exp(s) + pt.exp(-s))\nargs = [s]",
        "800.0",
        "1.0",
        "(1.0,), (-0.3,)",
    ),
    "tanh of one exponential": Script(
        "e = pt.exp(2 * s)\nout = (e - 1) / (e + 1)\nargs = [s]", "800.0", "1.0", "(1.0,), (-0.3,)"
    ),
    "swish": Script(
        "out = s * pt.exp(s) / (1 + pt.exp(s))\nargs = [s]", "800.0", "800.0", "(1.0,), (-0.3,)"
    ),
    "inverse temperature": Script(
        "out = 1 / (pt.exp(s) - 1) * pt.exp(s)\nargs = [s]", "800.0", "1.0", "(1.0,), (-0.3,)"
    ),
    "binomial": Script(
        "out = pt.gamma(s + 1) / (pt.gamma(t + 1) * pt.gamma(s - t + 1))\nargs = [s, t]",
        "300.0, 2.0",
        "44850.0",
        "(5.0, 2.0), (10.0, 3.0)",
    ),
    "log of gamma": Script(
        "out = pt.log(pt.gamma(s))\nargs = [s]", "200.0", "857.9336698258574", "(5.0,), (1.5,)"
    ),
    "log of a tail": Script(
        "out = pt.log(0.5 * pt.erfc(s / np.sqrt(2)))\nargs = [s]",
        "40.0",
        "-804.6084420137538",
        "(5.0,), (-1.5,)",
    ),
    "log of a cosh": Script(
        "out = pt.log(pt.cosh(s))\nargs = [s]", "900.0", "900.0 - np.log(2)", "(5.0,), (-1.5,)"
    ),
    "ratio of powers": Script(
        "out = s**200 / t**200\nargs = [s, t]", "99.0, 100.0", "0.99**200", "(1.0, 1.1), (2.0, 3.0)"
    ),
    "geometric mean": Script(
        "out = x.prod() ** (1 / x.shape[0])\nargs = [x]",
        "np.full(100, 1e10)",
        "1e10",
        "(np.array([1.0, 2.0]),), (np.array([3.0, 0.5]),)",
    ),
    "variance": Script(
        "out = pt.sqrt((x**2).mean() - x.mean() ** 2)\nargs = [x]",
        "np.full(3, 0.1) * np.array([1, 1, 1 + 1e-14])",
        "4.71e-16",
        "(np.array([1.0, 2.0]),), (np.array([3.0, 0.5]),)",
    ),
    "entropy": Script(
        "out = -(x * pt.log(x)).sum()\nargs = [x]",
        "np.array([0.0, 1.0])",
        "0.0",
        "(np.array([0.3, 0.7]),), (np.array([0.5, 0.5]),)",
    ),
    "sinc": Script("out = pt.sin(s) / s\nargs = [s]", "0.0", "1.0", "(5.0,), (-1.5,)"),
    "cosine similarity": Script(
        "out = (x * y).sum() / (pt.sqrt((x**2).sum()) * pt.sqrt((y**2).sum()))\nargs = [x, y]",
        "np.array([1e200, 1e200]), np.array([1e200, 0.0])",
        "np.sqrt(0.5)",
        "(np.array([0.3, 0.7]), np.array([0.5, 0.5])),",
    ),
    "relu by a quotient": Script(
        "out = (s + pt.sqrt(s**2)) / 2\nargs = [s]", "1e200", "1e200", "(5.0,), (-1.5,)"
    ),
    "logistic loss": Script(
        "out = pt.log(1 + pt.exp(-y * x)).mean()\nargs = [x, y]",
        "np.array([-900.0, 1.0]), np.array([1.0, 1.0])",
        "(900.0 + np.log1p(np.exp(-1.0))) / 2",
        "(np.array([0.3, 0.7]), np.array([1.0, -1.0])),",
    ),
    "function of two uses": Script(
        "lik = lambda a: pt.log(a.prod())\nout = lik(x) - lik(y)\nargs = [x, y]",
        "np.full(50, 1e-9), np.full(2, 0.5)",
        "50 * np.log(1e-9) + 2 * np.log(2)",
        "(np.array([0.3, 0.7]), np.array([0.5, 0.5])),",
    ),
    "name bound again": Script(
        "a = x * 2\nq = a.prod()\na = y\nout = pt.log(q) + a.sum()\nargs = [x, y]",
        "np.full(50, 1e-9), np.full(2, 0.5)",
        "50 * np.log(2e-9) + 1",
        "(np.array([0.3, 0.7]), np.array([0.5, 0.5])),",
    ),
    "number bound again": Script(
        "k = 2.0\nout = pt.log(1 + pt.exp(k * s))\nk = 5.0\nargs = [s]",
        "800.0",
        "1600.0",
        "(5.0,), (-1.5,)",
    ),
    "method": Script(
        "class Model:\n"
        "    def __init__(self, shift):\n"
        "        self.shift = shift\n"
        "    def loss(self, a):\n"
        "        return pt.log(1 + pt.exp(a - self.shift))\n"
        "out = Model(3.0).loss(s) + Model(1.0).loss(t)\nargs = [s, t]",
        "900.0, 0.0",
        "897.0 + np.log1p(np.exp(-1.0))",
        "(5.0, 1.0), (-1.5, 0.0)",
    ),
    "default argument": Script(
        "def loss(a, k=2.0):\n    return pt.log(pt.exp(k * a).sum())\n"
        "out = loss(x) + loss(x, k=0.5)\nargs = [x]",
        "np.array([900.0, 900.0])",
        "2250.0 + 2 * np.log(2)",
        "(np.array([0.3, 0.7]),),",
    ),
    "comprehension": Script(
        "out = pt.stack([pt.log(1 + pt.exp(k * s)) for k in (1.0, 2.0)])\nargs = [s]",
        "800.0",
        "np.array([800.0, 1600.0])",
        "(5.0,), (-1.5,)",
    ),
    "rows": Script(
        "e = pt.exp(A)\np = e / e.sum(axis=1, keepdims=True)\n"
        "out = -pt.log(p[:, 0]).mean()\nargs = [A]",
        "np.array([[0.0, 1000.0], [0.0, 0.0]])",
        "(1000.0 + np.log(2)) / 2",
        "(np.array([[0.3, 0.7], [1.0, 2.0]]),),",
    ),
    "quadratic root": Script(
        "out = (-s + pt.sqrt(s**2 - 4 * t)) / 2\nargs = [s, t]",
        "1e200, 1.0",
        "-1e-200",
        "(5.0, 1.0), (-9.5, 2.0)",
    ),
    "relative difference": Script(
        "out = (x - y) / x\nargs = [x, y]",
        "np.zeros(2), np.zeros(2)",
        "np.full(2, np.nan)",
        "(np.array([0.3, 0.7]), np.array([0.5, 0.5])),",
    ),
    "correlation": Script(
        "c = x - x.mean()\nd = y - y.mean()\n"
        "out = (c * d).sum() / pt.sqrt((c**2).sum() * (d**2).sum())\nargs = [x, y]",
        "np.array([1e160, -1e160]), np.array([1e160, 1e160 / 2])",
        "1.0",
        "(np.array([0.3, 0.7]), np.array([0.5, 0.1])),",
    ),
    "harmonic": Script(
        "out = 1 / (1 / s + 1 / t)\nargs = [s, t]", "0.0, 2.0", "0.0", "(5.0, 1.0), (9.5, 2.0)"
    ),
    "log of a ratio": Script(
        "out = pt.log(s / t)\nargs = [s, t]",
        "1e200, 1e-200",
        "400 * np.log(10)",
        "(5.0, 1.0), (9.5, 2.0)",
    ),
    "square root of a product": Script(
        "out = pt.sqrt(s * t)\nargs = [s, t]", "1e200, 1e150", "1e175", "(5.0, 1.0), (9.5, 2.0)"
    ),
    "mixture": Script(
        "out = pt.log(0.3 * pt.exp(-(s**2)) + 0.7 * pt.exp(-((s - 1) ** 2)))\nargs = [s]",
        "100.0",
        "-9801.0 + np.log(0.7)",
        "(0.5,), (1.5,)",
    ),
    "focal loss": Script(
        "p = pt.sigmoid(s)\nout = -((1 - p) ** t) * pt.log(p)\nargs = [s, t]",
        "-800.0, 2.0",
        "800.0",
        "(1.5, 2.0), (-3.0, 0.5)",
    ),
    "importance weights": Script(
        "w = pt.exp(x - y)\nw = w / w.sum()\nout = 1 / (w**2).sum()\nargs = [x, y]",
        "np.array([1000.0, 1000.0]), np.zeros(2)",
        "2.0",
        "(np.array([0.3, 0.7]), np.array([0.5, 0.1])),",
    ),
    "value at risk": Script(
        "import pytensor.tensor as T\ndef tail(z):\n"
        "    return T.log(1 - 0.5 * (1 + T.erf(z / T.sqrt(2.0))))\n"
        "out = tail(s) - tail(t)\nargs = [s, t]",
        "12.0, 1.0",
        "-75.41067300090042 + 1.8410216450092634",
        "(0.5, 1.0), (-1.5, 0.2)",
    ),
    "poisson by factorials": Script(
        "rate = pt.exp(t)\nout = pt.log(rate**s * pt.exp(-rate) / pt.gamma(s + 1))\nargs = [s, t]",
        "300.0, 2.0",
        "300 * 2.0 - np.exp(2.0) - 1414.905849945066",
        "(5.0, 1.0), (2.0, 0.5)",
    ),
    "loop of losses": Script(
        "out = 0\nfor part in (x, y):\n    out = out + pt.log(pt.exp(part).sum())\nargs = [x, y]",
        "np.array([1000.0, 1000.0]), np.zeros(2)",
        "1000 + 2 * np.log(2)",
        "(np.array([0.3, 0.7]), np.array([0.5, 0.1])),",
    ),
    "two statements on a line": Script(
        "a = pt.exp(s); b = pt.log(1 + a)\nout = b * 2\nargs = [s]",
        "900.0",
        "1800.0",
        "(5.0,), (-1.5,)",
    ),
    "a name of the program's own": Script(
        "log = pt.log\nexp = pt.exp\nout = log(exp(s) + exp(t))\nargs = [s, t]",
        "900.0, 900.0",
        "900 + np.log(2)",
        "(5.0, 1.0), (-1.5, 0.0)",
    ),
    "keyword arguments": Script(
        "def nll(*, logits, target):\n    p = pt.exp(logits) / pt.sum(pt.exp(logits))\n"
        "    return -pt.sum(target * pt.log(p))\nout = nll(target=y, logits=x)\nargs = [x, y]",
        "np.array([0.0, 1000.0]), np.array([1.0, 0.0])",
        "1000.0",
        "(np.array([0.3, 0.7]), np.array([0.5, 0.5])),",
    ),
    "distance": Script(
        "d = ((x - y) ** 2).sum()\nout = pt.sqrt(d) / (1 + pt.sqrt(d))\nargs = [x, y]",
        "np.array([3e180, 4e180]), np.zeros(2)",
        "1.0",
        "(np.array([0.3, 0.7]), np.array([0.5, 0.1])),",
    ),
    "complement of failures": Script(
        "out = pt.log(1 - pt.prod(1 - x))\nargs = [x]",
        "np.array([1e-20, 1e-20])",
        "np.log(2e-20)",
        "(np.array([0.3, 0.7]),), (np.array([0.5, 0.1]),)",
    ),
}

HEAD = """\
import numpy as np
import pytensor
import pytensor.tensor as pt

x, y, s, t, A = pt.dvector("x"), pt.dvector("y"), pt.dscalar("s"), pt.dscalar("t"), pt.dmatrix("A")
"""
TAIL = """
f = pytensor.function(args, out, mode="FAST_COMPILE")
if __name__ == "__main__":
    f({fails})
"""
DRIVER = """\
import json, runpy, sys
import numpy as np
f = runpy.run_path("model.py")["f"]
calls = [({fails},), {sound}]
print(json.dumps([np.asarray(f(*call)).tolist() for call in calls]))
"""


def results(folder: Path, script: Script) -> list[np.ndarray]:
    """Return what the script's function gives: for the failing call, and for the sound ones."""
    driver = DRIVER.format(fails=script.fails, sound=script.sound)
    command = [sys.executable, "-W", "ignore", "-c", driver]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return [np.asarray(x, float) for x in json.loads(done.stdout.splitlines()[-1])]


def is_close(ours: np.ndarray, theirs: np.ndarray, rtol: float = CLOSE) -> bool:
    """Whether results are the same, but for rounding."""
    return ours.shape == theirs.shape and bool(
        np.allclose(ours, theirs, rtol=rtol, atol=1e-300, equal_nan=True)
    )


def outcome(script: Script, option: list[str]) -> tuple[str, str]:
    """Return what became of a script, and what the command said."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text = HEAD + script.text + TAIL.format(fails=script.fails)
        (folder / "model.py").write_text(text)
        before = results(folder, script)
        command = [sys.executable, "-m", "theanoguard", "fix", "--write", *option, "model.py"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        if done.returncode not in (0, 1):
            return "failed", done.stderr
        said = done.stdout + done.stderr
        if (folder / "model.py").read_text() == text:
            return "not changed", said
        after = results(folder, script)
        kept = all(
            not np.isfinite(old).all() or is_close(old, new)
            for old, new in zip(before[1:], after[1:], strict=True)
        )
        with np.errstate(all="ignore"):
            right = np.asarray(eval(script.right, {"np": np}), float)
        mended = is_close(after[0], right, rtol=1e-6)
        wrong = not kept or (np.isfinite(after[0]).all() and not mended)
        return "wrong" if wrong else "mended" if mended else "kept", said


def main() -> None:
    """Print a line for each script, and the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--run", action="store_true", help="repair the calls that fail")
    parser.add_argument("--verbose", action="store_true", help="print what the command says")
    parser.add_argument("names", nargs="*", default=list(SCRIPTS))
    arguments = parser.parse_args()
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    count: dict[str, int] = {}
    for name in arguments.names:
        found, said = outcome(SCRIPTS[name], ["--run"] if arguments.run else [])
        count[found] = count.get(found, 0) + 1
        print(f"{name}: {found}", flush=True)
        if arguments.verbose:
            print(said, flush=True)
    applied = sum(n for what, n in count.items() if what in ("wrong", "mended", "kept"))
    wrong = count.get("wrong", 0)
    print(
        f"{len(arguments.names)} scripts: {applied} applied, {applied - wrong} kept, "
        f"{count.get('mended', 0)} mended, {wrong} wrong, {count.get('failed', 0)} failed"
    )


if __name__ == "__main__":
    main()
