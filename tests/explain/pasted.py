"""Programs with a formula that fails, and what becomes of them when the printed lines are pasted.

A program is a formula in a place of a program.  It defines ``INPUTS`` and ``OUTPUTS``.  The number
of faulty inputs is 1 or more.  Run this file to count the outcomes::

    python tests/explain/pasted.py [PART OF A NAME ...]
"""

import importlib.util
import itertools
import re
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytensor

from theanoguard import GuardError, GuardMode, exact


@dataclass(frozen=True)
class Formula:
    """A formula of ``{v}`` and of a number ``{c}``, in one expression or in two.

    Parameters
    ----------
    first, then : str
        The formula is `then`, where ``{e}`` stands for `first`.
    fails : sequence of float
        An input for which it fails.
    good : sequence of float
    number : float
    """

    first: str
    then: str
    fails: Sequence[float]
    good: Sequence[float] = (0.3, 1.7)

    def of(self, v: str, c: str = "3.0") -> str:
        """Return the formula as one expression."""
        return self.then.replace("{e}", self.first).format(v=v, c=c)


FORMULAS = {
    "logaddexp": Formula("{c} + pt.exp({v})", "pt.log({e})", [1.0, 800.0]),
    "softplus": Formula("pt.exp({v})", "pt.log(1 + {e})", [1.0, 800.0]),
    "complement": Formula("1 - pt.sigmoid({v} - {c})", "pt.log({e})", [1.0, 45.0]),
    "log_sigmoid": Formula("pt.sigmoid({v})", "pt.log({e})", [1.0, -800.0]),
    "softmax": Formula("pt.exp({v})", "{e} / {e}.sum()", [1.0, 800.0]),
    "logsumexp": Formula("pt.exp({v}).sum()", "pt.log({e})", [1.0, 800.0]),
    "log_softmax": Formula("pt.exp({v}) / pt.exp({v}).sum()", "pt.log({e})", [1.0, 900.0]),
    "sigmoid": Formula("pt.exp({v})", "{e} / (1 + {e})", [1.0, 800.0]),
    "norm": Formula("({v} ** 2).sum()", "pt.sqrt({e})", [1.0, 1e200]),
    "log_product": Formula("({v} ** 2 + 1e-9).prod()", "pt.log({e})", [1e120, 1e120]),
    "tanh": Formula(
        "(pt.exp({v}) - pt.exp(-{v}))", "{e} / (pt.exp({v}) + pt.exp(-{v}))", [1.0, 800.0]
    ),
    "log1mexp": Formula("1 - pt.exp(-({v} ** 2))", "pt.log({e})", [1.0, 1e-9]),
    "log_cosh": Formula("pt.cosh({v})", "pt.log({e})", [1.0, 800.0]),
    "log_scaled": Formula("{c} * pt.exp({v})", "pt.log({e})", [1.0, 800.0]),
    "entropy": Formula("pt.exp(-{v})", "{e} * pt.log({e})", [1.0, 800.0]),
    "log_erfc": Formula("pt.erfc({v})", "pt.log({e})", [1.0, 30.0]),
}


def _one(body: str) -> Callable[[Formula], str]:
    """Return a context whose text has ``E(v)``, ``E(v, c)``, ``FIRST(v)`` and ``THEN(e, v)``."""

    def written(formula: Formula) -> str:
        text = textwrap.dedent(body).lstrip("\n")

        def put(found: re.Match) -> str:
            kind, inside = found[1], found[2]
            parts = [p.strip() for p in inside.split("|")]
            if kind == "E":
                return formula.of(*parts)
            if kind == "FIRST":
                return formula.first.format(v=parts[0], c=parts[1] if parts[1:] else "3.0")
            e, v = parts[:2]
            c = parts[2] if parts[2:] else "3.0"
            return formula.then.replace("{e}", e).format(v=v, c=c)

        return re.sub(r"\b(E|FIRST|THEN)<([^<>]*)>", put, text)

    return written


HEAD = "import numpy as np\nimport pytensor\nimport pytensor.tensor as pt\n"

