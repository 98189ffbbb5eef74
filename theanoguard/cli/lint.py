"""``theanoguard lint``: check the graphs of a program when it compiles them."""

import argparse
import json
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field, replace
from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import toposort

from theanoguard._json import to_plain
from theanoguard._lint import (
    RULES,
    SECONDS,
    Asked,
    Finding,
    Static,
    lint_values,
    reported,
    witnessed,
)
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
    """Makes functions that cannot be called, without compiling anything.

    Parameters
    ----------
    called : callable
        Called with the values of the inputs, by variable, when the program calls the function.
    """

    def __init__(self, called: Callable[[dict], None]) -> None:
        super().__init__()
        self.called = called

    def make_all(
        self, input_storage: Any = None, output_storage: Any = None, storage_map: Any = None
    ) -> tuple:
        """Return what a linker does, with a function that stops the program."""
        variables = list(self.fgraph.inputs)
        ins, outs, _ = map_storage(
            self.fgraph, self.fgraph.toposort(), input_storage, output_storage, storage_map
        )

        def stop() -> None:
            self.called({v: cell[0] for v, cell in zip(variables, ins, strict=True)})
            raise ModelCalled

        containers = (
            [Container(v, storage) for v, storage in zip(variables, storages, strict=True)]
            for variables, storages in ((self.fgraph.inputs, ins), (self.fgraph.outputs, outs))
        )
        stop.allow_gc = False  # type: ignore[attr-defined]
        return stop, *containers, [], []


@dataclass
class Seen:
    """A graph that was compiled.

    Parameters
    ----------
    outputs : list of Variable
    updates : dict of Variable to Variable
    values : dict of Variable to array
        Of shared variables.
    static : list of Static
    mode : Mode or None
    gradient : bool or None
    examples : list of dict of Variable to value
        The inputs of calls.
    """

    outputs: list[Variable]
    updates: dict[Variable, Variable]
    values: dict[Variable, Any]
    static: list[Static]
    mode: Any
    gradient: bool | None
    examples: list[dict[Variable, Any]] = field(default_factory=list)

    def call(self, values: dict[Variable, Any]) -> None:
        """Remember the inputs of a call."""
        if len(self.examples) < CALLS:
            self.examples.append({v: np.copy(x) for v, x in values.items() if is_numeric(v.type)})

    def findings(self, ignore: Sequence[str], seconds: float) -> list[Finding]:
        """Return the findings, those with a witness first."""
        asked = Asked({}, self.examples, self.gradient, self.mode, seconds)
        try:
            return witnessed(self.outputs, self.updates, self.static, asked, ignore)
        except ValueError as error:
            remark = str(error).partition("\n")[0]
            return reported([replace(one.finding, remark=remark) for one in self.static], ignore)


CALLS = 20
"""Calls of a function whose inputs are remembered."""


