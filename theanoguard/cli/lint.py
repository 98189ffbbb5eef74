"""``theanoguard lint``: check the graphs of a program when it compiles them."""

import argparse
import json
import sys
import traceback
from contextlib import redirect_stdout
from functools import wraps

from pytensor.graph.traversal import toposort

from theanoguard._json import to_plain
from theanoguard._lint import RULES, lint_values
from theanoguard._lint.view import is_backward
from theanoguard._patching import Patch, apply
from theanoguard._provenance import is_user_file, track_provenance
from theanoguard._pytensor import (
    Container,
    FunctionMaker,
    Mode,
    PerformLinker,
    Variable,
    is_numeric,
    map_storage,
)
from theanoguard.cli import run as programs
from theanoguard.shim.install import install_theano

# Where the functions inside ``scan`` and ``OpFromGraph`` are compiled: they have been checked with
# the graph around them.
_COMPILERS = tuple(
    f"pytensor/{name}"
    for name in ("scan/op.py", "compile/builders.py", "compile/inner_function.py", "link/")
)


class ModelCalled(BaseException):
    """The program calls a function, which has not been compiled."""


class Unlinked(PerformLinker):
    """Makes functions that cannot be called, without compiling anything."""

    def make_all(self, input_storage=None, output_storage=None, storage_map=None):
        """Return what a linker does, with a function that stops the program."""

        def stop():
            raise ModelCalled

        ins, outs, _ = map_storage(
            self.fgraph, self.fgraph.toposort(), input_storage, output_storage, storage_map
        )
        containers = (
            [Container(v, storage) for v, storage in zip(variables, storages, strict=True)]
            for variables, storages in ((self.fgraph.inputs, ins), (self.fgraph.outputs, outs))
        )
        stop.allow_gc = False
        return stop, *containers, [], []


class LintedRun:
    """Lints every function that is compiled between `start` and `stop`.

    Parameters
    ----------
    linked : bool
        Whether the functions are compiled as well.
    **settings
        Of :func:`theanoguard._lint.lint_values`.
    """

    def __init__(self, linked=False, **settings):
        self.linked = linked
        self.settings = settings
        self.functions = 0
        self.findings = {}

    def look_at(self, inputs, outputs):
        """Lint one function, given as ``FunctionMaker`` is."""
        inputs = [FunctionMaker.wrap_in(i) for i in inputs]
        several = isinstance(outputs, list | tuple)
        outputs = [] if outputs is None else outputs if several else [outputs]
        outputs = [FunctionMaker.wrap_out(o).variable for o in outputs]
        updates = {i.variable: i.update for i in inputs if i.update is not None}
        values = {i.variable: _shared_value(i) for i in inputs if is_numeric(i.variable.type)}
        values = {v: value for v, value in values.items() if value is not None}
        self.functions += 1
        # A compiled function cannot be differentiated, so it has all its gradients already.
        nodes = toposort([*outputs, *updates.values()])
        gradient = None if any(map(is_backward, nodes)) else False
        for finding in lint_values(outputs, updates, values, gradient=gradient, **self.settings):
            self.findings[finding] = None  # (a set that keeps its order)

    def start(self):
        """Lint what is compiled from now on, and return a function that ends it."""

        def linted(make):
            @wraps(make)
            def __init__(maker, inputs, outputs, mode=None, *args, **kwargs):
                if not _is_inner(sys._getframe(1)):
                    self.look_at(inputs, outputs)
                if not self.linked:
                    mode = Mode(Unlinked(), None)
                make(maker, inputs, outputs, mode, *args, **kwargs)

            return __init__

        return apply([Patch(FunctionMaker, "__init__", linted)])


def _is_inner(frame):
    """Whether a function is compiled for a node, and not for the program."""
    while frame is not None and not is_user_file(frame.f_code.co_filename):
        file = frame.f_code.co_filename.replace("\\", "/")
        if any(part in file for part in _COMPILERS):
            return True
        frame = frame.f_back
    return False


