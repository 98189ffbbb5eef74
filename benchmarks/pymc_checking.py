"""Whether ``theanoguard.pymc.check`` is silent on sound models and finds the faults of broken ones.

::

    python benchmarks/pymc_checking.py [--seconds 1.5] [--show] [MODEL ...]

The sound models are those of ``healthy.py``, ``public.py`` and ``textbook.py`` in
``tests/pymc_guard``: any finding, and any part that fails, is *false*.  The broken ones are those
of ``broken.py``, each of a kind of its own.  A fault is *found* if a finding of the right part
names the right term and has the right words, and *on its line* if its line is one of the model.
The processor time includes the C compiler's, with the cache of C code as it is.
"""

import argparse
import logging
import resource
import statistics
import sys
import warnings
from pathlib import Path

import pymc as pm

import theanoguard.pymc

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "pymc_guard"))
import broken
import healthy
import public
import textbook

SOUND = {**healthy.MODELS, **public.MODELS, **textbook.MODELS}
BROKEN = {build.__name__: build for build in broken.MODELS}


def used():
    """Return the seconds of processor time so far, of this process and its children."""
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def checked(model, arguments):
    """Return what a check finds, and its processor time."""
    start = used()
    found = theanoguard.pymc.check(model, seconds=arguments.seconds)
    return found, used() - start


def of_sound(name, arguments):
    """Return whether a sound model has no finding, the time, and what to show."""
    found, seconds = checked(SOUND[name](), arguments)
    return found.ok, seconds, str(found)


def of_broken(name, arguments):
    """Return whether the fault of a broken model is found, the time, and what to show."""
    build = BROKEN[name]
    truth = broken.MODELS[build]
    with pm.Model() as model:
        build()
    found, seconds = checked(model, arguments)
    right = [
        one
        for one in found.findings
        if one.part in truth.parts
        and one.term == truth.term
        and all(word in str(one) for word in truth.words)
    ]
    of_line = [one for one in right if one.source is None or one.source.function == name]
    return bool(of_line) and not found.failed, seconds, f"{truth}\n{found}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "models",
        nargs="*",
        choices=[*SOUND, *BROKEN, "sound", "textbook", "broken", []],
        metavar="MODEL",
        help='a name, or "sound", "textbook" or "broken" for all of these',
    )
    parser.add_argument("--seconds", type=float, default=1.5, help="of the search")
    parser.add_argument("--show", action="store_true", help="print what is found")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.getLogger("pymc").setLevel(logging.ERROR)
    groups = {"sound": list(SOUND), "textbook": list(textbook.MODELS), "broken": list(BROKEN)}
    asked = arguments.models or ["sound", "broken"]
    names = [name for one in asked for name in groups.get(one, [one])]
    table = {}
    for name in names:
        kind = "sound, silent" if name in SOUND else "broken, found"
        right, seconds, text = (of_sound if name in SOUND else of_broken)(name, arguments)
        table.setdefault(kind, []).append((right, seconds))
        print(f"{name:<36} {'yes' if right else 'NO':<3} {seconds:5.1f} s", flush=True)
        if arguments.show or not right:
            print(text, flush=True)
    print()
    for kind, rows in table.items():
        right, seconds = sum(one for one, _ in rows), [time for _, time in rows]
        median, most = statistics.median(seconds), max(seconds)
        print(f"{kind}: {right} of {len(rows)}; {median:.1f} s in the middle, {most:.1f} s at most")


if __name__ == "__main__":
    main()