CONTEXTS: dict[str, Callable[[Formula], str]] = {
    name: _one((HEAD if "import" not in body else "") + textwrap.dedent(body).lstrip("\n"))
    for name, body in {
        "module": """
            x = pt.dvector("x")
            out = E<x>
            INPUTS, OUTPUTS = [x], [out]
        """,
        "function": """
            def build():
                x = pt.dvector("x")
                return [x], [E<x>]
            INPUTS, OUTPUTS = build()
        """,
        "tabs": """
            x = pt.dvector("x")
            def g(v):
            \tif True:
            \t\tz =\tE<v>\t# a tab
            \t\treturn z
            INPUTS, OUTPUTS = [x], [g(x)]
        """,
        "backslash": """
            x = pt.dvector("x")
            out = 5 - \\
                E<x> \\
                - 1
            INPUTS, OUTPUTS = [x], [out]
        """,
        "comprehension": """
            x = pt.dvector("x")
            OUTPUTS = [E<x * i|i> for i in range(1, 4)]
            INPUTS = [x]
        """,
        "default_argument": """
            x, y = pt.dvectors("x", "y")
            def loss(v, c=3.0):
                return E<v|c>
            INPUTS, OUTPUTS = [x, y], [loss(x), loss(y, 5.0)]
        """,
        "lambda": """
            x, y = pt.dvectors("x", "y")
            f = lambda v: E<v>
            INPUTS, OUTPUTS = [x, y], [f(x), f(y * 2)]
        """,
        "nested_lambdas": """
            x = pt.dvector("x")
            first = lambda v: FIRST<v>
            then = lambda v: THEN<first(v)|v>
            INPUTS, OUTPUTS = [x], [then(then(x)), then(x)]
        """,
        "closure": """
            x, y = pt.dvectors("x", "y")
            def make(c):
                def inner(v):
                    return E<v|c>
                return inner
            INPUTS, OUTPUTS = [x, y], [make(3.0)(x), make(0.5)(y)]
        """,
        "method": """
            class Head:
                def __init__(self, rate, shift):
                    self.rate, self.shift = rate, shift
                def nll(self):
                    return E<self.rate|self.shift>
            a, b = Head(pt.dvector("a"), 3.0), Head(pt.dvector("b"), 5.0)
            INPUTS, OUTPUTS = [a.rate, b.rate], [a.nll(), b.nll()]
        """,
        "property": """
            class Config:
                floor = 1e-3
            class Model:
                def __init__(self, cfg, n):
                    self.cfg, self.h = cfg, pt.dvector(n)
                @property
                def energy(self):
                    return self.h * 1
                def free(self):
                    return E<self.energy|self.cfg.floor>
            m, n = Model(Config(), "h"), Model(Config(), "g")
            n.cfg.floor = 10.0
            INPUTS, OUTPUTS = [m.h, n.h], [m.free(), n.free()]
        """,
        "two_lines": """
            x = pt.dvector("x")
            e = FIRST<x>
            out = THEN<e|x>
            INPUTS, OUTPUTS = [x], [out]
        """,
        "reassigned": """
            x = pt.dvector("x")
            v = x * 1
            e = FIRST<v>
            kept = v
            v = v - 1
            out = THEN<e|kept> + v
            INPUTS, OUTPUTS = [x], [out]
        """,
        "rebound": """
            x = pt.dvector("x")
            h = x * 1
            v = h
            h = FIRST<h>
            h = THEN<h|v>
            INPUTS, OUTPUTS = [x], [h]
        """,
        "walrus": """
            x = pt.dvector("x")
            if (z := E<(v := x * 1)>) is not None:
                out = z + 1 / (1 + v ** 2)
            INPUTS, OUTPUTS = [x], [out]
        """,
        "shadowing": """
            x = pt.dvector("x")
            e = pt.dvector("e")
            def g(x, v):
                e = FIRST<v>
                return THEN<e|v> + x
            INPUTS, OUTPUTS = [x, e], [g(e, x)]
        """,
        "global_and_argument": """
            x, v = pt.dvectors("x", "v")
            h = lambda v: E<v>
            INPUTS, OUTPUTS = [x, v], [h(x), h(v + 0.5)]
        """,
        "name_of_a_function": """
            x, y = pt.dvectors("x", "y")
            def first(v):
                return FIRST<v>
            def second(x):
                v = first(x)
                return THEN<v|x>
            INPUTS, OUTPUTS = [x, y], [second(x), first(y)]
        """,
        "loop": """
            x, y = pt.dvectors("x", "y")
            total = 0
            for c, v in [(3.0, x), (0.5, y)]:
                total = total + E<v|c>
            INPUTS, OUTPUTS = [x, y], [total]
        """,
        "loop_of_states": """
            x = pt.dvector("x")
            h = x
            for i in range(2):
                e = FIRST<h>
                h = THEN<e|h> * 0.5
            INPUTS, OUTPUTS = [x], [h]
        """,
        "used_twice": """
            x, y = pt.dvectors("x", "y")
            def f(a, b):
                e = FIRST<a|b>
                return THEN<e|a|b>
            INPUTS, OUTPUTS = [x, y], [f(x, 3.0), f(y, 7.0) * 2]
        """,
        "two_faults": """
            x = pt.dvector("x")
            f = lambda v, c: E<v|c>
            INPUTS, OUTPUTS = [x], [f(x, 3.0) + f(x + 1, 2.0)]
        """,
        "constant_changed": """
            x, y = pt.dvectors("x", "y")
            K = 3.0
            def f(v):
                return E<v|K>
            first = f(x)
            K = 5.0
            INPUTS, OUTPUTS = [x, y], [first, f(y)]
        """,
        "numpy_rebound": """
            x = pt.dvector("x")
            np = 4
            out = E<x> + np
            INPUTS, OUTPUTS = [x], [out]
        """,
        "parentheses": """
            x = pt.dvector("x")
            out = ((2 - (E<(x - 0.5)>) ** 1) * (2))
            INPUTS, OUTPUTS = [x], [out]
        """,
        "operand": """
            x = pt.dvector("x")
            out = -(E<x * 1>) - x + 2 * (E<x - 0.25>)
            INPUTS, OUTPUTS = [x], [out]
        """,
        "method_of_it": """
            x = pt.dvector("x")
            out = (E<x>).sum() + (E<x>).mean()
            INPUTS, OUTPUTS = [x], [out]
        """,
        "keyword": """
            x = pt.dvector("x")
            def g(low, high):
                return low + 2 * high
            out = g(high=E<x>, low=x)
            INPUTS, OUTPUTS = [x], [out]
        """,
        "without_numpy": """
            import pytensor
            import pytensor.tensor as pt
            x = pt.dvector("x")
            out = E<x>
            INPUTS, OUTPUTS = [x], [out]
        """,
        "other_alias": """
            import numpy
            import pytensor.tensor as T
            x = T.dvector("x")
            out = E<x>
            INPUTS, OUTPUTS = [x], [out]
        """,
        "local_import": """
            import pytensor
            def build():
                import pytensor.tensor as pt
                x = pt.dvector("x")
                return [x], [E<x>]
            INPUTS, OUTPUTS = build()
        """,
        "names_imported": """
            from pytensor.tensor import cosh, dvector, erfc, exp, log, sigmoid, sqrt
            x = dvector("x")
            out = E<x>
            INPUTS, OUTPUTS = [x], [out]
        """,
        "subscript": """
            d = {"v": [pt.dvector("x")], "c": 3.0}
            out = E<d["v"][0]|d["c"]>
            INPUTS, OUTPUTS = d["v"], [out]
        """,
        "several_lines": """
            x = pt.dvector("x")
            out = pt.stack([
                (E<x>).sum(),  # the first
                x.sum(),
            ])
            INPUTS, OUTPUTS = [x], [out]
        """,
        "two_statements": """
            x = pt.dvector("x"); v = x * 1; out = E<v>; v = v + 1
            INPUTS, OUTPUTS = [x], [out, v]
        """,
        "text_before": """
            x = pt.dvector("x")
            named = {"größe # 1": E<x>, "x": x}
            INPUTS, OUTPUTS = [x], list(named.values())
        """,
        "conditional": """
            x = pt.dvector("x")
            flag = True
            out = E<x> if flag else x
            INPUTS, OUTPUTS = [x], [out]
        """,
        "added": """
            x = pt.dvector("x")
            total = x.sum()
            for n in (1, 2):
                total += (E<x / n>).sum()
            INPUTS, OUTPUTS = [x], [total]
        """,
        "chained": """
            x = pt.dvector("x")
            out = z = E<x>
            INPUTS, OUTPUTS = [x], [out + z]
        """,
        "argument_is_function": """
            x, y = pt.dvectors("x", "y")
            def g(first, v):
                return THEN<first(v)|v>
            INPUTS = [x, y]
            OUTPUTS = [g(lambda v: FIRST<v>, x), g(lambda v: 1.5 + v ** 2, y)]
        """,
        "star_import": """
            from pytensor.tensor import *
            x = dvector("x")
            out = E<x>
            INPUTS, OUTPUTS = [x], [out]
        """,
        "augmented": """
            x = pt.dvector("x")
            y = x * 2
            y += 1
            out = E<y>
            out *= 2
            INPUTS, OUTPUTS = [x], [out]
        """,
        "one_of_the_numbers_is_1": """
            x = pt.dvector("x")
            parts = {name: E<x|c> for name, c in {"a": 1.0, "b": 4.0}.items()}
            INPUTS, OUTPUTS = [x], [parts["a"] - parts["b"]]
        """,
        "constant_array": """
            x = pt.dvector("x")
            m = pt.constant(np.array([0.5, 1.0]))
            k = np.array([2.0, 3.0])
            out = E<x * m> * k
            INPUTS, OUTPUTS = [x], [out]
        """,
        "object_changed": """
            from types import SimpleNamespace
            import numpy as np
            import pytensor.tensor as pt
            p = SimpleNamespace(v=pt.dvector("x"), c=3.0)
            first = E<p.v|p.c>
            p.c = 4.0
            INPUTS, OUTPUTS = [p.v], [first * p.c]
        """,
    }.items()
}


