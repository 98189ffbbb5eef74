"""``theanoguard doctor``: check the installation, and print what a bug report needs.

It tests the guard on PyTensor's C backend, for which ``GuardMode()`` compiles.  It also names the
devices that the guard uses.

The checks return a list of :class:`Finding`, which is rendered separately.

``theanoguard doctor PROJECT`` reads an old Theano program instead (``shim/project.py``).
"""

import argparse
import contextlib
import io
import json
import os
import platform
import re
import shutil
import sys
import tempfile
import textwrap
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.compile.mode import Mode

from theanoguard._backends import backends
from theanoguard._environment import compiler_version, versions
from theanoguard._pytensor import blas_links, config, configuration_files
from theanoguard._pytensor.machines import changes_arithmetic
from theanoguard._releases import MISSING, TESTED, is_untested
from theanoguard._text import printable, text_width
from theanoguard.explain.text.report import bytes_text
from theanoguard.guard import GuardError, GuardMode
from theanoguard.guard.c import build as kernel
from theanoguard.guard.mode import default_backend
from theanoguard.shim.advice import PYTHON_2
from theanoguard.shim.install import install_theano, uninstall_theano
from theanoguard.shim.project import OPTIONS, Project, Trouble, read_project, requirements

Status = Literal["ok", "warning", "problem"]
OK: Status = "ok"
WARNING: Status = "warning"
PROBLEM: Status = "problem"
MARKS: dict[Status, str] = {OK: " ", WARNING: "!", PROBLEM: "X"}

SCHEMA = "theanoguard.doctor/1"  # name and version of what ``--json`` prints

LITTLE_SPACE = 256 << 20  # bytes; a compile directory in use holds tens to hundreds of MiB


@dataclass(frozen=True)
class Finding:
    """The result of one check.

    Parameters
    ----------
    name : str
        The thing that was checked.
    value : str
        The result.
    status : {"ok", "warning", "problem"}
        With a warning guarded functions work, but slower or less well than they could.  With a
        problem they do not work.
    advice : str
        What to do; empty if there is nothing to do.
    """

    name: str
    value: str
    status: Status = OK
    advice: str = ""


# A pattern in the message of a failed build, and what to do.  The first match counts.
BUILD_ADVICE = (
    (
        r"Python\.h",
        "Install the header files of this Python (Debian and Ubuntu: apt-get install "
        "python3-dev; Fedora: dnf install python3-devel).",
    ),
    (
        r"numpy/\w+\.h",
        "The header files of NumPy are missing: install NumPy again (pip install "
        "--force-reinstall numpy).",
    ),
    (
        r"failed to map segment|Operation not permitted",
        "Programs cannot be loaded from the compile directory (mounted noexec?): set "
        "PYTENSOR_FLAGS=base_compiledir=FOLDER to a folder where they can.",
    ),
    (r"No space left|Disk quota", "Free some space, or remove old files: pytensor-cache purge."),
    (
        r"",
        "Install a working compiler (Debian and Ubuntu: apt-get install g++). If "
        "PYTENSOR_FLAGS=cxx=PROGRAM is set, it must name this compiler. Or use no compiler: "
        "PYTENSOR_FLAGS=cxx= (slower, the checks then run in NumPy).",
    ),
)

BLAS_ADVICE = (
    "Install PyTensor from conda-forge, which links a BLAS (conda install -c conda-forge "
    "pytensor). Or install OpenBLAS (Debian and Ubuntu: apt-get install libopenblas-dev) and set "
    "PYTENSOR_FLAGS=blas__ldflags=-lopenblas."
)


def collect() -> list[Finding]:
    """Run all checks.

    They build the guard's kernel, link a BLAS and compile a function, which takes seconds.
    """
    findings: list[Finding] = []
    for check in CHECKS:
        findings += _run(check)
    return findings


