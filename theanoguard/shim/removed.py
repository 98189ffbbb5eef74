"""What NumPy and SciPy have removed, from the table ``removed.toml``.

`numpy_compat` restores what can be restored.  `remedy` has advice for all of it.
"""

import re
import tomllib
from pathlib import Path

import numpy as np

PATH = re.compile(r"\w+(\.\w+)+")
SCIPY_VALUES = "pi e inf nan newaxis mgrid ogrid r_ c_ s_ index_exp random".split()


def read_table() -> dict[str, dict[str, str]]:
    """Return the sections of the table, each with one name for a key."""
    content = Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
    return {
        section: {name: text for names, text in entries.items() for name in names.split()}
        for section, entries in tomllib.loads(content).items()
    }


TABLE = read_table()
MODULES = TABLE.pop("modules")
# By function, what each parameter that it has lost is called today; nothing if it can be left out.
PARAMETERS = {
    path: dict(pair.split("=") for pair in text.split())
    for path, text in TABLE.pop("parameters").items()
}
# Old releases of SciPy repeated NumPy's namespace.
TABLE["scipy"] = TABLE["numpy"] | {
    name: f"numpy.{name}"
    for name in np.__all__
    if callable(getattr(np, name)) or name in SCIPY_VALUES
}


def instead_of_parameter(function: str, name: str) -> str | None:
    """Return what to write instead of a parameter that a function has lost, or None.

    Examples
    --------
    >>> from theanoguard.shim.removed import instead_of_parameter
    >>> instead_of_parameter("numpy.histogram", "normed")
    'Write density= instead of normed='
    """
    today = PARAMETERS.get(function, {}).get(name)
    if today is None:
        return None
    return f"Write {today}= instead of {name}=" if today else f"Leave {name}= out"


def is_alias(text: str) -> bool:
    """Whether an entry of the table is the path of an object, and not advice."""
    return PATH.fullmatch(text) is not None


def entry(path: str) -> str | None:
    """Return what the table has for the dotted name of an object or a module.

    Examples
    --------
    >>> from theanoguard.shim.removed import entry
    >>> entry("numpy.alltrue"), entry("numpy.asscalar"), entry("numpy.sum")
    ('numpy.all', 'write x.item()', None)
    """
    module, _, name = path.rpartition(".")
    if module.startswith("numpy.core."):
        module = "numpy"  # its modules held the names of the namespace above
    return MODULES.get(path) or TABLE.get(module, {}).get(name)


def instead(path: str) -> str | None:
    """Return what to write instead of a removed name, or None for any other name.

    Examples
    --------
    >>> from theanoguard.shim.removed import instead
    >>> instead("numpy.alltrue")
    'write numpy.all'
    """
    text = entry(path)
    if text is None or not is_alias(text):
        return text
    if path in MODULES:
        return f"import the name from {text}"
    return f"write {text.removeprefix('builtins.')}"
