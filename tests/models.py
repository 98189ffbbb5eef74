"""The faulty models under ``gallery``."""

import importlib.util
import sys
from pathlib import Path

GALLERY = sorted((Path(__file__).parent / "gallery").glob("*.py"))


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
