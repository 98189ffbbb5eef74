"""Compile what a report prints in the user's module, with its names and imports."""

import ast
import linecache
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from types import ModuleType
from typing import Any

import numpy as np
from pytensor.graph.basic import Variable

from theanoguard._provenance.places import place_text
from theanoguard._provenance.source import SourceLine
from theanoguard.explain.advice.source_edit import filled, listed

OPERAND = "operand_of_the_user"
"""The name that stands for the user's own operand, which is known to compile."""

STABLE = "theanoguard.stable"

MODULES = (
    *("pytensor.tensor", "theano.tensor", "pytensor.xtensor.math"),
    *("pymc.math", "pymc.dims.math"),
)
"""Modules with the functions that remedies use."""

IN_THEANO = (
    (
        re.compile(r"\{pt\}\.special\.log_softmax\((.*?), axis=[-.\d]+\)"),
        r"{pt}.nnet.logsoftmax(\1)",
    ),
    (re.compile(r"\{pt\}\.special\.softmax\((.*?), axis=[-.\d]+\)"), r"{pt}.nnet.softmax(\1)"),
    (re.compile(r"\{pt\}\.special\.softmax\b"), r"{pt}.nnet.softmax"),
    (re.compile(r"\{pt\}\.(softplus|sigmoid)\b"), r"{pt}.nnet.\1"),
)
"""How Theano writes a function of PyTensor.  Its softmax works on the rows of a matrix."""

_LOG_SOFTMAX = "x - x.max({kept}) - pt.log(pt.exp(x - x.max({kept})).sum({kept}))"

CALLS_IN_THEANO = {
    "pt.softplus": ("pt.nnet.softplus(x)",),
    "pt.sigmoid": ("pt.nnet.sigmoid(x)",),
    "pt.abs": ("abs(x)",),
    "pt.log1mexp": ("pt.switch(pt.gt(x, -0.693), pt.log(-pt.expm1(x)), pt.log1p(-pt.exp(x)))",),
    "pt.special.softmax": (
        "pt.nnet.softmax(x)",
        "pt.exp(x - x.max({kept})) / pt.exp(x - x.max({kept})).sum({kept})",
    ),
    "pt.special.log_softmax": ("pt.nnet.logsoftmax(x)", _LOG_SOFTMAX),
    f"{STABLE}.log_softmax": ("pt.nnet.logsoftmax(x)", _LOG_SOFTMAX),
    f"{STABLE}.logsumexp": ("x.max({axes}) + pt.log(pt.exp(x - x.max({kept})).sum({axes}))",),
    f"{STABLE}.logaddexp": ("pt.maximum(x, y) + pt.nnet.softplus(-abs(x - y))",),
    f"{STABLE}.norm": (
        "pt.sqrt(pt.maximum((x ** 2).sum({axes}), 0.5 ** 126))",
        "abs(x).max({axes}) * pt.sqrt(pt.maximum(((x / pt.maximum(abs(x).max({kept}), 0.5 ** 126))"
        " ** 2).sum({axes}), 1))",
    ),
    f"{STABLE}.hypot": (
        "pt.maximum(abs(x), abs(y)) * pt.sqrt(1 + (pt.minimum(abs(x), abs(y))"
        " / pt.maximum(pt.maximum(abs(x), abs(y)), 0.5 ** 126)) ** 2)",
    ),
    f"{STABLE}.sqrt": ("pt.sqrt(pt.maximum(x, 0.5 ** 126))",),
    f"{STABLE}.log_erfc": (
        "pt.switch(pt.gt(x, 0), pt.log(pt.erfcx(pt.maximum(x, 0))) - x ** 2,"
        " pt.log(pt.erfc(pt.minimum(x, 0))))",
    ),
    **{
        f"{STABLE}.{name}": (
            f"pt.switch(pt.eq(x, 0), 1, pt.{of}(x) / pt.switch(pt.eq(x, 0), 1, x))",
        )
        for name, of in {"exprel": "expm1", "log1prel": "log1p", "sinc": "sin"}.items()
    },
}
"""Functions that Theano 1.0.5 does not have, and its formulas for them, the first one preferred.

The number 0.5 ** 126 is the smallest normal one of float32, so that it changes no dtype.
"""


class _InTheano(ast.NodeTransformer):
    """Writes calls of functions that Theano does not have as formulas."""

    def __init__(self, choice: int):
        self.choice = choice

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        formulas = CALLS_IN_THEANO.get(ast.unparse(node.func))
        if formulas is None:
            return node
        given = {k.arg: ast.unparse(k.value) for k in node.keywords if k.arg is not None}
        axes = [f"axis={given['axis']}"] if "axis" in given else []
        kept = ", ".join([*axes, "keepdims=True"] if axes else [])
        axes += ["keepdims=True"] if given.get("keepdims") == "True" else []
        template = formulas[min(self.choice, len(formulas) - 1)]
        operands = dict(zip("xy", map(ast.unparse, node.args), strict=False))
        text = filled(template.format(axes=", ".join(axes), kept=kept), operands)
        return ast.parse(text, mode="eval").body


