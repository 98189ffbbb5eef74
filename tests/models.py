"""The faulty models under ``gallery``."""

import ast
import importlib.util
import sys
from functools import cache
from pathlib import Path

GALLERY = sorted((Path(__file__).parent / "gallery").glob("*.py"))

# Files with several models each: functions with a truth of the same name.
KINDS = sorted((Path(__file__).parent / "gallery" / "kinds").glob("*.py"))


@cache
def load(path):
    """Return a file of the gallery as a module."""
    spec = importlib.util.spec_from_file_location(f"gallery_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # for what is pickled by reference
    spec.loader.exec_module(module)
    return module


def marked_line(path):
    """Return the number of the line marked as the culprit, None where there is none."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return next((n for n, line in enumerate(lines, 1) if line.endswith("# culprit")), None)


def marked_line_of(path, function):
    """Return the number of the marked line of one function of a file, None where there is none."""
    text = path.read_text(encoding="utf-8")
    [found] = [n for n in ast.parse(text).body if getattr(n, "name", None) == function]
    numbered = list(enumerate(text.splitlines(), 1))[found.lineno - 1 : found.end_lineno]
    return next((n for n, line in numbered if line.endswith("# culprit")), None)


@cache
def load_text(path):
    """The source of a file of the gallery."""
    return path.read_text(encoding="utf-8")


def with_change(path, name, change):
    """The source of a file in which a function has the lines that a report prints."""
    lines = load_text(path).splitlines()
    begin = next(i for i, line in enumerate(lines) if line.startswith(f"def {name}("))
    for old, new in zip(change[::2], change[1::2], strict=True):
        at = next(i for i in range(begin, len(lines)) if lines[i].strip().startswith(old))
        indent = lines[at][: len(lines[at]) - len(lines[at].lstrip())]
        lines[at] = "\n".join(indent + line for line in new.splitlines())
    return "\n".join(lines)
