"""``theanoguard check``: check the PyMC models of a program before it samples them."""

import argparse
import json
import sys

from theanoguard.cli.lint import add_search, run_beside
from theanoguard.pymc import check
from theanoguard.pymc.built import BuiltModels, Sampled
from theanoguard.pymc.checking import SECONDS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.usage = "%(prog)s [--run] [--seconds SECONDS] [--json] SCRIPT [ARGUMENT ...]"
    parser.add_argument(
        "--run",
        action="store_true",
        help="run everything, instead of stopping where a model is sampled",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_search(parser, "each model for failing points", SECONDS)


def run(arguments: argparse.Namespace) -> int:
    """Run a program up to where it samples a model, and print what the check of its models finds.

    - Returns: the exit status: 1 for findings, 0 for none, 2 for a program that fails or builds no
      model, and if a part of a check has failed.
    - Raises ``ValueError``: without a program, or without PyMC.
    - Raises ``OSError``: when it cannot be read.
    """
    if not arguments.script:
        raise ValueError("no program.\nName a file.")
    built = BuiltModels(stops=not arguments.run)
    called, failed = run_beside(arguments.script, built.start(), Sampled)
    checks = [check(model, seconds=arguments.seconds) for model in built.taken()]
    if arguments.json:
        print(json.dumps([json.loads(one.to_json()) for one in checks], indent=2))
    else:
        print("\n\n".join(map(str, checks)))
    sys.stdout.flush()  # so that the messages below follow the findings, also in a pipe
    if called:
        message = f"stopped at {called}, where a model is sampled; --run checks what comes after"
        print(f"theanoguard check: {message}", file=sys.stderr)
    if not failed and not checks:
        print("theanoguard check: the program has built no PyMC model.", file=sys.stderr)
    if failed or not checks or any(one.failed for one in checks):
        return 2
    return int(any(one.findings for one in checks))