class LintedRun:
    """Lints every function that is compiled between `start` and `stop`.

    Parameters
    ----------
    linked : bool
        Whether the functions are compiled as well.
    **settings
        Of :func:`theanoguard._lint.lint_values`.
    """

    def __init__(self, linked: bool = False, **settings: Any) -> None:
        self.linked = linked
        self.settings = settings
        self.seen: list[Seen] = []
        self.numbers: dict[Finding, int] = {}

    def look_at(self, inputs: Any, outputs: Any, mode: Any) -> Seen:
        """Note one function, given as ``FunctionMaker`` is."""
        inputs = [FunctionMaker.wrap_in(i) for i in inputs]
        several = isinstance(outputs, list | tuple)
        outputs = [] if outputs is None else outputs if several else [outputs]
        outputs = [FunctionMaker.wrap_out(o).variable for o in outputs]
        updates = {i.variable: i.update for i in inputs if i.update is not None}
        values = {i.variable: _shared_value(i) for i in inputs if is_numeric(i.variable.type)}
        values = {v: value for v, value in values.items() if value is not None}
        if self.linked:  # the compiler rewrites the graph in place
            copies = clone_replace([*outputs, *updates.values()], {})
            outputs, news = copies[: len(outputs)], copies[len(outputs) :]
            updates = dict(zip(updates, news, strict=True))
        # A compiled function cannot be differentiated, so it has all its gradients already.
        nodes = toposort([*outputs, *updates.values()])
        gradient = None if any(map(is_backward, nodes)) else False
        static = lint_values(outputs, updates, values, gradient=gradient, **self.settings)
        seen = Seen(outputs, updates, values, static, mode, gradient)
        self.seen.append(seen)
        return seen

    def findings(self, seconds: float) -> list[Finding]:
        """Return the findings in all functions, each once, with a witness if there is one."""
        ignore = self.settings.get("ignore", ())
        best: dict[Finding, Finding] = {}
        for number, seen in enumerate(self.seen):
            for finding in seen.findings(ignore, seconds):
                if finding not in best or best[finding].witness is None:
                    best[finding] = finding
                    self.numbers[finding] = number
        return list(best.values())

    def number_of(self, finding: Finding) -> int:
        """Return which of the functions a finding belongs to."""
        return self.numbers[finding]

    def start(self) -> Callable[[], None]:
        """Lint what is compiled from now on, and return a function that ends it."""

        def linted(make: Any) -> Any:
            @wraps(make)
            def __init__(
                maker: Any, inputs: Any, outputs: Any, mode: Any = None, *args: Any, **kwargs: Any
            ) -> None:
                called: Callable[[dict], None] = _forget
                if not _is_inner(sys._getframe(1)):
                    called = self.look_at(inputs, outputs, mode).call
                if not self.linked:
                    mode = Mode(Unlinked(called), None)
                make(maker, inputs, outputs, mode, *args, **kwargs)

            return __init__

        return apply([Patch(FunctionMaker, "__init__", linted)])


def _forget(values: dict[Variable, Any]) -> None:
    """Do nothing with the inputs of a call."""


def _is_inner(frame: Any) -> bool:
    """Whether a function is compiled for a node, and not for the program."""
    while frame is not None and not is_user_file(frame.f_code.co_filename):
        file = frame.f_code.co_filename.replace("\\", "/")
        if any(part in file for part in _COMPILERS):
            return True
        frame = frame.f_back
    return False


def _shared_value(spec: Any) -> Any:
    """The value of an input that is a shared variable, else None."""
    value = spec.value.container if isinstance(spec.value, Variable) else spec.value
    return value.storage[0] if isinstance(value, Container) else None


# ---------------------------------------------------------------- the command


def rules_argument(text: str) -> list[str]:
    """The argument of ``--ignore``."""
    names = [name.strip() for name in text.split(",")]
    if unknown := [name for name in names if name not in RULES]:
        raise argparse.ArgumentTypeError(
            f"there is no rule {unknown[0]!r}; the rules are {', '.join(RULES)}"
        )
    return names


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments.

    Parameters
    ----------
    parser : argparse.ArgumentParser
    """
    parser.usage = (
        "%(prog)s [--theano] [--run] [--shared-values] [--all] [--witness FILE]\n"
        "                        [--seconds SECONDS] [--ignore RULES] [--json]\n"
        "                        SCRIPT [ARGUMENT ...]"
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
    parser.add_argument(
        "--all",
        action="store_true",
        help="print operations for which no failing input was found, too",
    )
    parser.add_argument(
        "--witness", metavar="FILE", help="write a pytest test of each failing input into a file"
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=SECONDS,
        help=f"how long to search each function for failing inputs (default: {SECONDS:g})",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "script", metavar="SCRIPT", nargs=argparse.REMAINDER, help="a file, with its arguments"
    )


def run(arguments: argparse.Namespace) -> int:
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
    return lint_program(program, linted, arguments)


def lint_program(
    program: Callable[[], Any], linted: LintedRun, arguments: argparse.Namespace
) -> int:
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
    findings = linted.findings(arguments.seconds)
    if not arguments.all:
        findings = [finding for finding in findings if finding.witness is not None]
    if arguments.witness and findings:
        tests = tests_of(arguments.script, linted, findings)
        Path(arguments.witness).write_text(tests, encoding="utf-8")
    functions = len(linted.seen)
    if arguments.json:
        plain = {"functions": functions, "called": called, "findings": to_plain(findings)}
        print(json.dumps(plain, indent=2))
    else:
        for finding in findings:
            print(finding)
        print(f"{_count(findings, 'finding')} in {_count(functions, 'function')}")
    sys.stdout.flush()  # so that the messages below follow the findings, also in a pipe
    if called:
        message = f"stopped at {called}, where a function is called; --run lints what comes after"
        print(f"theanoguard lint: {message}", file=sys.stderr)
    if failed is None and not functions:
        print(
            "theanoguard lint: the program has compiled no function.\n"
            "Lint checks the graphs that a program passes to pytensor.function.",
            file=sys.stderr,
        )
    return 2 if failed is not None or not functions else int(bool(findings))


def _user_line(error: BaseException) -> str:
    """The innermost of the program's own lines in a traceback, as ``file:line``."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [f"{f.filename}:{f.lineno}" for f in frames if is_user_file(f.filename)]
    return lines[-1] if lines else "?"


