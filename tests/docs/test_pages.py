"""Each page of the guide is a session: its files are written, its commands typed, in order."""

import doctest
import os
import re
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import pytest

import theanoguard

pytestmark = pytest.mark.on_33

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"

# A directive or the end of a paragraph, and what is indented below it.
BLOCK = re.compile(
    r"^\.\. (?P<kind>[\w-]+)::(?P<argument>.*)\n(?P<body>(?:[ ]{3,}.*\n|\n)*)"
    r"|(?P<literal>::)\n\n(?P<text>(?:[ ]+.*\n|\n)+)",
    re.MULTILINE,
)
# Commands of a page that no test types, and why.
NOT_TYPED = {
    "python3 -m venv .venv && .venv/bin/pip install .": "README's; an environment from the net",
    "source .venv/bin/activate": "the same",
    '.venv/bin/pip install ".[jax,notebook]"': "the same",
    "apt-get install g++ python3-dev": "changes the system",
    "pip wheel --no-deps --wheel-dir wheels path/to/theanoguard": "builds from the net",
    "pip install --find-links wheels . pytest": "installs from the net",
    "OMP_NUM_THREADS=1 python benchmarks/training.py --rounds 41": "a benchmark",
    "theanoguard doctor --json > doctor.json": "tests/cli/test_doctor.py does; it takes seconds",
}
# What a program of a page prints that needs PyMC.
PRINTED_ELSEWHERE = {"python start.py": "tests/pymc_guard/test_pymc.py"}
# Pages in which a block that is not run would be a mistake.
PAGES = """
    api ci coming_from design guard index lint limits logs
    nans printing quickstart stable stepping testvalues training warnings
""".split()
# What Sphinx runs, or shows from a file that something else runs.
RUN_BY_SPHINX = {"doctest", "testcode", "testsetup", "testcleanup", "testoutput", "literalinclude"}
CHECKER = doctest.OutputChecker()
LOOSELY = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def page(name):
    return (DOCS / f"{name}.rst").read_text(encoding="utf-8")


def dedented(block):
    """The lines of a directive without the indentation, and its options."""
    lines = textwrap.dedent(block).split("\n")
    options = {}
    while lines and (match := re.match(r":([\w-]+):(.*)", lines[0])):
        options[match[1]] = match[2].strip()
        del lines[0]
    return "\n".join(lines).strip("\n") + "\n", options


def code_blocks(name):
    """(language, options, text) of each ``code-block`` of a page."""
    for match in BLOCK.finditer(page(name)):
        if match["kind"] == "code-block":
            text, options = dedented(match["body"])
            yield match["argument"].strip(), options, text


@pytest.fixture(scope="module")
def commands(tmp_path_factory):
    """An environment in which ``python``, ``pytest`` and ``theanoguard`` are those under test."""
    folder = tmp_path_factory.mktemp("bin")
    for command, arguments in {
        "python": "",
        "pytest": "-m pytest -p theanoguard -p no:cacheprovider",
        "theanoguard": "-m theanoguard",
    }.items():
        script = folder / command
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments} "$@"\n')
        script.chmod(0o755)
    package = str(Path(theanoguard.__file__).parents[1])
    # Numba, PyTensor's default, would take half a minute to compile the same.
    flags = [os.environ.get("PYTENSOR_FLAGS"), "linker=cvm"]
    return {
        **os.environ,
        "PYTENSOR_FLAGS": ",".join(filter(None, flags)),
        "PATH": os.pathsep.join([str(folder), os.environ["PATH"]]),
        "PYTHONPATH": os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH")])),
        "PYTHONWARNINGS": "ignore",  # PyTensor warns where there is no BLAS
        "COLUMNS": "80",
        "NO_COLOR": "1",
    }


def typed(session):
    """(command, expected output) of each command of a session."""
    for part in re.split(r"^\$ ", session, flags=re.MULTILINE)[1:]:
        command, _, expected = part.partition("\n")
        yield command, expected.rstrip("\n") + "\n"


def commands_of(name):
    """All commands that a page types."""
    sessions = (text for language, _, text in code_blocks(name) if language == "console")
    return [command for session in sessions for command, _ in typed(session)]


@pytest.mark.parametrize(
    "name",
    [n for n in PAGES if any(language == "console" for language, *_ in code_blocks(n))],
)
def test_session(name, commands, tmp_path, needs_cxx):
    for language, options, text in code_blocks(name):
        if language in ("yaml", "toml", "text"):
            continue
        if language == "python":
            (tmp_path / options["caption"]).write_text(text, encoding="utf-8")
            continue
        for command, expected in typed(text):
            run = subprocess.run(
                command,
                shell=True,
                env=commands,
                cwd=tmp_path,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            assert CHECKER.check_output(expected, run.stdout, LOOSELY), f"$ {command}\n{run.stdout}"


@pytest.mark.parametrize("name", PAGES)
def test_every_block_is_run(name):
    for match in BLOCK.finditer(page(name)):
        if match["literal"]:
            for line in match["text"].split("\n"):
                assert line.strip() in {*NOT_TYPED, ""}
        elif match["kind"] == "code-block":
            _, options = dedented(match["body"])
            language = match["argument"].strip()
            if language == "yaml":
                text, _ = dedented(match["body"])
                assert {*re.findall(r"- run: (.*)", text)} <= {*commands_of(name), *NOT_TYPED}
            elif language == "toml":
                tomllib.loads(dedented(match["body"])[0])
            elif language == "text":
                assert options["caption"] in PRINTED_ELSEWHERE
            else:
                assert language == "console" or (language == "python" and "caption" in options)
        elif ">>>" in match["body"]:
            assert match["kind"] in RUN_BY_SPHINX


@pytest.mark.parametrize("name", sorted(path.stem for path in DOCS.glob("*.rst")))
def test_every_program_has_a_file_name_and_its_imports(name):
    for language, options, text in code_blocks(name):
        if language != "python":
            continue
        assert options.get("caption", "").endswith((".py", ".ipynb")), text
        used = {"np", "pt", "pm", "pytensor", "theanoguard"} & set(re.findall(r"\b(\w+)\.", text))
        imported = re.findall(r"^\s*(?:import|from) .*", text, re.MULTILINE)
        assert used <= set(re.findall(r"\w+", " ".join(imported))), text
