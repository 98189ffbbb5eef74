"""What lint finds in faulty models with a twin, and in sound PyMC models.

    python -m benchmarks.linting gallery [--seconds 0.5] [NAME ...]
    python -m benchmarks.linting pymc [--seconds 1] [NAME ...]

`gallery` lints the models of ``tests/gallery/kinds`` and their repaired twins, as they are written
and with the inputs of the call that fails as the only example.  As ``theanoguard lint`` does, it
searches no gradient of a function that computes none.  Lint has *found* the fault if a
finding lies on the marked line, and it has *witnessed* it if this finding has an input.  Models
whose cause is not a line (a value that was bad before) are left out.

`pymc` lints the sound models of ``tests/pymc_guard/healthy.py`` and those with a planted mistake.
A finding with a witness in a sound model is printed, since somebody has to judge whether it is
false.
"""

import argparse
import statistics
import sys
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

from pytensor.compile.mode import Mode
from pytensor.graph.traversal import toposort

from theanoguard import lint, track_provenance
from theanoguard._provenance.designating import made_by_grad
from theanoguard.records import Finding

TESTS = Path(__file__).parents[1] / "tests"
sys.path[:0] = [str(TESTS), str(TESTS / "pymc_guard")]
from models import KINDS, load, marked_line_of  # noqa: E402

AS_WRITTEN = Mode("py", None)


def timed(call: Any) -> tuple[list[Finding], float]:
    """Return the findings of a call, and the processor's seconds that it took."""
    start = time.thread_time()
    found = call()
    return found, time.thread_time() - start


def linted(path: Path, name: str, seconds: float, repaired: bool) -> tuple[list[Finding], float]:
    """Return the findings for a model of the gallery with the inputs of its call."""
    module = load(path)
    with track_provenance():
        inputs, outputs, updates = getattr(module, name)(repaired)
    arguments = module.TRUTH[name]["arguments"]
    values = arguments() if callable(arguments) else arguments
    example = dict(zip(inputs, values, strict=True))
    nodes = toposort([*outputs, *(new for _, new in updates)])
    settings = {
        "updates": updates,
        "examples": example,
        "mode": AS_WRITTEN,
        "all": True,
        "gradient": None if any(map(made_by_grad, nodes)) else False,
    }
    return timed(lambda: lint(outputs, seconds=seconds, **settings))


def gallery(seconds: float, names: list[str]) -> None:
    """Print what is found in the gallery."""
    models = [(path, name) for path in KINDS for name in load(path).TRUTH]
    counts: Counter = Counter()
    times = []
    for path, name in models:
        line = marked_line_of(path, name)
        if line is None or (names and name not in names):
            continue
        counts["models"] += 1
        try:
            found, passed = linted(path, name, seconds, repaired=False)
            twin, _ = linted(path, name, seconds, repaired=True)
        except ValueError as error:
            print(f"{path.stem}-{name}: {str(error).partition(chr(10))[0]}", flush=True)
            continue
        at_line = [f for f in found if f.source and f.source.line == line]
        witnessed = [f for f in at_line if f.witness]
        false = [f for f in twin if f.witness]
        counts.update(found=bool(at_line), witnessed=bool(witnessed), false=bool(false))
        counts["twin with a finding behind all=True"] += bool(twin)
        if witnessed:
            times.append(passed)
        elsewhere = sorted({f"{f.source and f.source.line}: {f.rule}" for f in found if f.witness})
        if not witnessed:
            print(f"{path.stem}-{name}, line {line}: not witnessed; {elsewhere}", flush=True)
        for finding in false:
            print(f"{path.stem}-{name}, twin: {finding.rule}: {finding.witness}", flush=True)
    print(dict(counts))
    _print_times(times)


def pymc(seconds: float, names: list[str]) -> None:
    """Print what is found in PyMC models."""
    import healthy
    import planted

    import theanoguard.pymc

    counts: Counter = Counter()
    times = []
    for kind, module in (("planted", planted), ("sound", healthy)):
        for name, build in module.MODELS.items():
            if names and name not in names:
                continue
            settings = {"seconds": seconds, "all": True}
            found, passed = timed(lambda b=build, s=settings: theanoguard.pymc.lint(b(), **s))
            witnessed = [f for f in found if f.witness]
            lines = [f for f in witnessed if f.source and f.source.function in (name, "logp")]
            counts[kind] += 1
            counts[f"{kind}, witnessed"] += bool(witnessed)
            counts[f"{kind}, others"] += len(found) - len(witnessed)
            if kind == "planted":
                counts["planted, witnessed with line"] += bool(lines)
                times.append(passed)
            for finding in witnessed if kind == "sound" else ():
                print(f"{name}, {finding.source}: {finding.witness}", flush=True)
            if kind == "planted" and not lines:
                print(f"{name}: {found}", flush=True)
    print(dict(counts))
    _print_times(times)


def _print_times(times: list[float]) -> None:
    if times:
        print(f"witness: median {statistics.median(times):.2f} s, largest {max(times):.2f} s")


def main() -> None:
    """Print one of the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=("gallery", "pymc"))
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--seconds", type=float, default=0.5)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    table = {"gallery": gallery, "pymc": pymc}[arguments.what]
    table(arguments.seconds, arguments.names)


if __name__ == "__main__":
    main()
