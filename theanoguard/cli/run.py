"""``theanoguard run``: an unmodified program under the shim, and under the guard on request."""

import argparse
import builtins
import functools
import linecache
import math
import os
import runpy
import sys
import zipfile
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from types import ModuleType, TracebackType

from theanoguard.cli.children import set_up, set_up_children
from theanoguard.guard.every_function import ALL_KINDS, kinds
from theanoguard.shim.advice import add_advice

Program = Callable[[], object]  # runs a program to its end


def kinds_argument(text: str) -> dict[str, bool]:
    """The argument of ``--guard``."""
    try:
        return kinds(text)
    except ValueError as error:
        text = f"{error}, as in --guard {ALL_KINDS} SCRIPT"
        raise argparse.ArgumentTypeError(text) from error


def threshold_argument(text: str) -> float:
    """The argument of ``--guard-threshold``."""
    try:
        size = float(text)
    except ValueError:
        size = math.nan
    if not 0 < size < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no size above 0, such as 1e12")
    return size


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.usage = (
        "%(prog)s [--guard KINDS] [--guard-threshold SIZE] [--action ACTION]\n"
        "                       [--judge JUDGE] [--log FILE] [--numpy-compat] [--python-compat]\n"
        "                       (SCRIPT | -m MODULE | -c CODE) [ARGUMENT ...]"
    )
    parser.add_argument(
        "--guard",
        metavar="KINDS",
        type=kinds_argument,
        help="guard every function that the program compiles: nan,inf,big or some of them",
    )
    parser.add_argument(
        "--guard-threshold",
        metavar="SIZE",
        type=threshold_argument,
        help="with --guard big: the largest size that is allowed (default: 1e10)",
    )
    parser.add_argument(
        "--action",
        choices=["raise", "warn", "record"],
        help="what to do at a bad value (default: raise)",
    )
    parser.add_argument(
        "--judge",
        choices=["node", "result"],
        help="report each bad value, or only if an output or update is bad (default: node)",
    )
    parser.add_argument("--log", metavar="FILE", help="write the events to a log")
    parser.add_argument(
        "--numpy-compat",
        action="store_true",
        help="restore old names of NumPy and SciPy, such as np.int",
    )
    parser.add_argument(
        "--python-compat",
        action="store_true",
        help="restore library names of Python 3.7, such as collections.Iterable",
    )
    program = parser.add_mutually_exclusive_group()
    program.add_argument(
        "-m", dest="module", metavar="MODULE", nargs=argparse.REMAINDER, help="run a module"
    )
    program.add_argument(
        "-c", dest="code", metavar="CODE", nargs=argparse.REMAINDER, help="run a string"
    )
    parser.add_argument(
        "script",
        metavar="SCRIPT",
        nargs=argparse.REMAINDER,
        help="run a file, with its arguments; - is standard input",
    )


def new_main() -> ModuleType:
    """Return a module as Python makes it for a program, in the place of ``__main__``."""
    main = sys.modules["__main__"] = ModuleType("__main__")
    vars(main).update(__builtins__=builtins, __annotations__={})
    return main


def put_first(directory: str) -> None:
    """Put a directory in the place on the path where Python puts that of the program."""
    if not sys.flags.safe_path:
        sys.path[0] = directory


def start_script(argv: list[str]) -> Program:
    """Return a function that runs a file, or the program in a directory or zip file.

    The file ``-`` is standard input.

    Raises ``OSError``: when the file cannot be read.
    """
    path = os.path.join(os.getcwd(), argv[0])  # "./" in it stays, as Python has it
    sys.argv[:] = argv
    main = new_main()
    if argv[0] == "-":
        put_first("")
        program = compile(sys.stdin.read(), "<stdin>", "exec", dont_inherit=True)
        return lambda: exec(program, vars(main))
    if os.path.isdir(path) or zipfile.is_zipfile(path):
        sys.path[0] = path
        return lambda: runpy._run_module_as_main("__main__", False)  # type: ignore[attr-defined]
    loader = SourceFileLoader("__main__", path)
    source = loader.get_data(path)
    put_first(os.path.dirname(os.path.realpath(path)))
    vars(main).update(__file__=path, __cached__=None, __loader__=loader)
    return lambda: exec(compile(source, path, "exec", dont_inherit=True), vars(main))


