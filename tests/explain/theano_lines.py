"""Run the lines that reports print in Theano programs under Theano 1.0.5.

::

    python tests/explain/theano_lines.py    # with PyTensor: writes the lines to theano_lines.json
    THEANO_FLAGS=cxx= python3.7 tests/explain/theano_lines.py    # with Theano: adds the results

The programs are those of ``tests/gallery/legacy``.  Recorded are their results with the printed
lines, the formulas for functions that Theano does not have, and whether Theano has the names of
``theano`` that advice mentions.
"""

import functools
import importlib
import json
import sys
from pathlib import Path

import numpy as np

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


# At what the formulas of Theano are computed.  (`log1mexp` takes numbers below 0.)
X = [[-0.5, -3.0], [-20.0, -0.001]]
Y = [[3.0, -4.0], [0.0, 1.0]]


def value_at(text):
    """The value of a formula under Theano."""
    import theano

    shared = {name: theano.shared(np.array(values)) for name, values in (("x", X), ("y", Y))}
    return eval(text, dict(shared, pt=theano.tensor)).eval().tolist()


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
    texts = sorted(text for several in tests.formulas().values() for text in several)
    formulas = dict.fromkeys(texts)
    write({"programs": programs, "names": tests.names_in_advice(), "formulas": formulas})


def add_results():
    """Record what the lines compute under Theano, and which of the names it does not have."""
    recorded = json.loads(RECORDED.read_text())
    programs = sorted(recorded["programs"].items())
    recorded["results"] = {name: result_of(source, name) for name, source in programs}
    recorded["formulas"] = {text: value_at(text) for text in recorded["formulas"]}
    recorded["missing"] = [name for name in recorded["names"] if value_of(name) is None]
    write(recorded)


if __name__ == "__main__":
    (add_results if sys.version_info < (3, 8) else write_lines)()
