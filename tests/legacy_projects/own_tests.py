"""Run legacy projects' own tests, as their source distributions on PyPI have them, under the shim.

::

    python tests/legacy_projects/own_tests.py             # all projects
    python tests/legacy_projects/own_tests.py Lasagne     # some

Nothing in the projects is changed.  What is left out is named below, with the reason.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
from dataclasses import dataclass, field
from pathlib import Path

NO_TENSORFLOW = "it compares with TensorFlow"
LAST_BIT = "it wants a bit that Theano 1.0.5 does not give, either"


@dataclass(frozen=True)
class Project:
    """A project whose tests are in its source distribution.

    Parameters
    ----------
    version : str
        The release that is tested.
    tests : tuple of str
        Files and directories of tests.
    left_out : dict
        Tests and files that are not run, and why.
    not_unpacked : tuple of str
        Patterns of files that stay in the archive.
    environment : dict
        Variables of the environment.
    """

    version: str
    tests: tuple
    left_out: dict = field(default_factory=dict)
    not_unpacked: tuple = ()
    environment: dict = field(default_factory=dict)


PROJECTS = {
    "Lasagne": Project(version="0.1", tests=("lasagne/tests",)),
    "TheanoLM": Project(
        version="1.3.2",
        # The other files want data that are not in the distribution.
        tests=tuple(
            f"tests/theanolm/{name}_test.py"
            for name in [
                "basiclayer",
                "classdistribution",
                "operations",
                "probfunctions",
                "recurrentstate",
                "score",
                "trainers",
                "wordclass",
            ]
        ),
        # As packages, the tests would hide the packages that they test.
        not_unpacked=("*/tests/*/__init__.py",),
    ),
    "Keras": Project(
        version="2.3.1",
        tests=tuple(
            f"tests/keras/{name}_test.py"
            for name in [
                "activations",
                "backend/backend",
                "constraints",
                "initializers",
                "losses",
                "optimizers",
                "regularizers",
            ]
        ),
        left_out={
            "tests/keras/activations_test.py::test_selu": LAST_BIT,
        }
        | {
            f"tests/keras/backend/backend_test.py::TestBackend::{name}": reason
            for name, reason in {
                "test_gradient": NO_TENSORFLOW,
                "test_function": NO_TENSORFLOW,
                "test_resize_images_bilinear": NO_TENSORFLOW,
                # It takes new numbers in each run.
                "test_truncated_normal": "1 of 25 seeds exceeds its bound in Theano 1.0.5, too",
            }.items()
        },
        environment={
            "KERAS_BACKEND": "theano",
            # It decodes what it reads from HDF5 files.
            "PYTEST_PLUGINS": "h5py_bytes",
            # In C, nearly every one of the tests would compile for seconds.
            "THEANO_FLAGS": "cxx=",
        },
    ),
}


def unpacked_release(name, version, work, left_out=()):
    """Return the directory of a release on PyPI, after download where that is needed."""
    directory = work / f"{name}-{version}"
    if not directory.exists():
        download = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", ":all:"]
        subprocess.run([*download, "-d", work, f"{name}=={version}"], check=True)
        with tarfile.open(work / f"{directory.name}.tar.gz") as archive:
            wanted = [
                member
                for member in archive.getmembers()
                if not any(Path(member.name).match(pattern) for pattern in left_out)
            ]
            shutil.rmtree(work / "part", ignore_errors=True)
            archive.extractall(work / "part", wanted, filter="data")
        (work / "part" / directory.name).rename(directory)
    return directory


def run(name, work, arguments):
    """Run the tests of a project and return pytest's exit status."""
    project = PROJECTS[name]
    directory = unpacked_release(name, project.version, work, project.not_unpacked)
    path = os.pathsep.join(filter(None, [str(directory), os.environ.get("PYTHONPATH")]))
    # Settings of projects of that age are not for the pytest of today.
    command = [sys.executable, "-m", "pytest", "-c", os.devnull, "--rootdir", directory]
    command += ["-p", "theanoguard.shim.pytest_plugin", "--numpy-compat", "--python-compat"]
    command += ["-p", "no:cacheprovider", "-q", *project.tests]
    command += [f"--deselect={test}" for test in project.left_out]
    print(f"== {directory.name}", flush=True)
    environment = os.environ | {"PYTHONPATH": path} | project.environment
    return subprocess.run([*command, *arguments], cwd=directory, env=environment).returncode


def main():
    """Run the tests of the projects that are named, or of all."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("project", nargs="*", help=f"some of {', '.join(PROJECTS)}; default: all")
    parser.add_argument("--work", type=Path, default=Path("legacy-projects"), help="a directory")
    parsed, arguments = parser.parse_known_args()
    unknown = set(parsed.project) - PROJECTS.keys()
    if unknown:
        parser.error(f"no such project: {', '.join(sorted(unknown))}.\nThere are {list(PROJECTS)}")
    work = parsed.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    return max(run(name, work, arguments) for name in parsed.project or PROJECTS)


if __name__ == "__main__":
    sys.exit(main())
