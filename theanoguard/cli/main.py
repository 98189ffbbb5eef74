"""The command ``theanoguard``."""

import argparse
import importlib
import os
import sys
from dataclasses import dataclass
from types import ModuleType
from typing import NoReturn

import theanoguard


@dataclass(frozen=True)
class Command:
    """A sub-command.

    Its module is imported only for this command, since most of them need PyTensor.
    """

    #: It has ``add_arguments(parser)``, which adds the command's arguments, and ``run(arguments)``,
    #: which runs it and returns the exit status, or a function that does the rest and returns the
    #: status.  An ``OSError`` or a ``ValueError`` from ``run`` is bad input: its message is
    #: printed, and the status is 2.
    module: str
    help: str  # one line

    def load(self) -> ModuleType:
        """Return the module."""
        return importlib.import_module(self.module)


COMMANDS = {
    "check": Command(
        "theanoguard.cli.check",
        "check the PyMC models that a script builds, before it samples them",
    ),
    "doctor": Command(
        "theanoguard.cli.doctor",
        "check the installation, or an old Theano project before you run it",
    ),
    "explain": Command(
        "theanoguard.cli.explain",
        "print the cause and the remedy of an error; its code is at the end of its report",
    ),
    "fix": Command(
        "theanoguard.cli.fix",
        "change lines of a script that fail to formulas of the same value, or show the diff",
    ),
    "lint": Command(
        "theanoguard.cli.lint",
        "find risky operations in the graphs that a script builds, without running the model",
    ),
    "report": Command("theanoguard.cli.report", "show, filter and count the events of a log"),
    "run": Command("theanoguard.cli.run", "run an unmodified Theano program on PyTensor"),
}


class Parser(argparse.ArgumentParser):
    """A parser whose errors begin with the fault instead of all options."""

    def error(self, message: str) -> NoReturn:
        """Print the message and the command that lists the options, and exit."""
        self.exit(2, f"{self.prog}: {message}\n`{self.prog} --help` lists the options.\n")


INTERRUPTED = 130  # the exit status after Ctrl-C, as a shell has it


def make_parser(argv: list[str]) -> Parser:
    """Return the parser of the command line.

    `argv`: the arguments; only the command among them is prepared.
    """
    parser = Parser(
        prog="theanoguard",
        description="Find the first NaN, Inf or big value in compiled PyTensor functions.",
    )
    version = f"theanoguard {theanoguard.__version__}"
    parser.add_argument("--version", action="version", version=version)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name, command in COMMANDS.items():
        sub = commands.add_parser(
            name, help=command.help, description=f"{command.help[0].upper()}{command.help[1:]}."
        )
        sub.set_defaults(parser=sub)
        if argv[:1] == [name]:
            command.load().add_arguments(sub)
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run the command.

    Return the exit status: 2 for wrong arguments or input, 130 after Ctrl-C.

    `argv`: the arguments; by default the process's own.

    Examples
    --------
    >>> main(["report", "no_such_file.jsonl"])
    2
    """
    argv = sys.argv[1:] if argv is None else argv
    parser = make_parser(argv)
    arguments, unknown = parser.parse_known_args(argv)
    if unknown:
        # The parser of the command names the command in its message.
        getattr(arguments, "parser", parser).error(f"unknown arguments: {' '.join(unknown)}")
    if arguments.command is None:
        parser.print_help()
        return 0
    if arguments.command != "run" and hasattr(sys.stdout, "reconfigure"):
        # What a terminal cannot show is written as Python escapes it.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        status = COMMANDS[arguments.command].load().run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:  # as in `theanoguard report log | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print(f"\ntheanoguard {arguments.command}: interrupted", file=sys.stderr)
        return INTERRUPTED
    except (OSError, ValueError) as error:
        message = str(error)
        if isinstance(error, OSError) and error.filename:
            message = f"{error.filename!r}: {error.strerror}"
        print(f"theanoguard {arguments.command}: {message}", file=sys.stderr)
        return 2
    return status() if callable(status) else status
