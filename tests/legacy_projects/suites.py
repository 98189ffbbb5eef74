"""Run projects' own suites under Theano 1.0.5 and under the shim, and count what passes.

::

    python tests/legacy_projects/suites.py --python37 python3.7 blocks
    python tests/legacy_projects/suites.py --table

Each file of tests runs in a process of its own, with a time limit, on both sides.  What pytest
printed is kept in the work directory, and a file that has run is not run again.  ``suites.json``
holds the counts, and ``--table`` prints the table of ``docs/measurements.rst``.  The projects are
not changed.  Both interpreters need pytest 7, pytest-timeout and what the projects import.
"""

import argparse
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import compare
import own_tests

HERE = Path(__file__).resolve().parent
RECORDED = HERE / "suites.json"
# What pytest exits with if it could run: tests passed, tests failed, no file, no test.
RAN = (0, 1, 2, 5)
SIDES = ("1.0.5", "shim")


@dataclass(frozen=True)
class Suite:
    """A project with tests.

    Parameters
    ----------
    source : str
        On GitHub, as ``OWNER/NAME COMMIT``, or on PyPI, as ``NAME==VERSION``.
    tests : tuple of str
        Patterns of files of tests.
    flags : str
        For ``THEANO_FLAGS``.
    needs : tuple of str
        The sources of other projects that it imports.
    left_out : str
        A pattern of files that are not run.
    package : bool
        Whether the directory of the repository is the package itself.
    options : tuple of str
        For pytest.
    """

    source: str
    tests: tuple
    flags: str = "cxx=,floatX=float32"
    needs: tuple = ()
    left_out: str = ""
    package: bool = False
    options: tuple = ()


LASAGNE = "Lasagne/Lasagne 5d3c63c"
FUEL = "mila-iqia/fuel 1d6292d"
SNL = "mackelab/snl 3da9ec0"
BLOCKS = "mila-iqia/blocks c69c2dc"
PYMC3 = ("pymc3/tests/test_*.py",)
# The flags of blocks' own continuous integration.
FAST = "cxx=,optimizer=fast_compile"
SUITES = {
    "blocks": Suite(BLOCKS, ("tests/**/test_*.py",), FAST, (FUEL,)),
    "blocks-extras": Suite(
        "mila-iqia/blocks-extras 0cefaa3", ("tests/**/test_*.py",), FAST, (FUEL, BLOCKS)
    ),
    "Keras": Suite(
        "Keras==2.3.1",
        (
            "tests/test_*.py",
            "tests/keras/*_test.py",
            "tests/keras/test_*.py",
            "tests/keras/[belw]*/*_test*.py",
            "tests/keras/engine/test_*.py",
        ),
        f"{FAST},floatX=float32",
        left_out="tests/keras/layers/cudnn*",
    ),
    "deep_q_rl": Suite(
        "spragunr/deep_q_rl 3420249",
        ("deep_q_rl/test/test_*.py",),
        needs=(LASAGNE,),
        package=True,
    ),
    "AgentNet": Suite("yandexdataschool/AgentNet c28b99f", ("tests/test_*.py",), needs=(LASAGNE,)),
    # The release on PyPI has no data for its tests.
    "TheanoLM": Suite("senarvi/theanolm 9904fae", ("tests/*/*_test.py",), "cxx="),
    "Lasagne": Suite(LASAGNE, ("lasagne/tests/**/test_*.py",)),
    "PyMC3 3.8": Suite("pymc3==3.8", PYMC3, "cxx=", options=("-p", "pytest_5")),
    "PyMC3 3.9": Suite("pymc3==3.9.3", PYMC3, "cxx="),
    "PyMC3 3.10": Suite("pymc3==3.10.0", PYMC3, "cxx="),
    "PyMC3 3.11": Suite("pymc3==3.11.5", PYMC3, "cxx="),
    "theanets": Suite("lmjohns3/theanets 79db9f8", ("test/*_test.py",)),
    "pylearn2": Suite(
        "lisa-lab/pylearn2 af81e5c",
        (
            "pylearn2/costs/tests/test_*.py",
            # Most of the others read data that are not there.
            "pylearn2/datasets/tests/test_[dfv]*.py",
            "pylearn2/datasets/tests/test_c[os][sv]*.py",
            "pylearn2/datasets/tests/test_sparse*.py",
            "pylearn2/energy_functions/tests/test_*.py",
            "pylearn2/expr/tests/test_*.py",
            "pylearn2/linear/tests/test_*.py",
            # Those with a c want a GPU.
            "pylearn2/models/tests/test_[!c]*.py",
            "pylearn2/optimization/test_*.py",
            "pylearn2/space/tests/test_*.py",
            "pylearn2/training_algorithms/tests/test_*.py",
        ),
        options=("-p", "theano_09"),
    ),
    "treeano": Suite(
        "diogo149/treeano 9b3fd6b",
        ("canopy/**/*_test.py", "treeano/**/*_test.py"),
        needs=(LASAGNE,),
        options=("-p", "theano_09"),
    ),
    "neupy": Suite(
        "itdxer/neupy 0ccc834", ("tests/**/test_*.py",), left_out="tests/layers/test_recurrent*"
    ),
    "carl": Suite("diana-hep/carl fb88e63", ("tests/**/test_*.py",), "cxx="),
    "delfi": Suite(
        "mackelab/delfi 62a99a8",
        # The other functional tests train for minutes.
        ("tests/unit/test_*.py", "tests/functional/test_generator.py"),
        needs=(LASAGNE, SNL),
    ),
    "smartlearner": Suite("SMART-Lab/smartlearner 0afdcd3", ("tests/**/test*.py",)),
    "pymanopt": Suite(
        "pymanopt/pymanopt baafea6", ("tests/test_*.py",), "cxx=", left_out="tests/test_tensorflow*"
    ),
    "keras-rl": Suite("keras-rl/keras-rl ea7218b", ("tests/rl/**/test_*.py",)),
    "dagbldr": Suite(
        "dagbldr/dagbldr 3bfad37", ("dagbldr/**/test_*.py",), options=("-p", "theano_09")
    ),
    "downhill": Suite("lmjohns3/downhill 42111ab", ("test/*_test.py",)),
    "yann": Suite("ragavvenkatesan/yann 63f970c", ("tests/**/test_*.py",)),
    "ntm-lasagne": Suite(
        "snipsco/ntm-lasagne 65c950b", ("ntm/test/test_*.py",), "cxx=", (LASAGNE,), package=True
    ),
}