def _shared_value(spec):
    """The value of an input that is a shared variable, else None."""
    value = spec.value.container if isinstance(spec.value, Variable) else spec.value
    return value.storage[0] if isinstance(value, Container) else None


# ---------------------------------------------------------------- the command


def rules_argument(text):
    """The argument of ``--ignore``."""
    names = [name.strip() for name in text.split(",")]
    if unknown := [name for name in names if name not in RULES]:
        raise argparse.ArgumentTypeError(
            f"there is no rule {unknown[0]!r}; the rules are {', '.join(RULES)}"
        )
    return names


def add_arguments(parser):
    """Add the command's arguments.

    Parameters
    ----------
    parser : argparse.ArgumentParser
    """
    parser.usage = (
        "%(prog)s [--theano] [--run] [--shared-values]\n"
        "                        [--ignore RULES] [--json] SCRIPT [ARGUMENT ...]"
    )
    parser.add_argument(
        "--theano", action="store_true", help="let the script's `import theano` run on PyTensor"
    )
    parser.add_argument(
        "--run",
        action="store_true",
        dest="linked",
        help="compile and run everything, instead of stopping at the first call of a function",
    )
    parser.add_argument(
        "--shared-values",
        action="store_true",
        help="take the bounds of a shared variable from its value",
    )
    parser.add_argument(
        "--ignore",
        metavar="RULES",
        type=rules_argument,
        default=[],
        help="rules to switch off, separated by commas, such as exp-overflow,log-of-zero",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "script", metavar="SCRIPT", nargs=argparse.REMAINDER, help="a file, with its arguments"
    )


def run(arguments):
    """Run a program as far as it has to, and print what was found.

    Parameters
    ----------
    arguments : argparse.Namespace

    Returns
    -------
    int
        The exit status: 1 for findings, 0 for none, 2 for a program that fails or compiles nothing.

    Raises
    ------
    ValueError
        Without a program.
    OSError
        When it cannot be read.
    """
    if not arguments.script:
        raise ValueError("no program.\nName a file.")
    if arguments.theano:
        install_theano()
    linted = LintedRun(
        arguments.linked, shared_values=arguments.shared_values, ignore=arguments.ignore
    )
    program = programs.start_script(arguments.script)
    return lint_program(program, linted, arguments.json)


def lint_program(program, linted, as_json=False):
    """Run a program under a :class:`LintedRun`, print its findings, and return the exit status."""
    stop = linted.start()
    called = failed = None
    try:
        # Its own output must not be mixed with the findings.
        with redirect_stdout(sys.stderr), track_provenance():
            program()
    except ModelCalled as error:
        called = _user_line(error)
    except SystemExit:
        pass  # as a script ends: what it has compiled counts
    except Exception as error:
        failed = error
        own = programs.hide_own_frames(error.__traceback__)
        traceback.print_exception(type(error), error, own)
    finally:
        stop()
    findings = list(linted.findings)
    if as_json:
        plain = {"functions": linted.functions, "called": called, "findings": to_plain(findings)}
        print(json.dumps(plain, indent=2))
    else:
        for finding in findings:
            print(finding)
        print(f"{_count(findings, 'finding')} in {_count(linted.functions, 'function')}")
    sys.stdout.flush()  # so that the messages below follow the findings, also in a pipe
    if called:
        message = f"stopped at {called}, where a function is called; --run lints what comes after"
        print(f"theanoguard lint: {message}", file=sys.stderr)
    if failed is None and not linted.functions:
        print(
            "theanoguard lint: the program has compiled no function.\n"
            "Lint checks the graphs that a program passes to pytensor.function.",
            file=sys.stderr,
        )
    return 2 if failed is not None or not linted.functions else bool(findings)


def _user_line(error):
    """The innermost of the program's own lines in a traceback, as ``file:line``."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [f"{f.filename}:{f.lineno}" for f in frames if is_user_file(f.filename)]
    return lines[-1] if lines else "?"


def _count(what, noun):
    number = what if isinstance(what, int) else len(what)
    return f"{number} {noun}{'' if number == 1 else 's'}"
