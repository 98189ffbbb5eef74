"""Compile what a report prints in the user's module, with its names and imports."""

import ast
import linecache
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from types import ModuleType
from typing import Any

import numpy as np

from theanoguard._provenance.places import place_text
from theanoguard._provenance.source import SourceLine
from theanoguard.explain.advice.source_edit import listed

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

_WORDS_IN_THEANO = (
    (
        "Use {pt}.ive(v, x), which is iv times exp(-abs(x)): log(i0(x)) = log(ive(0, x)) + abs(x).",
        "For large x, log(i0(x)) is abs(x) - log(2 * pi * abs(x)) / 2, up to 1 / (8 * abs(x)).",
    ),
    ("pytensor.gradient", "theano.gradient"),
    ("{pt}.logsumexp", f"{STABLE}.logsumexp"),
)
"""Advice with functions that Theano 1.0.5 does not have, and what to write there."""

_NAMES_IN_THEANO = {
    "log_softmax": "{pt}.nnet.logsoftmax",
    "softplus": "{pt}.nnet.softplus",
    "sigmoid": "{pt}.nnet.sigmoid",
    "logsumexp": f"{STABLE}.logsumexp",
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


def is_known(words: str, source: SourceLine | None) -> bool:
    """Return whether the module of a line has the functions that a remedy in words names."""
    in_theano = source is not None and name_of_theano(source.file, source.text) is not None
    return not (in_theano and _NOT_IN_THEANO.search(words))


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


def spelled(code: str, file: str, modules: list[str], numpy: list[str]) -> Iterator[str]:
    """Yield code of a remedy with the names that PyTensor's modules may have on a line.

    `modules`: names of PyTensor's module that the line is known to have.
    `numpy`: those of NumPy.
    """
    code = re.sub(r"\bpt\.", "{pt}.", code)
    templates = [code]
    for pattern, theano in IN_THEANO:
        if pattern.search(code):
            templates.append(pattern.sub(theano, code))
    others = [n for n in aliases(file, "") if only_imported(n, file)]
    outer = globals_of(file)
    others_np = [n for n, v in outer.items() if v is np and only_imported(n, file)]
    of_numpy = [*numpy, *others_np, "np"]
    own = [n for n, v in outer.items() if getattr(v, "__name__", "") == STABLE]
    stable = own[0] if own else STABLE
    for name in dict.fromkeys([*modules, *others, "pt"]):
        for template in templates:
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