def start_module(argv: list[str]) -> Program:
    """Return a function that runs a module as ``python -m`` does."""
    put_first(os.getcwd())
    sys.argv[:] = ["-m", *argv[1:]]
    new_main()
    return lambda: runpy._run_module_as_main(argv[0])  # type: ignore[attr-defined]


def start_code(argv: list[str]) -> Program:
    """Return a function that runs a string."""
    put_first("")
    sys.argv[:] = ["-c", *argv[1:]]
    main = new_main()
    if sys.version_info >= (3, 13):  # from there on, tracebacks show the lines of the string
        lines = argv[0].splitlines(keepends=True)
        linecache.cache["<string>"] = (len(argv[0]), None, lines, "<string>")
    return lambda: exec(compile(argv[0], "<string>", "exec", dont_inherit=True), vars(main))


def hide_own_frames(traceback: TracebackType | None) -> TracebackType | None:
    """The part of a traceback that begins where the program does."""
    while traceback and traceback.tb_frame.f_code.co_filename != __file__:
        traceback = traceback.tb_next
    while traceback and traceback.tb_frame.f_code.co_filename == __file__:
        traceback = traceback.tb_next
    return traceback


def run_program(program: Program) -> int:
    """Run a program, and return 0.  Its traceback has only its own frames, and may have advice."""
    try:
        program()
    except BaseException as error:
        add_advice(error)
        hook = sys.excepthook

        def excepthook(
            kind: type[BaseException], error: BaseException, traceback: TracebackType | None
        ) -> None:
            own = hide_own_frames(traceback)
            hook(kind, error.with_traceback(own), own)

        sys.excepthook = excepthook
        raise
    return 0


def run(arguments: argparse.Namespace) -> Callable[[], int]:
    """Prepare everything for a program under the shim.

    - Returns: runs the program and returns 0, or raises the error of the program.
    - Raises ``ValueError``: for arguments that make no sense.
    - Raises ``OSError``: when the program or the log cannot be read or written.
    """
    starts = [
        (start, argv)
        for start, argv in [
            (start_module, arguments.module),
            (start_code, arguments.code),
            (start_script, arguments.script),
        ]
        if argv
    ]
    if not starts:
        raise ValueError("no program.\nName a file, or a module with -m, or code with -c.")
    if arguments.guard is None and (arguments.action or arguments.judge or arguments.log):
        raise ValueError("--action, --judge and --log need --guard.\nAdd --guard nan,inf,big")
    threshold = arguments.guard_threshold
    if threshold is not None and not (arguments.guard or {}).get("big_is_error"):
        raise ValueError("--guard-threshold needs --guard with big.\nAdd --guard nan,inf,big")
    if arguments.action == "record" and not arguments.log:
        raise ValueError("--action record needs a log.\nAdd --log FILE")
    ((start, argv),) = starts
    if arguments.guard is None and any(text.partition("=")[0] == "--guard" for text in argv[1:]):
        print(
            "theanoguard: --guard stands after the program, which gets it; nothing is guarded.\n"
            f"To guard it, put the option first: theanoguard run --guard {ALL_KINDS} PROGRAM",
            file=sys.stderr,
        )
    guard = None
    if arguments.guard is not None:
        action = arguments.action or "raise"
        judge = arguments.judge or "node"
        guard = {**arguments.guard, "action": action, "judge": judge, "log": arguments.log}
        if threshold is not None:
            guard["big_threshold"] = threshold
    settings = {
        "numpy_names": arguments.numpy_compat,
        "python_names": arguments.python_compat,
        "guard": guard,
    }
    set_up(**settings)
    set_up_children(**settings)
    return functools.partial(run_program, start(argv))