CHOICES = 2  # the largest number of formulas in :data:`CALLS_IN_THEANO`


def in_theano(code: str, choice: int = 0) -> str:
    """Return code of a remedy in the functions of Theano, of which some have two formulas.

    Examples
    --------
    >>> in_theano("y + theanoguard.stable.logsumexp(a, axis=1)")
    'y + (a.max(axis=1) + pt.log(pt.exp(a - a.max(axis=1, keepdims=True)).sum(axis=1)))'
    """
    return ast.unparse(_InTheano(choice).visit(ast.parse(code, mode="eval").body))


def run_in_theano(code: str, operands: Mapping[str, Variable]) -> Callable:
    """Return what builds the result of code that :func:`in_theano` returned."""
    modules = {"pt": sys.modules["theano.tensor"], "np": np}

    def build(new: Callable[[Variable], Variable]) -> Variable:
        names = {name: new(v) for name, v in operands.items()}
        return eval(code, {**modules, **names})  # noqa: S307  (our own code)

    return build


_WORDS_IN_THEANO = (
    (
        "Use {pt}.ive(v, x), which is iv times exp(-abs(x)): log(i0(x)) = log(ive(0, x)) + abs(x).",
        "For large x, log(i0(x)) is abs(x) - log(2 * pi * abs(x)) / 2, up to 1 / (8 * abs(x)).",
    ),
    ("pytensor.gradient", "theano.gradient"),
    ("PyTensor", "Theano"),
    ("{pt}.logsumexp", "max(x) + log(sum(exp(x - max(x))))"),
    (f" Or {STABLE}.norm(x), whose gradient is 0 there.", ""),
    (f" with {STABLE}.norm.", ", where norm(x) is sqrt(sum(x**2))."),
    (
        f"Or {STABLE}.softmax(h, axis=...), which is 0 for such a slice.",
        "Or mask with a finite number, such as -1e9.",
    ),
)
"""Advice with functions that Theano 1.0.5 does not have, and what to write there."""

_NAMES_IN_THEANO = {
    "log_softmax": "{pt}.nnet.logsoftmax",
    "softplus": "{pt}.nnet.softplus",
    "sigmoid": "{pt}.nnet.sigmoid",
    "logsumexp": "max(x) + log(sum(exp(x - max(x))))",
    "logaddexp": "a + {pt}.nnet.softplus(b - a)",
    "log1mexp": "log(-expm1(x))",
    "xlogx": "{pt}.xlogx.xlogx",
    "xlogy": "{pt}.xlogx.xlogy0",
}
"""Functions that advice names without their module, as Theano writes them."""
_A_NAME = re.compile(rf"(?<![\w.])(?:{'|'.join(_NAMES_IN_THEANO)})\b")


_THRESHOLD = re.compile(r"GuardMode\(big_threshold=(.*?)\)")
"""What the option of ``theanoguard run`` is in a program without a guard of its own."""

_NOT_IN_THEANO = re.compile(r"\b(?:ive|slogdet)\(")


def is_in_theano(words: str) -> bool:
    """Return whether Theano has the functions that a remedy in words names."""
    return not _NOT_IN_THEANO.search(words)


def name_of_theano(file: str, text: str) -> str | None:
    """Return the name of ``theano.tensor`` in the user's file; None if PyTensor is used there."""
    if "theano" not in sys.modules:
        return None
    known = aliases(file, text)
    if known:
        name, module = next(iter(known.items()))
        return name if module.__name__ == "theano.tensor" else None
    theano = sys.modules["theano"]
    names = (n for n, value in globals_of(file).items() if value is theano)
    return next((f"{name}.tensor" for name in names), None)


def in_users_words(advice: str, file: str, text: str) -> str:
    """Return advice with the functions of Theano, if the user's file imports it.

    `text`: the user's line.
    """
    name = name_of_theano(file, text)
    if name is None:
        return advice
    advice = re.sub(r"\b(?:pytensor\.tensor|pt)\.(?=\w)", "{pt}.", advice)
    for pattern, theano in IN_THEANO:
        advice = pattern.sub(theano, advice)
    for words, theano in _WORDS_IN_THEANO:
        advice = advice.replace(words, theano)
    own = globals_of(file)
    if not {"GuardMode", "theanoguard"} & own.keys():
        advice = _THRESHOLD.sub(r"--guard-threshold \1", advice)
        advice = advice.replace("raise big_threshold", "raise it with --guard-threshold")
    advice = _A_NAME.sub(
        lambda found: found[0] if found[0] in own else _NAMES_IN_THEANO[found[0]], advice
    )
    return advice.replace("{pt}", name)


def globals_of(file: str) -> dict[str, Any]:
    """Return the global names of the user's module; those of the main program if it is unknown."""
    for module in list(sys.modules.values()):
        if getattr(module, "__file__", None) == file:
            return vars(module)
    return vars(sys.modules["__main__"])


@lru_cache(maxsize=64)
def _tree(file: str, n_lines: int) -> ast.Module | None:
    try:
        return ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):  # a cell with magics
        return None


def _parsed(file: str) -> ast.Module | None:
    return _tree(file, len(linecache.getlines(file)))


