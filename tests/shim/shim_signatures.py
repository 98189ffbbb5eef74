"""Record the arguments of Theano's functions, for tests/shim/test_signatures.py.

::

    python3.7 tests/shim/shim_signatures.py > tests/shim/shim_signatures.json

The file was written with Theano 1.0.5.
"""

import importlib
import inspect
import json

MODULES = """
    theano theano.gradient theano.ifelse theano.printing theano.sandbox.rng_mrg theano.sparse
    theano.tensor theano.tensor.extra_ops theano.tensor.fft theano.tensor.nlinalg
    theano.tensor.nnet theano.tensor.nnet.abstract_conv theano.tensor.nnet.bn
    theano.tensor.nnet.conv theano.tensor.nnet.neighbours theano.tensor.opt
    theano.tensor.raw_random theano.tensor.shared_randomstreams theano.tensor.signal.conv
    theano.tensor.signal.pool theano.tensor.slinalg theano.tensor.sort theano.tensor.subtensor
""".split()


def arguments(function):
    """Return the names of the arguments, with those defaults that are plain values."""
    found = {}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL or parameter.kind is parameter.VAR_KEYWORD:
            continue
        default = parameter.default
        is_plain = isinstance(default, (bool, int, float, str))
        found[parameter.name] = repr(default) if is_plain else ""
    return found


def functions(path):
    """Return the public functions of a module that are Theano's own, with their arguments."""
    module = importlib.import_module(path)
    return {
        name: arguments(function)
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if name[0] != "_" and function.__module__.startswith("theano.")
    }


if __name__ == "__main__":
    recorded = {path: functions(path) for path in MODULES}
    print(json.dumps(recorded, separators=(",", ":")).replace("},", "},\n"))
