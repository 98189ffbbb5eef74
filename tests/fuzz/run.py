"""Fuzz the guard: ``python tests/fuzz/run.py --seconds 600 --backend c --seed 1``.

Prints what has been played, and each failure with the seed of its program.  ``--program SEED
--calls N`` plays one program again; ``--out DIR`` writes a reproduction of each failure there.
"""

import argparse
import ast
import gc
import os
import sys
import time
import warnings
from collections import Counter
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parent))

import playing  # noqa: E402


def main(arguments=None):
    """Return the exit status: 1 after a failure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to play")
    parser.add_argument("--backend", choices=("c", "numba", "jax"), default="c")
    parser.add_argument("--seed", type=int, default=0, help="programs are drawn from it")
    parser.add_argument("--calls", type=int, default=600, help="of each program")
    parser.add_argument("--at-most", type=float, default=60.0, help="CPU seconds for one program")
    parser.add_argument("--program", type=int, help="play the program with this seed only")
    parser.add_argument(
        "--set",
        nargs="*",
        default=[],
        metavar="NAME=VALUE",
        help="arguments of GuardMode, instead of those that each program chooses",
    )
    parser.add_argument(
        "--audit", action="store_true", help="have each guard check by a scan what it leaves out"
    )
    parser.add_argument(
        "--table", action="store_true", help="one operation after another, at short lengths"
    )
    parser.add_argument("--text", action="store_true", help="print the program's text first")
    parser.add_argument("--out", type=Path, help="where reproductions of failures are written")
    chosen = parser.parse_args(arguments)
    warnings.filterwarnings("ignore")

    settings = dict(setting(text) for text in chosen.set) or None
    seeds = (
        iter([chosen.program])
        if chosen.program is not None
        else (chosen.seed * 1_000_000 + i for i in range(1_000_000))
        if not chosen.table
        else (~(chosen.seed * 1_000_000 + i) for i in range(1_000_000))
    )
    total = playing.Tally()
    seen = Counter()
    next_counts = time.monotonic() + 30
    end = time.monotonic() + chosen.seconds
    for number, seed in enumerate(seeds):
        if time.monotonic() > end:
            break
        if chosen.text:
            print(playing.write_program(seed, chosen.backend).text, flush=True)
        tally = playing.play(
            seed, chosen.backend, chosen.calls, settings, chosen.at_most, chosen.audit
        )
        total.add(tally)
        for failure in tally.failures:
            show(failure, chosen, seen)
        if number % 20 == 19:
            gc.collect()
        if time.monotonic() > next_counts:
            print_counts(total, f"# after {number + 1} seeds: ")
            next_counts = time.monotonic() + 30
    print_counts(total, f"{chosen.backend}, seed {chosen.seed}: ")
    for name in sorted(total.counts):
        if ": " in name or name == "not compiled":
            print(f"  {total.counts[name]:5}  {name}")
    return int(bool(total.failures))


def setting(text):
    """Return name and value of an argument of GuardMode."""
    name, value = text.split("=")
    try:
        return name, ast.literal_eval(value)
    except ValueError:
        return name, value


def show(failure, chosen, seen):
    """Print a failure; of those that look alike, the first few only."""
    seen[failure.what] += 1
    print(
        f"FAILED {failure.what}: --backend {chosen.backend} --program {failure.seed} "
        f"--calls {failure.call + 1}"
    )
    if seen[failure.what] <= 40:
        print("  " + failure.detail.replace("\n", "\n  "), flush=True)
    if chosen.out:
        chosen.out.mkdir(parents=True, exist_ok=True)
        name = f"{failure.what.replace(' ', '_')}_{failure.seed}_{failure.call}.py"
        (chosen.out / name).write_text(failure.reproduction, encoding="utf-8")


def print_counts(total, before):
    """Print one line of counts."""
    shown = [
        f"{total.counts[name]} {name}"
        for name in ("programs", "calls", "planted", "reported", "recorded", "left open")
    ]
    seldom = ("unguarded calls", "decided by rounding")
    shown += [f"{total.counts[name]} {name}" for name in seldom if total.counts[name]]
    shown += [f"{n} {name}" for name, n in total.counts.items() if name.startswith("FAILED")]
    print(before + ", ".join(shown), flush=True)


if __name__ == "__main__":
    sys.exit(main())