@lru_cache(maxsize=64)
def _imported(file: str, n_lines: int) -> tuple[tuple[str, str], ...]:
    """Return the names that a file imports, anywhere, with what they name."""
    tree = _tree(file, n_lines)
    return tuple(
        (alias.asname or alias.name, f"{getattr(node, 'module', '')}.{alias.name}".lstrip("."))
        for node in (ast.walk(tree) if tree is not None else ())
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    )


def only_imported(name: str, file: str) -> bool:
    """Return whether a file binds a name by imports, functions and classes alone."""
    return name not in _stored_names(file, len(linecache.getlines(file)))


@lru_cache(maxsize=64)
def _stored_names(file: str, n_lines: int) -> frozenset[str]:
    """Return the names that a file binds to values, anywhere."""
    tree = _tree(file, n_lines)
    nodes = list(ast.walk(tree)) if tree is not None else []
    names = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return frozenset(names | {n.arg for n in nodes if isinstance(n, ast.arg)})


def aliases(file: str, text: str) -> dict[str, ModuleType]:
    """Return the names of :data:`MODULES` in the user's file, first those that a line uses."""
    found = {
        name: value
        for name, value in globals_of(file).items()
        if isinstance(value, ModuleType) and value.__name__ in MODULES
    }
    for name, path in _imported(file, len(linecache.getlines(file))):
        module = sys.modules.get(path)
        if module is not None and module.__name__ in MODULES:
            found.setdefault(name, module)
    used = [name for name in found if re.search(rf"\b{re.escape(name)}\.", text)]
    return {name: found[name] for name in dict.fromkeys([*used, *found])}


def spelled(
    code: str, file: str, modules: list[str], numpy: list[str], choice: int = 0
) -> Iterator[str]:
    """Yield code of a remedy with the names that PyTensor's modules may have on a line.

    `modules`: names of PyTensor's module that the line is known to have.
    `numpy`: those of NumPy.
    `choice`: as for :func:`in_theano`.
    """
    code, own_module = code.replace("{pt}", "pt"), ["pt"]
    texts = [code]
    if name_of_theano(file, "") is not None:
        texts = list(dict.fromkeys(in_theano(code, i) for i in range(CHOICES)))
        own_module = []
    if choice >= len(texts):
        return
    template = re.sub(r"\bpt\.", "{pt}.", texts[choice])
    others = [n for n in aliases(file, "") if only_imported(n, file)]
    outer = globals_of(file)
    others_np = [n for n, v in outer.items() if v is np and only_imported(n, file)]
    of_numpy = [*numpy, *others_np, "np"]
    own = [n for n, v in outer.items() if getattr(v, "__name__", "") == STABLE]
    stable = own[0] if own else STABLE
    for name in dict.fromkeys([*modules, *others, *own_module]):
        text = template.replace("{pt}", name).replace(STABLE, stable)
        for numbers in dict.fromkeys([*of_numpy[:1], of_numpy[-1]]) if "np." in text else ("",):
            yield re.sub(r"\bnp\.", f"{numbers}.", text)


def with_modules(text: str, file: str, number: int) -> str:
    """Return a user's expression as the file writes it: ``pt.dot(x, w)`` for ``dot(x, w)``.

    `text`: as reports write it.
    `number`: number of the line that it is for.  The last such expression before it is taken.
    """
    tree = _parsed(file) if "(" in text else None
    modules = [name for name, v in globals_of(file).items() if isinstance(v, ModuleType)]
    modules += [name for name, path in _imported(file, len(linecache.getlines(file)))]
    prefix = re.compile(rf"(?<![\w.])(?:{'|'.join(map(re.escape, modules))})\.(?:[A-Za-z_]\w*\.)*")
    lines, found = "".join(linecache.getlines(file)), (0, text)
    for node in ast.walk(tree) if tree is not None and modules else ():
        if isinstance(node, ast.expr) and found[0] < node.lineno <= number:
            code = ast.get_source_segment(lines, node) or ""
            if len(code) < 2 * len(text) + 40 and " ".join(prefix.sub("", code).split()) == text:
                found = node.lineno, " ".join(code.split())
    return found[1]


def in_one_file(places: list[SourceLine], source: SourceLine | None) -> bool:
    """Return whether the lines of a remedy are in the file of the line that a report shows."""
    return len({place.file for place in (*places, source) if place is not None}) <= 1


def on_lines(places: list[SourceLine], in_one_file: bool) -> str:
    """Return where a change is, with the files if there are several.

    Examples
    --------
    >>> places = [SourceLine(file, 13 + i, "loss", "") for i, file in enumerate(["a.py", "b.py"])]
    >>> on_lines(places[:1], True), on_lines(places, True), on_lines(places, False)
    (' on line 13', ' on lines 13 and 14', ' at a.py:13 and b.py:14')
    """
    if not in_one_file:
        bare = (replace(place, function="<module>") for place in dict.fromkeys(places))
        return f" at {listed([place_text(place, column=False) for place in bare])}"
    known = [str(n) for n in dict.fromkeys(place.line for place in places)]
    return f" on line{'s' * (len(known) > 1)} {listed(known)}" if known else ""