def _run(check: Callable[[], Iterable[Finding]]) -> list[Finding]:
    """Return the findings of one check; if it fails, that is a finding as well."""
    # PyTensor prints the command of a compilation that fails, and warns of a missing BLAS.
    # (It asks these streams for their encoding, which a StringIO has not.)
    quiet = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="backslashreplace")
    with (
        contextlib.redirect_stdout(quiet),
        contextlib.redirect_stderr(quiet),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        try:
            return list(check())
        except Exception as error:
            name = check.__name__.strip("_").replace("_", " ")
            value = f"the check failed: {type(error).__name__}: {reason(error)}"
            return [Finding(name, value, PROBLEM, "Please report this with all of the above.")]


def reason(error: BaseException | str) -> str:
    """Return the most useful line of an error's message.

    Examples
    --------
    >>> reason(RuntimeError("Compilation failed:\\ng++ mod.cpp\\nmod.cpp:1: error: no x"))
    'mod.cpp:1: error: no x'
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if re.search(r"\b(fatal )?error\b:", line)]
    chosen = (telling or lines or [type(error).__name__])[0]
    return textwrap.shorten(printable(chosen), 200, placeholder=" ...")


# -- the checks, in the order of the report


def _versions() -> Iterator[Finding]:
    for name, version in versions().items():
        status, advice = OK, ""
        if name == "pytensor" and is_untested():
            first, last = TESTED
            status, advice = WARNING, f"theanoguard is tested with PyTensor {first} to {last}."
        missing = "run from a checkout, not installed" if name == "theanoguard" else "not installed"
        yield Finding(name, version or missing, status, advice)


def _features() -> Iterator[Finding]:
    """Name what is off because the installed PyTensor does not have a name."""
    for missing in MISSING:
        yield Finding("feature", str(missing), WARNING, "Install a tested release of PyTensor.")


def _platform() -> Iterator[Finding]:
    yield Finding("platform", f"{platform.platform()}, {os.cpu_count()} processors")


def _compiler() -> Iterator[Finding]:
    if not config.cxx:
        yield Finding(
            "compiler",
            "none (config.cxx is empty): everything runs through Python, the checks in NumPy",
            WARNING,
            "For speed, install g++ or clang++ (Debian and Ubuntu: apt-get install g++).",
        )
        return
    try:
        yield Finding("compiler", f"{config.cxx}: {compiler_version(config.cxx)}")
    except OSError as error:
        yield Finding("compiler", f"{config.cxx} does not run: {reason(error)}", *_broken(error))


def _broken(error: BaseException) -> tuple[Status, str]:
    return PROBLEM, next(advice for sign, advice in BUILD_ADVICE if re.search(sign, str(error)))


def _kernel() -> Iterator[Finding]:
    """Build the guard's kernel again, beside the one in use."""
    if not config.cxx:
        yield Finding("kernel", "not built without a compiler")
        return
    try:
        # (Windows removes no library that is loaded)
        with tempfile.TemporaryDirectory(
            prefix="doctor_", dir=config.compiledir, ignore_cleanup_errors=True
        ) as folder:
            library = Path(folder) / "kernel" / kernel.location().name
            kernel.build(library)
            sound = kernel.finds_bad_values(kernel.import_library(library))
    except Exception as error:  # of the compiler, the linker, the file system, the loader
        yield Finding("kernel", f"does not build: {reason(error)}", *_broken(error))
    else:
        if sound:
            yield Finding("kernel", "builds, loads, and finds a NaN and an Inf")
        else:
            value = "does not find a NaN or an Inf, or takes a subnormal number for one"
            yield Finding(
                "kernel", value, WARNING, "The checks run in NumPy. Try another compiler."
            )


def _arithmetic() -> Iterator[Finding]:
    """Compile a function without the guard, and check what it does to special numbers."""
    if not config.cxx:
        return
    x = pt.vector("x", dtype="float64")
    compared = [pt.isnan(x), pt.isinf(x), pt.maximum(x, 0.0), x * 0.5]
    try:
        f = pytensor.function([x], compared, mode=Mode("cvm", "fast_run"))
    except Exception as error:
        value = f"a function does not compile: {type(error).__name__}: {reason(error)}"
        yield Finding("arithmetic", value, *_broken(error))
        return
    given: np.ndarray = np.repeat([np.nan, np.inf, 1e-320], 16)
    nan, infinite, larger, half = (found.reshape(3, 16) for found in f(given))
    lost = [
        text
        for text, kept in (
            ("isnan() does not see a NaN", nan[0]),
            ("isinf() does not see an Inf", infinite[1]),
            ("maximum() loses a NaN", np.isnan(larger[0])),
            ("subnormal numbers become 0", half[2].view("int64") != 0),
        )
        if not kept.all()
    ]
    flags = changes_arithmetic()
    if not (flags or lost):
        yield Finding("arithmetic", "compiled code keeps NaN, Inf and subnormal numbers")
        return
    cause = f"gcc__cxxflags has {' '.join(flags)}" if flags else "compiled code is not IEEE 754"
    advice = (
        f"Remove {' '.join(flags) or 'what changes it'} from the flags of the compiler. With them, "
        "an operation may lose a NaN where no check sees it."
    )
    yield Finding("arithmetic", f"{cause}: {', '.join(lost) or 'no loss found'}", WARNING, advice)


def _guard() -> Iterator[Finding]:
    """Compile a function under the guard, and check that it stops at a NaN and only there."""
    x = pt.vector("x", dtype="float64")
    try:
        f = pytensor.function([x], pt.log(x), mode=GuardMode(True, True, True))
        f(np.array([1.0, 2.0]))
    except Exception as error:
        value = f"a guarded function does not work: {type(error).__name__}: {reason(error)}"
        yield Finding("guard", value, *_broken(error))
        return
    try:
        f(np.array([1.0, -1.0]))
    except GuardError as error:
        if (error.event.kind, error.event.first_index) == ("nan", (1,)):
            where = "in C" if config.cxx else "in NumPy"
            yield Finding("guard", f"stops at a NaN (checked {where})")
            return
    yield Finding(
        "guard", "did not find a NaN", PROBLEM, "Please report this with all of the above."
    )


def _backend() -> Iterator[Finding]:
    """Say which backend is guarded: ``GuardMode()`` may not compile for the default backend."""
    default = default_backend()
    value = "GuardMode() compiles for C"
    if default in backends() and default != "c":
        value += f"; PyTensor's default is {default}, which GuardMode(backend='auto') guards"
    yield Finding("backend", value)


def _devices() -> Iterator[Finding]:
    """Name the device that each backend guards which has a choice, where it is installed."""
    for backend in backends().values():
        if (devices := backend.device_functions()) is not None:
            yield Finding(backend.title, devices.described())


def _blas() -> Iterator[Finding]:
    if not config.cxx:
        yield Finding("BLAS", "NumPy's: nothing is linked without a compiler")
        return
    try:
        flags = config.blas__ldflags
    except OSError as error:
        yield Finding("BLAS", f"not known: {reason(error)}", WARNING, "See the compiler.")
        return
    if not flags:
        value = "none to link to: the C backend multiplies matrices through NumPy"
        yield Finding("BLAS", value, WARNING, BLAS_ADVICE)
    elif (links := blas_links(flags)) is not False:
        yield Finding("BLAS", f"{flags} ({'links and runs' if links else 'not tested'})")
    else:
        value = f"{flags} does not link or run: functions with products of matrices fail"
        advice = f"Set blas__ldflags to a BLAS that is installed, or to nothing. {BLAS_ADVICE}"
        yield Finding("BLAS", value, PROBLEM, advice)


def _numpy_blas() -> Iterator[Finding]:
    found = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    yield Finding("NumPy's BLAS", f"{found.get('name')} {found.get('version')}")


def _compiledir() -> Iterator[Finding]:
    folder = config.compiledir
    yield Finding("compiledir", str(folder))
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        advice = "Set PYTENSOR_FLAGS=base_compiledir=FOLDER to a folder that you may write to."
        value = f"nothing can be written there: {error.strerror}"
        yield Finding("compiledir writable", value, PROBLEM, advice)
        return
    yield Finding("compiledir writable", "yes")
    yield Finding("compiledir size", bytes_text(folder_size(folder)))
    free = shutil.disk_usage(folder).free
    enough = free >= LITTLE_SPACE
    advice = "" if enough else "Free some space, or remove old files: pytensor-cache purge."
    yield Finding("space left there", bytes_text(free), OK if enough else WARNING, advice)


def folder_size(folder: str | os.PathLike[str]) -> int:
    """Return the size of all files under a folder, in bytes."""
    total = 0
    for where, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):  # removed meanwhile
                total += os.lstat(os.path.join(where, name)).st_size
    return total