def unpacked(source, work):
    """Return the directory of a project, after download where that is needed."""
    if "==" in source:
        name, version = source.split("==")
        return own_tests.unpacked_release(name, version, work)
    repository, commit = source.split()
    directory = work / f"{repository.partition('/')[2]}-{commit}"
    if not directory.exists():
        address = f"https://github.com/{repository}/archive/{commit}.tar.gz"
        with urllib.request.urlopen(address) as answer:
            content = io.BytesIO(answer.read())
        with tarfile.open(fileobj=content) as archive:
            archive.extractall(work / "part", filter="data")
        (top,) = (work / "part").iterdir()
        top.rename(directory)
    return directory


def files_of(suite, directory, only=("*",)):
    """The files of tests of a project whose names match one of the patterns `only`."""
    found = {path for pattern in suite.tests for path in directory.glob(pattern)}
    return sorted(
        str(path.relative_to(directory))
        for path in found
        if not (suite.left_out and path.match(suite.left_out))
        and any(path.match(pattern) for pattern in only)
    )


def run_file(name, file, side, work, arguments):
    """Run a file of tests on a side, unless it has run; return what pytest printed."""
    suite = SUITES[name]
    kept = work / "results" / name / f"{file.replace('/', '_')}.{side}"
    if kept.exists():
        return kept.read_text("utf-8")
    directory = unpacked(suite.source, work)
    path = [directory, *(unpacked(source, work) for source in suite.needs), HERE / "stand_ins"]
    if suite.package:
        path.append(directory / Path(file).parts[0])
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(map(str, [*path, os.environ.get("PYTHONPATH", "")])),
        "THEANO_FLAGS": f"{suite.flags},base_compiledir={work / 'compiledir'}",
        "OMP_NUM_THREADS": "1",
        "MPLBACKEND": "Agg",
        "KERAS_BACKEND": "theano",
    }
    command = [arguments.python37, "-m", "pytest"]
    if side == "shim":
        command = [sys.executable, "-m", "pytest", "-p", "theanoguard.shim.pytest_plugin"]
        command += ["-p", "h5py_bytes", "--numpy-compat", "--python-compat"]
    command += ["-c", os.devnull, "--rootdir", directory, "-p", "no:cacheprovider"]
    command += ["-q", "-rA", "--tb=short", f"--timeout={arguments.test_seconds}"]
    command += [*suite.options, file]
    try:
        done = subprocess.run(
            command,
            cwd=directory,
            env=environment,
            capture_output=True,
            text=True,
            timeout=arguments.seconds,
        )
    except subprocess.TimeoutExpired:
        return f"{file} took longer than {arguments.seconds} s"
    if done.returncode in RAN and done.stdout:
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(done.stdout, "utf-8")
    return done.stdout


