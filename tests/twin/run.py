"""Run programs beside their unguarded twins: ``run.py --backend numba --programs 20000 --seed 1``.

Worlds of programs are played in processes of their own, so that a crash is a result.  Each failure
is printed with its seed; ``--world SEED --only 3`` plays that program again, alone.
"""

import argparse
import ast
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "fuzz")]
os.environ.setdefault("OMP_NUM_THREADS", "1")


def main(arguments=None):
    """Return the exit status: 1 after a failure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", choices=("c", "numba", "jax", "pytorch"), default="c")
    parser.add_argument("--programs", type=int, default=100, help="how many are played")
    parser.add_argument("--seed", type=int, default=0, help="the first world is its 100,000th")
    parser.add_argument("--seconds", type=float, default=1e9, help="after which no world begins")
    parser.add_argument("--pieces", type=int, default=8, help="programs compiled as one function")
    parser.add_argument("--worlds", type=int, default=20, help="in one process")
    parser.add_argument("--at-most", type=float, default=900, help="seconds for one world")
    parser.add_argument("--world", type=int, help="play this world only")
    parser.add_argument("--only", type=int, nargs="*", help="these programs of each world only")
    parser.add_argument("--family", help="of all programs, such as loop or state")
    parser.add_argument("--set", nargs="*", help="NAME=VALUE of GuardMode, instead of the seed's")
    parser.add_argument("--text", action="store_true", help="print the programs first")
    parser.add_argument("--out", type=Path, help="file to which failures are appended")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.child:
        return child(chosen)
    if chosen.text:
        from pieces import write_piece

        for i in range(chosen.pieces):
            if chosen.only is None or i in chosen.only:
                piece = write_piece(chosen.world * 100 + i, chosen.backend, chosen.family)
                print(f"# program {i}, {piece.family}\n" + piece.text.split("# body")[1])
    counts = run(chosen)
    return int(any(name.startswith("FAILED") for name in counts))


def run(chosen):
    """Play worlds in processes until there are enough; return the counts."""
    counts, begun, told = Counter(), time.monotonic(), time.monotonic()
    next_world = chosen.seed * 100_000 if chosen.world is None else chosen.world
    last = None if chosen.world is None else chosen.world + 1
    while (
        counts["programs"] < chosen.programs
        and time.monotonic() - begun < chosen.seconds
        and (last is None or next_world < last)
    ):
        left = -(-(chosen.programs - counts["programs"]) // chosen.pieces)
        end = next_world + min(chosen.worlds, left) if last is None else last
        next_world = batch(chosen, next_world, end, counts, begun)
        if time.monotonic() - told > 60:
            told = time.monotonic()
            print_counts(chosen, counts, begun)
    print_counts(chosen, counts, begun, whole=True)
    return counts


def batch(chosen, first, end, counts, begun):
    """Play the worlds from `first` on in one process; return the next world."""
    with tempfile.TemporaryDirectory() as folder:
        status = Path(folder) / "status"
        status.write_bytes(b" " * 64)
        command = [sys.executable, str(HERE / "run.py"), "--child", str(status)]
        command += ["--backend", chosen.backend, "--pieces", str(chosen.pieces)]
        command += ["--seed", str(first), "--worlds", str(end - first)]
        command += ["--seconds", str(max(1.0, chosen.seconds - (time.monotonic() - begun)))]
        if chosen.only is not None:
            command += ["--only", *map(str, chosen.only)]
        if chosen.family is not None:
            command += ["--family", chosen.family]
        if chosen.set is not None:
            command += ["--set", *chosen.set]
        log = Path(folder) / "errors"
        with log.open("wb") as errors:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        world, finished, hung = first, first, False
        deadline = [time.monotonic() + chosen.at_most]
        alarm = signal.signal(signal.SIGALRM, lambda *a: _late(process, deadline))
        signal.setitimer(signal.ITIMER_REAL, 1, 1)
        try:
            for line in process.stdout:
                if not line.startswith("{"):
                    continue
                found = json.loads(line)
                deadline[0] = time.monotonic() + chosen.at_most
                world = found["world"]
                if "counts" in found:
                    finished = world + 1
                    counts.update(found["counts"])
                    for failure in found["failures"]:
                        report(chosen, failure)
            hung = time.monotonic() > deadline[0]
            code = process.wait()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, alarm)
            process.kill()
        if code == 0:
            return end
        tail = log.read_text(errors="replace")[-1500:]
        phase = status.read_bytes().decode().strip()
        world = max(world, finished)
        name = "hang" if hung else "crash"
        if code < 0 and "guarded" not in phase:  # (PyTensor itself ends the process)
            name += " of the twin"
            counts[name] += 1
        else:
            counts[f"FAILED {name}"] += 1
        detail = f"exit {code} while {phase}\n{tail}"
        report(chosen, {"what": name, "world": world, "piece": None, "call": 0, "detail": detail})
        return world + 1


def _late(process, deadline):
    if time.monotonic() > deadline[0]:
        process.kill()


def report(chosen, failure):
    """Print a failure, and how it is played again."""
    only = "" if failure["piece"] is None else f" --only {failure['piece']}"
    only += f" --family '{chosen.family}'" if chosen.family else ""
    text = (
        f"FAILED {failure['what']}: --backend {chosen.backend} --pieces {chosen.pieces} "
        f"--world {failure['world']}{only}\n  " + failure["detail"].replace("\n", "\n  ")
    )
    print(text, flush=True)
    if chosen.out:
        with chosen.out.open("a", encoding="utf-8") as file:
            file.write(text + "\n")


def print_counts(chosen, counts, begun, whole=False):
    """Print one line of counts; at the end, all of them."""
    seconds = time.monotonic() - begun
    names = ("programs", "calls", "good calls", "failed calls", "guard errors")
    names += (
        "interrupted calls",
        "comparisons",
        "rounded otherwise",
        "left open",
        "bad at rest",
        "failed at rest",
        "not compiled",
    )
    shown = [f"{counts[name]} {name}" for name in names]
    seldom = ("FAILED", "crash", "hang")
    shown += [f"{n} {name}" for name, n in counts.items() if name.startswith(seldom)]
    print(f"{chosen.backend}, seed {chosen.seed}, {seconds:.0f} s: " + ", ".join(shown), flush=True)
    if whole:
        for name, n in sorted(counts.items()):
            if name.startswith(("not compiled:", "at rest:", "family", "compiling")):
                print(f"  {n:6}  {name}")


def child(chosen):
    """Play worlds and print a line for each."""
    from twins import play

    settings = None if chosen.set is None else dict(map(setting, chosen.set))
    end = time.monotonic() + chosen.seconds
    with chosen.child.open("r+b", buffering=0) as status:

        def phase(what):
            os.pwrite(status.fileno(), what.ljust(64).encode(), 0)

        for world in range(chosen.seed, chosen.seed + chosen.worlds):
            if time.monotonic() > end:
                break
            print(json.dumps({"world": world}), flush=True)
            tally = play(
                world,
                chosen.backend,
                chosen.pieces,
                only=chosen.only,
                settings=settings,
                phase=phase,
                family=chosen.family,
            )
            failures = [vars(failure) for failure in tally.failures]
            found = {"world": world, "counts": tally.counts, "failures": failures}
            print(json.dumps(found), flush=True)
            phase("between two worlds")
    return 0


def setting(text):
    """Return name and value of an argument of GuardMode."""
    name, value = text.split("=")
    try:
        return name, ast.literal_eval(value)
    except ValueError:
        return name, value


if __name__ == "__main__":
    sys.exit(main())