def _settings() -> Iterator[Finding]:
    for name in ("floatX", "linker", "mode", "optimizer"):
        note = " (GuardMode links with 'cvm')" if name == "linker" else ""
        yield Finding(name, f"{getattr(config, name)}{note}")
    flags = os.environ.get("PYTENSOR_FLAGS")
    yield Finding("PYTENSOR_FLAGS", "not set" if flags is None else repr(flags))
    for path in configuration_files():
        yield Finding(str(path), _content(path))


def _unknown_flags() -> Iterator[Finding]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        config.warn_unused_flags()
    for warning in caught:
        advice = "Correct or remove it: python -c 'import pytensor; print(pytensor.config)'"
        yield Finding("unknown flag", reason(warning.message), WARNING, f"{advice} lists them.")


def _content(path: Path) -> str:
    try:
        lines = [line.strip() for line in path.read_text("utf-8", errors="replace").splitlines()]
    except FileNotFoundError:
        return "not there"
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    return "; ".join(line for line in lines if line and line[0] not in "#;") or "empty"


CHECKS = (
    _versions,
    _features,
    _platform,
    _compiler,
    _kernel,
    _arithmetic,
    _guard,
    _backend,
    _devices,
    _blas,
    _numpy_blas,
    _compiledir,
    _settings,
    _unknown_flags,
)