def theano_of(source: str) -> str:
    """Return a program for Theano."""
    source = source.replace("import pytensor.tensor as pt", "import theano.tensor as tt")
    source = source.replace("import pytensor\n", "import theano\n").replace(
        "pt.sigmoid", "pt.nnet.sigmoid"
    )
    return re.sub(r"\bpt\.", "tt.", source)


THEANO = ("module", "method", "comprehension", "two_lines", "default_argument")


@dataclass(frozen=True)
class Program:
    """A formula in a context."""

    name: str
    source: str
    formula: Formula


def programs() -> Iterator[Program]:
    """Yield all programs."""
    for (context, written), (kind, formula) in itertools.product(
        CONTEXTS.items(), FORMULAS.items()
    ):
        source = written(formula)
        if context in ("names_imported", "star_import"):
            source = re.sub(r"\bpt\.", "", source)
        if context == "other_alias":
            source = re.sub(r"\bpt\.", "T.", source)
        yield Program(f"{context}-{kind}", source, formula)
        if context in THEANO:
            yield Program(f"theano_{context}-{kind}", theano_of(source), formula)


_count = itertools.count()


def loaded(path: Path) -> Any:
    """Return a program as a module."""
    name = f"pasted_{next(_count)}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def pasted(source: str, change: Sequence[str], text: str) -> str | None:
    """Return a program in which the printed lines replace the old ones, as a user pastes them."""
    numbers = [
        int(n) for n in re.findall(r"\d+", " ".join(_ON_LINES.findall(" ".join(text.split()))))
    ]
    lines = source.splitlines()
    for old, new in zip(change[::2], change[1::2], strict=True):
        olds = [line.strip() for line in old.split("\n")]
        found = [
            i
            for i in range(len(lines))
            if [_code(line) for line in lines[i : i + len(olds)]] == [_code(o) for o in olds]
        ]
        if not found:
            return None
        here = next((i for i in found if i + 1 in numbers), found[0])
        indent = lines[here][: len(lines[here]) - len(lines[here].lstrip())]
        news = new.split("\n")
        imports = [line for line in news if line.startswith("import ")]
        rest = [line for line in news if not line.startswith("import ")]
        lines[here : here + len(olds)] = [indent + rest[0], *rest[1:]]
        lines[:0] = imports
    return "\n".join(lines) + "\n"