def outcomes(file, text):
    """How each test of a file ended, from the summary that pytest prints with ``-rA``."""
    lines = re.findall(r"^(PASSED|FAILED|ERROR|XFAIL|XPASS) \S*?::(.*?)(?: - .*)?$", text, re.M)
    return {f"{file}::{test}": outcome for outcome, test in reversed(lines)}


def count(name, work, arguments):
    """Run a suite on both sides; return the figures, and the tests that pass only there."""
    there, here = {}, {}
    for file in files_of(SUITES[name], unpacked(SUITES[name].source, work), arguments.files):
        for side, ended in zip(SIDES, (there, here), strict=True):
            ended |= outcomes(file, run_file(name, file, side, work, arguments))
    passing = {test for test, outcome in there.items() if outcome == "PASSED"}
    missing = sorted(test for test in passing if here.get(test) not in ("PASSED", "XPASS"))
    figures = {
        "source": SUITES[name].source,
        "there": len(passing),
        "of these": len(passing) - len(missing),
        "here": sum(outcome == "PASSED" for outcome in here.values()),
        "missing": missing,
    }
    return figures


def table():
    """The rows of all suites that are recorded."""
    rows = [("suite", "Theano 1.0.5", "both", "share", "shim")]
    for name, known in sorted(json.loads(RECORDED.read_text("utf-8")).items()):
        share = f"{100 * known['of these'] / known['there']:.1f} %" if known["there"] else "-"
        counts = (str(known[key]) for key in ("there", "of these", "here"))
        there, these, here = counts
        rows.append((f"{name} ({known['source']})", there, these, share, here))
    return rows


def main(argv=None):
    """Run the suites that are named, or show the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=f"some of {', '.join(SUITES)}")
    parser.add_argument(
        "--python37", help="a Python 3.7 with Theano 1.0.5; for PyMC3 3.11 one with Theano-PyMC 1.1"
    )
    parser.add_argument("--work", type=Path, default=Path("legacy-suites"), help="a directory")
    parser.add_argument(
        "--files", nargs="+", default=["*"], metavar="PATTERN", help="only these files of tests"
    )
    parser.add_argument("--seconds", type=int, default=1800, help="how long a file may take")
    parser.add_argument("--test-seconds", type=int, default=300, help="how long a test may take")
    parser.add_argument("--table", action="store_true", help="show what is kept")
    arguments = parser.parse_args(argv)
    if arguments.table:
        compare.show_table(table())
        return 0
    if unknown := set(arguments.suites) - SUITES.keys():
        parser.error(f"no such suite: {', '.join(sorted(unknown))}.\nThere are {list(SUITES)}")
    if not arguments.python37:
        parser.error("name a Python 3.7 that has Theano 1.0.5 with --python37")
    work = arguments.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    for name in arguments.suites or SUITES:
        found = count(name, work, arguments)
        print(name, found, flush=True)
        known = json.loads(RECORDED.read_text("utf-8")) if RECORDED.exists() else {}
        text = json.dumps(known | {name: found}, indent=1, sort_keys=True)
        RECORDED.write_text(text + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