# -- the renderings


def works(findings: Iterable[Finding]) -> bool:
    """Whether none of the findings is a problem."""
    return all(finding.status != PROBLEM for finding in findings)


def render_text(findings: Sequence[Finding]) -> str:
    """Return the findings as a table, with advice below each that needs it.

    Parameters
    ----------
    findings : list of Finding

    Returns
    -------
    str
    """
    width = min(max(len(finding.name) for finding in findings), 20)
    indent = " " * (width + 4)

    def wrapped(text: str, start: str) -> list[str]:
        return textwrap.wrap(
            text,
            text_width(),
            initial_indent=start,
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
        )

    lines: list[str] = []
    last = ""
    for finding in findings:
        name, value = printable(finding.name), printable(finding.value)
        lines += wrapped(value, f"{MARKS[finding.status]} {name:<{width}}  ")
        if finding.advice:
            advice = "as above." if finding.advice == last else finding.advice
            last = finding.advice
            lines += wrapped(f"What to do: {advice}", indent)
    return "\n".join([*lines, "", _verdict(findings)])


def _verdict(findings: Sequence[Finding]) -> str:
    counts = {status: sum(f.status == status for f in findings) for status in (WARNING, PROBLEM)}
    said = [f"{n} {status}{'s' * (n > 1)}" for status, n in counts.items() if n]
    verdict = "The guard works" if works(findings) else "The guard does not work"
    return f"{verdict}: {', '.join(said)}." if said else f"{verdict}."


def render_json(findings: Sequence[Finding]) -> str:
    """Return the findings as JSON.

    The result is an object with ``schema``, ``works`` and ``findings``, a list of objects with the
    fields of :class:`Finding`.
    """
    content = {
        "schema": SCHEMA,
        "works": works(findings),
        "findings": [asdict(finding) for finding in findings],
    }
    return json.dumps(content, indent=2)


# -- a project


PROJECT_SCHEMA = "theanoguard.doctor.project/1"
"""Name and version of what ``--json`` prints of a project."""

SHOWN_PLACES = 3  # of each name