_ON_LINES = re.compile(r"on lines? ([\d, and]+)")


def _code(line: str) -> str:
    return line.strip().partition("  #")[0].rstrip()


def arguments(program: Program, inputs: Sequence[Any]) -> list[list[np.ndarray]]:
    """Return the arguments of the failing call, and of three good ones."""
    fails, good = np.array(program.formula.fails), np.array(program.formula.good)
    return [
        [fails, *([good] * (len(inputs) - 1))],
        *([good * (s + 0.1 * i) for i in range(len(inputs))] for s in (1.0, 0.5, 1.5)),
    ]


@dataclass(frozen=True)
class Outcome:
    """What became of a program: "wrong", "mended", "same fault", "kept" or "sound"."""

    name: str
    kind: str
    detail: str = ""


def outcome(program: Program, folder: Path) -> Outcome:
    """Run a program under the guard, paste the lines, and compare."""
    path = folder / f"{program.name}.py"
    path.write_text(program.source)
    module = loaded(path)
    calls = arguments(program, module.INPUTS)
    try:
        f = pytensor.function(
            module.INPUTS,
            module.OUTPUTS,
            mode=GuardMode(big_is_error=False, optimizer=None),
            on_unused_input="ignore",
        )
        f(*calls[0])
        return Outcome(program.name, "sound")
    except GuardError as error:
        hint, text = error.explanation.cause.hint, str(error)
    change = () if hint is None else hint.change
    advice = "" if hint is None else hint.text
    if not change:
        return Outcome(program.name, "kept", advice)
    detail = "\n".join([advice, *change])
    edited = pasted(program.source, change, text)
    if edited is None:
        return Outcome(program.name, "wrong", f"the old line is not in the file\n{detail}")
    new_path = folder / f"{program.name}_edited.py"
    new_path.write_text(edited)
    try:
        new = loaded(new_path)
    except Exception as error:
        return Outcome(program.name, "wrong", f"{error!r}\n{detail}")
    old_f, new_f = (
        pytensor.function(m.INPUTS, m.OUTPUTS, mode="FAST_COMPILE", on_unused_input="ignore")
        for m in (module, new)
    )
    for call in calls[1:]:
        for old, got in zip(old_f(*call), new_f(*call), strict=True):
            if np.shape(old) != np.shape(got) or not np.allclose(
                old, got, rtol=1e-9, equal_nan=True
            ):
                return Outcome(program.name, "wrong", f"{call}: {old} -> {got}\n{detail}")
    kind = "mended"
    for out, old, got in zip(module.OUTPUTS, old_f(*calls[0]), new_f(*calls[0]), strict=True):
        right = exact(out, dict(zip(module.INPUTS, calls[0], strict=True)))
        values = np.asarray(right.value if hasattr(right, "value") else right, dtype=float)
        known = np.isfinite(values)
        if np.shape(old) != np.shape(got):
            return Outcome(program.name, "wrong", f"shape {np.shape(got)}\n{detail}")
        bad = known & ~np.isclose(got, values, rtol=1e-7, atol=1e-300)
        was = known & ~np.isclose(old, values, rtol=1e-7, atol=1e-300)
        if np.any(bad & ~was) or np.any(bad & np.isfinite(got)):
            return Outcome(program.name, "wrong", f"{values}: {old} -> {got}\n{detail}")
        if np.any(bad):
            kind = "same fault"
    return Outcome(program.name, kind, detail)


def main() -> None:
    """Print the outcomes."""
    import logging
    import os
    import tempfile
    import traceback

    from theanoguard.shim.install import install_theano

    parts = [a for a in sys.argv[1:] if not a.startswith("-")]
    theano = "--theano" in sys.argv
    if theano:
        install_theano()
    if "-d" in sys.argv:
        logging.basicConfig()
        logging.getLogger("theanoguard").setLevel(logging.DEBUG)
    counts: Counter[str] = Counter()
    by_context: dict[str, Counter[str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for program in programs():
            if program.name.startswith("theano_") != theano:
                continue
            if parts and not any(part in program.name for part in parts):
                continue
            try:
                found = outcome(program, Path(folder))
            except Exception:
                found = Outcome(program.name, "error", traceback.format_exc())
            counts[found.kind] += 1
            for part in program.name.split("-"):
                by_context.setdefault(part, Counter())[found.kind] += 1
            quiet = found.kind in ("mended",) and "-v" not in sys.argv
            print(
                found.kind,
                found.name,
                "" if quiet else "\n    " + found.detail.replace("\n", "\n    "),
                flush=True,
            )
    for name, found in by_context.items():
        print(f"{name:24s}", dict(found))
    print(dict(counts))


if __name__ == "__main__":
    main()