def _count(what: Any, noun: str) -> str:
    number = what if isinstance(what, int) else len(what)
    return f"{number} {noun}{'' if number == 1 else 's'}"


# ---------------------------------------------------------------- witnesses as tests

_HEAD = '''"""Inputs at which functions of {script} fail, found by ``theanoguard lint``."""

import numpy as np

from theanoguard.cli.lint import compiled_by

SCRIPT = {arguments!r}
'''
_TEST = """

def test_{name}():
    # {finding}
    function = compiled_by(SCRIPT, {number})
    results = function({inputs})
    assert all(np.isfinite(result).all() for result in results)
"""


def tests_of(script: Sequence[str], linted: LintedRun, findings: Sequence[Finding]) -> str:
    """Return the source of a pytest module with a test for each witness.

    Parameters
    ----------
    script : sequence of str
        The program and its arguments.
    linted : LintedRun
    findings : sequence of Finding
        With witnesses.
    """
    parts = [_HEAD.format(script=script[0], arguments=list(script))]
    names: set[str] = set()
    for finding in findings:
        witness = finding.witness
        if witness is None:
            continue
        line = "" if finding.source is None else f"_line_{finding.source.line}"
        name = next(n for n in _names(finding.rule.replace("-", "_") + line) if n not in names)
        names.add(name)
        number = linted.number_of(finding)
        inputs = ", ".join(map(_source_of, witness.inputs.values()))
        shown = str(finding).partition("\n")[0]
        parts.append(_TEST.format(name=name, finding=shown, number=number, inputs=inputs))
    return "".join(parts)


def _names(name: str) -> Iterator[str]:
    yield name
    for i in range(2, 1000):
        yield f"{name}_{i}"


def _source_of(value: np.ndarray) -> str:
    """Return code for an array."""
    with np.printoptions(threshold=10_000, floatmode="unique"):
        text = repr(np.asarray(value).tolist()).replace("inf", "np.inf").replace("nan", "np.nan")
    return f"np.array({text}, {str(np.asarray(value).dtype)!r})"


class _Compiled(BaseException):
    """The function that is asked for has been compiled."""


def compiled_by(script: Sequence[str], number: int) -> Any:
    """Run a program up to a function that it compiles, and return that function.

    Parameters
    ----------
    script : sequence of str
        The program and its arguments.
    number : int
        Which of the functions that it compiles, from 0.

    Raises
    ------
    ValueError
        If the program compiles fewer functions.
    """
    made: list[Any] = []

    def watched(create: Any) -> Any:
        @wraps(create)
        def function(maker: Any, *args: Any, **kwargs: Any) -> Any:
            result = create(maker, *args, **kwargs)
            if not _is_inner(sys._getframe(1)):
                made.append(result)
                if len(made) > number:
                    raise _Compiled
            return result

        return function

    kept = sys.argv[:], sys.path[:], sys.modules["__main__"]
    stop = apply([Patch(FunctionMaker, "create", watched)])
    try:
        programs.start_script(list(script))()
    except _Compiled:
        pass
    finally:
        stop()
        sys.argv[:], sys.path[:], sys.modules["__main__"] = kept
    if len(made) <= number:
        raise ValueError(
            f"{script[0]} compiles {len(made)} functions, not {number + 1}.\n"
            "It has changed: run theanoguard lint --witness again."
        )
    return _listing(made[number])


def _listing(function: Any) -> Callable[..., list[Any]]:
    """Return a function whose result is always a list."""

    def call(*arguments: Any) -> list[Any]:
        results = function(*arguments)
        return list(results) if isinstance(results, list | tuple) else [results]

    return call
