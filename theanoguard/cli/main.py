"""The command ``theanoguard``."""

import argparse
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass

from theanoguard._environment import version_of
from theanoguard.cli import doctor, run
from theanoguard.cli import lint as lintscript
from theanoguard.cli import report as logreport


@dataclass(frozen=True)
class Command:
    """A sub-command.

    Parameters
    ----------
    help : str
        One line.
    add_arguments : callable
        ``add_arguments(parser)`` adds its arguments.
    run : callable
        ``run(arguments)`` runs it and returns the exit status, or a function that does what is
        left and returns it.  An ``OSError`` or a ``ValueError`` from ``run`` is bad input: its
        message is shown, and the status is 2.
    """

    help: str
    add_arguments: Callable
    run: Callable


COMMANDS = {
    "doctor": Command(
        "what a bug report needs, and what would go wrong on this machine",
        doctor.add_arguments,
        doctor.run,
    ),
    "lint": Command(
        "find risky patterns in the graphs that a script builds, without running the model",
        lintscript.add_arguments,
        lintscript.run,
    ),
    "report": Command(
        "show, filter and count the events of a log",
        logreport.add_arguments,
        logreport.run,
    ),
    "run": Command(
        "run a Theano program, unmodified, on PyTensor",
        run.add_arguments,
        run.run,
    ),
}


def make_parser():
    """Return the parser of the command line.

    Returns
    -------
    argparse.ArgumentParser
    """
    parser = argparse.ArgumentParser(
        prog="theanoguard",
        description="Where, why and when numbers go bad inside compiled PyTensor graphs.",
    )
    version = version_of("theanoguard") or "(not installed as a package)"
    parser.add_argument("--version", action="version", version=f"theanoguard {version}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, command in COMMANDS.items():
        sub = commands.add_parser(name, help=command.help, description=f"{name}: {command.help}.")
        command.add_arguments(sub)
    return parser


def main(argv=None):
    """Run the command.

    Parameters
    ----------
    argv : list of str or None
        Arguments; None takes those of the process.

    Returns
    -------
    int
        The exit status: 2 for wrong arguments or input.

    Examples
    --------
    >>> main(["report", "no_such_file.jsonl"])
    2
    """
    arguments = make_parser().parse_args(argv)
    try:
        status = COMMANDS[arguments.command].run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:  # as in `theanoguard report log | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (OSError, ValueError) as error:
        known = isinstance(error, OSError) and error.filename
        message = f"{error.filename!r}: {error.strerror}" if known else error
        print(f"theanoguard {arguments.command}: {message}", file=sys.stderr)
        return 2
    return status() if callable(status) else status