def render_project(project: Project, every: bool) -> str:
    """Return what was found in a project, by what has to be done about it.

    `every`: show all places, and not only the first ones of each name.
    """
    groups: dict[tuple[bool, str], list[Trouble]] = {}
    for trouble in project.troubles:
        remedy = OPTIONS.get(trouble.option or "", trouble.remedy)
        groups.setdefault((trouble.is_harmless, remedy), []).append(trouble)
    lines = [f"{project.files} file{'s' * (project.files != 1)} read.  Nothing was run.", ""]
    order = sorted(groups.items(), key=lambda item: (item[0][0], item[0][1] != PYTHON_2))
    for (harmless, remedy), troubles in order:
        mark = MARKS[WARNING if harmless else PROBLEM]
        lines += textwrap.wrap(
            remedy, text_width(), initial_indent=f"{mark} ", subsequent_indent="  "
        )
        lines += _names(troubles, every)
        lines.append("")
    needed = sum(not trouble.is_harmless for trouble in project.troubles)
    if needed:
        lines.append(f"{needed} place{'s' * (needed != 1)} must be changed (marked with X).")
    else:
        lines.append("Nothing that must be changed was found.")
    command = " ".join(["theanoguard run", *project.options, "PROGRAM"])
    lines += [f"Run it with: {command}", "", "Requirements:", requirements(project.imports)]
    return "\n".join(lines)


def _names(troubles: Iterable[Trouble], every: bool) -> Iterator[str]:
    """Yield a line for each name in a group of troubles, with its places."""
    by_name: dict[str, list[Trouble]] = {}
    for trouble in troubles:
        instead = trouble.remedy.partition(", or run it with")
        note = f": {instead[0][0].lower()}{instead[0][1:]}" if instead[1] else ""
        by_name.setdefault(f"{trouble.what}{note}", []).append(trouble)
    for name, found in by_name.items():
        shown = found if every else found[:SHOWN_PLACES]
        places = [f"{t.file}:{t.line}" if t.line else t.file for t in shown]
        if len(shown) < len(found):
            places.append(f"{len(found) - len(shown)} more")
        yield f"    {printable(name)}"
        yield from textwrap.wrap(
            ", ".join(map(printable, places)),
            text_width(),
            initial_indent=" " * 8,
            subsequent_indent=" " * 8,
            break_long_words=False,
            break_on_hyphens=False,
        )


def examine_project(arguments: argparse.Namespace) -> int:
    """Read a project and print what was found; return the exit status."""
    # The names of Theano are looked up in the shim.
    install_theano()
    try:
        project = read_project(arguments.project)
    finally:
        uninstall_theano()
    if arguments.requirements:
        print(requirements(project.imports))
        return 0
    if arguments.json:
        content = {
            "schema": PROJECT_SCHEMA,
            "files": project.files,
            "options": project.options,
            "requirements": requirements(project.imports).splitlines(),
            "troubles": [
                asdict(trouble) | {"harmless": trouble.is_harmless} for trouble in project.troubles
            ],
        }
        print(json.dumps(content, indent=2))
    else:
        print(render_project(project, arguments.all))
    return int(not all(trouble.is_harmless for trouble in project.troubles))


# -- the command


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``theanoguard doctor`` to its parser."""
    parser.add_argument(
        "project",
        nargs="?",
        metavar="PROJECT",
        help="a folder or file of an old Theano program: list what will not work, and run nothing",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--all", action="store_true", help="show all places in PROJECT")
    parser.add_argument(
        "--requirements", action="store_true", help="print a requirements file for PROJECT, only"
    )


def run(arguments: argparse.Namespace) -> int:
    """Run ``theanoguard doctor``; return its exit status."""
    if arguments.project is not None:
        return examine_project(arguments)
    if arguments.all or arguments.requirements:
        raise ValueError("--all and --requirements are for a project.\nName its folder.")
    if not arguments.json:
        print("Building the guard's kernel and a small function ...", file=sys.stderr)
    findings = collect()
    print(render_json(findings) if arguments.json else render_text(findings))
    return 0 if works(findings) else 1
