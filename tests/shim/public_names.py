"""Record the functions and classes of Theano's modules, for tests/shim/test_names.py.

::

    python3.7 tests/shim/public_names.py

Modules of the GPU, of tests and of scripts that run when they are imported are left out.
"""

import importlib
import json
import re
from pathlib import Path

LEFT_OUT = re.compile(r"\.tests?\b|\.test_|gpuarray|cuda|check_|generated")
RECORDED = Path(__file__).with_suffix(".json")


def modules():
    """Return the names of Theano's modules."""
    import theano  # (pytest collects this module without Theano)

    root = Path(theano.__file__).parent
    names = {
        ".".join(("theano",) + path.relative_to(root).with_suffix("").parts).replace(
            ".__init__", ""
        )
        for path in root.rglob("*.py")
    }
    return sorted(name for name in names if not LEFT_OUT.search(name))


def defined(name):
    """Return the public functions and classes that a module defines."""
    try:
        found = vars(importlib.import_module(name))
    except (ImportError, AttributeError):
        return ""
    return " ".join(
        sorted(
            key
            for key, value in found.items()
            if key[0] != "_" and callable(value) and getattr(value, "__module__", "") == name
        )
    )


if __name__ == "__main__":
    table = {name: names for name in modules() for names in [defined(name)] if names}
    RECORDED.write_text(json.dumps(table, indent=1, sort_keys=True) + "\n", "utf-8")
