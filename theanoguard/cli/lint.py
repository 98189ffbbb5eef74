"""``theanoguard lint``: check the graphs of a program when it compiles them."""

import argparse
import json
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stdout
from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np

from theanoguard._arguments import did_you_mean
from theanoguard._json import to_plain
from theanoguard._lint import RULES, SECONDS, Finding
from theanoguard._lint.every_function import LintedRun, ModelCalled, is_inner
from theanoguard._patching import Patch, apply
from theanoguard._progress import searching
from theanoguard._provenance import is_user_file, track_provenance
from theanoguard._pytensor import FunctionMaker
from theanoguard.cli import run as programs
from theanoguard.cli.seconds import seconds_argument
from theanoguard.shim.install import install_theano

# ---------------------------------------------------------------- the command


def rules_argument(text: str) -> list[str]:
    """The argument of ``--ignore``."""
    names = [name.strip() for name in text.split(",")]
    if unknown := [name for name in names if name not in RULES]:
        near = did_you_mean(unknown[0], RULES)
        raise argparse.ArgumentTypeError(
            f"there is no rule {unknown[0]!r}{near}; the rules are {', '.join(RULES)}"
        )
    return names


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
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
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_search(parser)


def add_search(
    parser: argparse.ArgumentParser,
    searched: str = "each function for failing inputs",
    seconds: float = SECONDS,
) -> None:
    """Add the arguments of a command that searches what a program builds."""
    parser.add_argument(
        "--seconds",
        type=seconds_argument,
        default=seconds,
        help=f"how long to search {searched} (default: {seconds:g})",
    )
    parser.add_argument(
        "script", metavar="SCRIPT", nargs=argparse.REMAINDER, help="a file, with its arguments"
    )


def run(arguments: argparse.Namespace) -> int:
    """Run a program as far as it has to, and print what was found.

    - Returns: the exit status: 1 for findings, 0 for none, 2 for a program that fails or compiles
      nothing, and if a function could not be searched.
    - Raises ``ValueError``: without a program.
    - Raises ``OSError``: when it cannot be read.
    """
    if not arguments.script:
        raise ValueError("no program.\nName a file.")
    if arguments.theano:
        install_theano()
    linted = LintedRun(
        arguments.linked, shared_values=arguments.shared_values, ignore=arguments.ignore
    )
    called, failed = run_beside(arguments.script, linted.start())
    with searching("lint"):
        findings = linted.findings(arguments.seconds)
    if not arguments.all:
        findings = [finding for finding in findings if finding.witness is not None]
    if arguments.witness and findings:
        tests = tests_of(arguments.script, linted, findings)
        Path(arguments.witness).write_text(tests, encoding="utf-8")
    functions = len(linted.seen)
    not_searched = {seen.title: seen.why_not for seen in linted.seen if seen.why_not}
    ranges = {seen.title: seen.ranges for seen in linted.seen if seen.ranges}
    if arguments.json:
        plain = {
            "functions": functions,
            "called": called,
            "findings": to_plain(findings),
            "not_searched": not_searched,
            "ranges": to_plain(ranges),
        }
        print(json.dumps(plain, indent=2))
    else:
        for finding in findings:
            print(finding)
        print(f"{_count(findings, 'finding')} in {_count(functions, 'function')}")
    sys.stdout.flush()  # so that the messages below follow the findings, also in a pipe
    if called:
        message = f"stopped at {called}, where a function is called; --run lints what comes after"
        print(f"theanoguard lint: {message}", file=sys.stderr)
    for title, of_inputs in ranges.items():
        said = ", ".join(
            f"{name} from {lo:.6g} to {hi:.6g}" for name, (lo, hi) in of_inputs.items()
        )
        print(f"theanoguard lint: {title}: searched {said}, as in its calls", file=sys.stderr)
    for title, why in not_searched.items():
        print(f"theanoguard lint: {title}: not searched: lint {why}", file=sys.stderr)
    if not failed and not functions:
        print(
            "theanoguard lint: the program has compiled no function.\n"
            "Lint checks the graphs that a program passes to pytensor.function.",
            file=sys.stderr,
        )
    return 2 if failed or not functions or not_searched else int(bool(findings))


def run_beside(
    script: Sequence[str], stop: Callable[[], None], stopped: type[BaseException] = ModelCalled
) -> tuple[str | None, bool]:
    """Run a program while something watches it, which `stop` ends.

    Returns
    -------
    called : str or None
        The line where the program was stopped, by an error of the type `stopped`.
    failed : bool
        Whether the program raised.
    """
    try:
        program = programs.start_script(list(script))
        # Its own output must not be mixed with the findings.
        with redirect_stdout(sys.stderr), track_provenance():
            program()
    except stopped as error:
        return _user_line(error), False
    except SystemExit:
        pass  # as a script ends: what it has compiled counts
    except Exception as error:
        own = programs.hide_own_frames(error.__traceback__)
        traceback.print_exception(type(error), error, own)
        return None, True
    finally:
        stop()
    return None, False


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

    `script`: the program and its arguments.
    `findings`: those with witnesses.
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

    `script`: the program and its arguments.
    `number`: which of the functions that it compiles, from 0.

    Raises ``ValueError``: if the program compiles fewer functions.
    """
    made: list[Any] = []

    def watched(create: Any) -> Any:
        @wraps(create)
        def function(maker: Any, *args: Any, **kwargs: Any) -> Any:
            result = create(maker, *args, **kwargs)
            if not is_inner(sys._getframe(1)):
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
