"""Run the lines that reports print in Theano programs under Theano 1.0.5.

::

    python tests/explain/theano_lines.py    # with PyTensor: writes the lines to theano_lines.json
    THEANO_FLAGS=cxx= python3.7 tests/explain/theano_lines.py    # with Theano: adds the results

The programs are those of ``tests/gallery/legacy``.  Recorded are their results with the printed
lines, and whether Theano has the names of ``theano`` that advice mentions.
"""

import functools
import importlib
import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
RECORDED = HERE / "theano_lines.json"
PROGRAMS = HERE.parent / "gallery" / "legacy" / "programs.py"


def value_of(name):
    """What a dotted name stands for, in which ``T`` is ``theano.tensor``; None if nothing."""
    first, *rest = name.split(".")
    module = importlib.import_module({"T": "theano.tensor"}.get(first, first))
    return functools.reduce(lambda owner, part: getattr(owner, part, None), rest, module)


def result_of(source, name):
    """The result of a program, of which this is the source with the printed lines."""
    import theano

    namespace = {"__name__": "printed"}
    for text in (PROGRAMS.read_text(), source):
        exec(compile(text, f"<{name}>", "exec"), namespace)
    inputs, outputs = namespace[name]()
    [value] = theano.function(inputs, outputs)(*namespace["CASES"][name][2])
    return value.tolist()


def write(recorded):
    RECORDED.write_text(json.dumps(recorded, indent=1, sort_keys=True) + "\n")


def write_lines():
    """Record the lines and names that reports print today, without results."""
    sys.path[:0] = [str(HERE), str(HERE.parent)]
    import theanoguard

    theanoguard.shim.install_theano()
    import test_theano_programs as tests

    found = {name: tests.printed(name) for name in tests.NAMES}
    programs = {name: source for name, source in found.items() if source}
    write({"programs": programs, "names": tests.names_in_advice()})


def add_results():
    """Record what the lines compute under Theano, and which of the names it does not have."""
    recorded = json.loads(RECORDED.read_text())
    programs = sorted(recorded["programs"].items())
    recorded["results"] = {name: result_of(source, name) for name, source in programs}
    recorded["missing"] = [name for name in recorded["names"] if value_of(name) is None]
    write(recorded)


if __name__ == "__main__":
    (add_results if sys.version_info < (3, 8) else write_lines)()
