"""Run the code of Theano 1.0.5's documentation under the shim, and compare with Theano's answers.

::

    python tests/theano_suite/documentation.py                        # all pages
    python tests/theano_suite/documentation.py tutorial/loop.txt      # some
    python tests/theano_suite/documentation.py --record-105 --python37 python3.7

The pages come from Theano's source distribution, as for ``run.py``.  ``documentation.json`` holds
what each block prints and raises under Theano 1.0.5, which ``--record-105`` writes; the Python 3.7
for that has Theano installed.  A block whose answer differs is listed in
``expected/documentation.txt`` as ``PAGE:LINE  # reason``.  The run fails if another one differs, or
if a listed one does not.  A block with a ``!`` before it is not run.

These runs have no C compiler: with one, they take hours and compile what the suite compiles.
"""

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import run as suite

HERE = Path(__file__).resolve().parent
RECORDED = HERE / "documentation.json"
EXPECTED = HERE / "expected" / "documentation.txt"
BLOCKS = HERE / "blocks.py"
# Addresses, directories of files and times are other ones in each run.
CHANGING = re.compile(r"0x[0-9a-f]+|(?:/[\w.+-]+)+/|\d+\.\d+ sec\b")


def pages_of(source):
    """The pages of the documentation with code in them."""
    directory = source / "doc"
    return sorted(
        str(page.relative_to(directory))
        for page in directory.rglob("*.txt")
        if re.search(r"^\s*>>> |:: *testcode|\.\. testcode", page.read_text("utf-8"), re.MULTILINE)
    )


def answers_in(text):
    """What ``blocks.py`` printed: text and exception by line, without what changes in each run."""
    return {
        str(line): [
            CHANGING.sub("", printed),
            raised and [raised[0], CHANGING.sub("", raised[1]).partition("\n")[0][:200]],
        ]
        for line, printed, raised in json.loads(text)
    }


def answers(page, source, arguments):
    """What the blocks of a page print and raise, by line; None where the run itself fails."""
    command = [arguments.python37] if arguments.record_105 else [sys.executable]
    if not arguments.record_105:
        command += ["-m", "theanoguard", "run", "--numpy-compat", "--python-compat"]
    compiledir = arguments.work / ("compiledir_105" if arguments.record_105 else "compiledir")
    environment = os.environ | {
        "OMP_NUM_THREADS": "1",
        "THEANO_FLAGS": f"cxx=,base_compiledir={compiledir}",
        "THEANORC": os.devnull,
    }
    work = arguments.work / "documentation"
    work.mkdir(parents=True, exist_ok=True)
    prefix = f"!{page}:"
    left_out = [p.removeprefix(prefix) for p in suite.read_list(EXPECTED) if p.startswith(prefix)]
    try:
        done = subprocess.run(
            [*command, BLOCKS, source / "doc" / page, *left_out],
            cwd=work,
            env=environment,
            capture_output=True,
            text=True,
            timeout=arguments.seconds,
        )
    except subprocess.TimeoutExpired:
        return None
    _, found, text = done.stdout.rpartition("\nblocks: ")
    if not found:
        print(done.stdout[-500:], done.stderr[-1500:], file=sys.stderr)
        return None
    return answers_in(text)


def same(one, other):
    """Whether two answers agree: in the printed words, and in the class of the exception."""
    if one is None or other is None:
        return one is other
    (printed, raised), (printed_here, raised_here) = one, other
    return CHANGING.sub("", printed).split() == CHANGING.sub("", printed_here).split() and (
        raised and raised[0]
    ) == (raised_here and raised_here[0])


def record(pages, source, arguments):
    """Write what Theano 1.0.5 answers."""
    known = json.loads(RECORDED.read_text("utf-8")) if RECORDED.exists() else {}
    for page in pages:
        known[page] = answers(page, source, arguments)
        print(page, len(known[page] or ()), flush=True)
    text = json.dumps(known, indent=0, sort_keys=True, ensure_ascii=False)
    RECORDED.write_text(text + "\n", "utf-8")


def compare(pages, source, arguments):
    """Compare the answers here with Theano's, and return what is not as expected."""
    known = json.loads(RECORDED.read_text("utf-8"))
    expected = suite.read_list(EXPECTED)
    complaints, total, agreeing = [], 0, 0
    for page in pages:
        recorded = known.get(page)
        if not recorded:
            print(f"{page}  not recorded", flush=True)
            continue
        found = answers(page, source, arguments) or {}
        agree = {
            line: same(answer, found.get(line))
            for line, answer in recorded.items()
            if f"!{page}:{line}" not in expected
        }
        print(f"{page}  {sum(agree.values())} of {len(agree)}", flush=True)
        total += len(agree)
        agreeing += sum(agree.values())
        for line, agrees in agree.items():
            listed = f"{page}:{line}" in expected
            if agrees and listed:
                complaints.append(f"{page}:{line}  is as in Theano, but is listed")
            elif not agrees and not listed:
                here = found.get(line)
                complaints.append(f"{page}:{line}\n  Theano: {recorded[line]}\n  here:   {here}")
    print(f"{agreeing} of {total} blocks answer as in Theano 1.0.5")
    return complaints


def main(argv=None):
    """Run the pages that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("pages", nargs="*", help="as tutorial/loop.txt; default: all")
    parser.add_argument("--source", type=Path, help="Theano 1.0.5's unpacked source distribution")
    parser.add_argument("--work", type=Path, default=HERE.parents[1] / ".tox" / "theano-suite-work")
    parser.add_argument("--python37", help="a Python 3.7")
    parser.add_argument("--record-105", action="store_true", help="run under Theano 1.0.5 itself")
    parser.add_argument("--seconds", type=int, default=3600, help="how long a page may take")
    arguments = parser.parse_args(argv)
    arguments.work = arguments.work.resolve()
    source = suite.get_source(arguments)
    if arguments.record_105:
        arguments.python37 = suite.find_python37(arguments.python37)
    pages = arguments.pages or pages_of(source)
    if arguments.record_105:
        record(pages, source, arguments)
        return 0
    complaints = compare(pages, source, arguments)
    if complaints:
        print("\nNot as expected:", *complaints, sep="\n")
    return bool(complaints)


if __name__ == "__main__":
    sys.exit(main())
