"""Play one program: call it guarded and plain with drifting values and planted faults, and judge.

:func:`play` gives a :class:`Tally`.  All that happens follows from the program's seed.
"""

import random
import time
import traceback
import warnings
from collections import Counter
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from unittest import mock

import numpy as np
import pytensor
import pytensor.tensor as pt
from programs import INPUTS, write_program
from pytensor.compile.mode import Mode
from pytensor.tensor.type import TensorType
from reference import Reference, Rules

from theanoguard import GuardError, GuardMode, events_of
from theanoguard.guard.reporting import Reporter

SETTINGS = [
    {},
    {},
    {},
    {"big_is_error": False},
    {"big_is_error": False},
    {"big_threshold": 100.0},
    {"big_threshold": 1e30},
    {"inf_is_error": "any"},
    {"action": "record"},
    {"action": "record", "big_is_error": False},
    {"judge": "result"},
    {"check_inputs": False},
    {"check_inputs": False, "big_is_error": False},
    {"judge": "result", "big_is_error": False},
    {"inf_is_error": "any", "big_is_error": False},
    {"inf_is_error": False, "big_is_error": False},
    {"inf_is_error": False},
    {"nan_is_error": False},
    {"nan_is_error": False, "big_is_error": False},
    {"tell_fate": True},
]
LINKERS = {"c": ["cvm"] * 6 + ["cvm_nogc", "vm", "vm_nogc"]}
COMPILER_FLAGS = [""] * 4 + ["-O0", "-O2", "-O3", "-O3 -march=native", "-O2 -fno-math-errno"]
"""Added to PyTensor's own.  With one that changes the arithmetic, no results could be compared."""

SPOILERS = [0, -1, -2, -0.5, 1e3, -1e3, 90, -90, 800, -800, 1e10, -1e10, 1e20, -1e20, 1e39, 1e160]
BAD = [np.nan, np.inf, -np.inf, 1e11, -1e31]
SPOILING = ["set_value", "borrow", "function", "large", "rebind"]
"""The ways to change a shared variable."""

DRIFTING = 120
"""Calls of a program with faults at random.  Those after them play one fault after another: each
value at the first, the middle and the last element of each input and shared variable."""

LIMITS = [0.0, -0.0, "tiny", "subnormal", "-subnormal", "eps", 1.0, -1.0, 2.0, -3.0, 20.0]


@dataclass
class Failure:
    """One disagreement.

    Parameters
    ----------
    what : str
        "miss", "false report", "wrong place", "not first", "wrong element", "state", "result",
        "record", "crash" or "input changed".
    seed : int
        Of the program.
    call : int
        Which call, from 0.
    detail : str
    reproduction : str
        A program in Python that shows it, as far as one call shows it.
    """

    what: str
    seed: int
    call: int
    detail: str
    reproduction: str = ""


@dataclass
class Tally:
    """What has been played.

    Parameters
    ----------
    counts : Counter
        programs, calls, planted (calls in which something is in error), ...
    failures : list of Failure
    """

    counts: Counter = field(default_factory=Counter)
    failures: list = field(default_factory=list)

    def add(self, other):
        self.counts.update(other.counts)
        self.failures += other.failures


def plain_mode(backend):
    """Return the mode that compiles without a guard what the guard compiles with one."""
    return Mode({"c": "cvm" if pytensor.config.cxx else "vm"}.get(backend, backend), "fast_run")


def play(seed, backend, n_calls, settings=None, seconds=float("inf"), audit=False):
    """Play the program of a seed.

    Parameters
    ----------
    seed : int
    backend : {"c", "numba", "jax"}
    n_calls : int
    settings : dict, optional
        Of :class:`GuardMode`, instead of those that the seed chooses.
    seconds : float, optional
        Of CPU time, after which no further call is made: some operations have no C code, and take
        minutes.
    audit : bool, optional
        Whether the guard checks what it leaves out as well.

    Returns
    -------
    Tally
    """
    program = write_program(seed, backend)
    # PyTensor 3.0 compiles the bodies of OpFromGraph, when first called, with the default mode.
    mode = {"c": "CVM", "numba": "NUMBA", "jax": "JAX"}[backend]
    flags = pytensor.config.gcc__cxxflags
    if backend == "c":  # (drawn apart, so that older seeds still play the same programs)
        flags = f"{flags} {random.Random(seed ^ 0xF1A6).choice(COMPILER_FLAGS)}".strip()
    # An explanation takes a hundred times as long as a call: every tenth program has them.
    unexplained = mock.patch.object(
        Reporter, "explained", lambda self, trip: GuardError(trip.event)
    )
    with (
        pytensor.config.change_flags(mode=mode, gcc__cxxflags=flags),
        nullcontext() if seed % 10 == 0 else unexplained,
    ):
        return Play(program, backend, settings, audit).run(n_calls, seconds)


class Play:
    """The functions of one program, and what has been found."""

    def __init__(self, program, backend, settings=None, audit=False):
        self.program = program
        self.backend = backend
        self.rng = random.Random(program.seed ^ 0x5EED)
        self.values = np.random.default_rng(abs(program.seed))
        self.is_table = program.seed < 0
        chosen = self.rng.choice(SETTINGS)
        self.settings = {
            "nan_is_error": True,
            "inf_is_error": True,
            "big_is_error": True,
            "linker": self.rng.choice(LINKERS.get(backend, ["auto"])),
            **(chosen if settings is None else settings),
            **({"audit": True} if audit else {}),
        }
        self.rules = Rules(
            nan=self.settings["nan_is_error"],
            inf=bool(self.settings["inf_is_error"]),
            big=self.settings["big_is_error"],
            limit=self.settings.get("big_threshold", 1e10),
            origin=self.settings["inf_is_error"] != "any",
            inputs=self.settings.get("check_inputs", True) is not False,
        )
        self.fused = self.rng.random() < (0.3 if backend == "c" else 0.8)
        # (drawn apart, so that older seeds still play the same programs)
        self.mutable = backend != "jax" and random.Random(~program.seed).random() < 0.2
        self.tally = Tally()
        self.faults = []  # those that are left to be played, the next one last
        self.call = 0
        self.casts = []  # (guarded, plain, reference) of the function and its companion
        self.layouts = {}  # on Numba: of each input, in all calls
        self.ended_early = set()  # the functions whose last call raised another error

    # -- compiling

    def compile(self):
        """Compile the program with and without a guard; return whether PyTensor could without."""
        try:
            self.plain, self.twins, plain_companion = self.functions(plain_mode(self.backend))
        except Exception as error:
            if is_exit(error):
                raise
            self.tally.counts["not compiled"] += 1
            self.tally.counts[f"not compiled: {type(error).__name__}: {str(error)[-160:]}"] += 1
            return False
        try:
            mode = GuardMode(optimizer="fast_run", backend=self.backend, **self.settings)
            self.guarded, self.shared, companion = self.functions(mode)
        except Exception as error:
            self.fail("crash", f"compiling: {traceback.format_exc(limit=-4)}", error)
            return False
        impl = "c" if self.backend == "c" and pytensor.config.cxx else "py"
        judge = partial(Reference, rules=self.rules, impl=impl, backend=self.backend)
        self.reference = judge(self.guarded)
        self.casts = [(self.guarded, self.plain, self.reference)]
        if companion is not None:
            reference = judge(companion) if self.is_guarded() else None
            self.casts.append((companion, plain_companion, reference))
        return True

    def is_guarded(self):
        return self.program.companion == "guarded"

    def functions(self, mode):
        """Return the function, its shared variables by name, and the companion or None."""
        names = self.program.build()
        fn = self.function(names, mode)
        companion = None
        if self.program.companion:
            # (in one process, functions with and without a guard use the same memory)
            mode = mode if self.is_guarded() else plain_mode(self.backend)
            companion = self.function(names, mode, "companion_")
        used = {v.variable for f in (fn, companion) if f for v in f.maker.inputs if v.shared}
        shared = {name: v for name, v in names["shared"].items() if v in used}
        self.names = list(names["inputs"])
        return fn, shared, companion

    def function(self, names, mode, which=""):
        if not self.fused:
            mode = mode.excluding("fusion")
        inputs, outputs = list(names["inputs"].values()), names[f"{which}outputs"]
        if self.mutable:
            inputs = [pytensor.In(v, mutable=True) for v in inputs]
            outputs = [pytensor.Out(v, borrow=True) for v in outputs]
        return pytensor.function(
            inputs,
            outputs,
            updates=names[f"{which}updates"],
            mode=mode,
            on_unused_input="ignore",
        )

    # -- playing

    def run(self, n_calls, seconds=float("inf")):
        """Call the functions; return the :class:`Tally`."""
        if not self.compile():
            return self.tally
        end = time.process_time() + seconds
        self.tally.counts["programs"] += 1
        self.good = {name: get(v) for name, v in self.shared.items()}
        self.growth = self.rng.choice([1.0] * 4 + [1.3, 3.0, 30.0])
        self.scale = 1.0
        sizes = [1, 2, 5, 8, 40, 40, 300] if self.backend != "jax" else [3, 40]
        if self.program.m <= 3 and self.backend != "jax" and self.rng.random() < 0.1:
            sizes.append(30_000)
        if self.rng.random() < 0.3 and self.backend != "jax":
            sizes.append(0)
        self.sizes = ([0] * (300 in sizes) + [1, 2, 7]) if self.is_table else sizes
        self.n = self.rng.choice(sizes)
        for self.call in range(n_calls):
            try:
                self.one_call()
            except Exception as error:
                if is_exit(error):
                    raise
                self.fail("crash", f"in the fuzzer: {traceback.format_exc(limit=-6)}", error)
                break
            if len(self.tally.failures) >= 3 or time.process_time() > end:
                break
        return self.tally

    def one_call(self):
        rng = self.rng
        if rng.random() < 0.25:
            self.n = rng.choice(self.sizes)
        self.scale *= self.growth
        if not self.scale < 1e30 or rng.random() < 0.02:
            self.scale = 1.0
        arguments = self.clean_arguments()
        if self.call < DRIFTING:
            trouble = self.plant(arguments) if rng.random() < 0.65 else "none"
        else:
            trouble = self.plant_next(arguments)
        arrays = [arguments[name] for name in self.names]
        if not self.mutable:  # (else the unguarded function gets copies, of another layout)
            arrays = [self.layout(name, arguments[name]) for name in self.names]
        if len(self.casts) > 1:
            self.guarded, self.plain, self.reference = rng.choice(self.casts)
        if self.reference is None:
            self.call_companion(arrays, trouble)
            if rng.random() < 0.5:
                return  # with what the companion has left in the shared variables
        else:
            self.judge_call(arrays, trouble)
        if self.is_spoilt():
            self.restore()

    def call_companion(self, arrays, trouble):
        """Make a call that nobody guards, of both kinds of function."""
        self.tally.counts["unguarded calls"] += 1
        copies = [a.copy() for a in arrays]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for fn, own in ((self.guarded, arrays), (self.plain, copies)):
                try:
                    fn(*own)
                except Exception as error:  # such as for an array without rows
                    if is_exit(error):
                        raise

    def clean_arguments(self):
        """Return values of all inputs, by name, among which some lie near a limit."""
        m, n, rng = self.program.m, self.n, self.rng
        shapes = {"nm": (n, m), "n": (n,), "m": (m,), "mm": (m, m), "s": (), "complex": (n,)}
        found = {}
        gates = {gate.name: gate for gate in self.program.gates}
        for name in self.names:
            if name == "k":
                found[name] = self.values.integers(0, m, n)
            elif name in gates:
                gate = gates[name]
                found[name] = np.full(shapes[gate.kind], gate.rest, self.program.dtype)
            else:
                kind = INPUTS[name][0]
                value = self.values.normal(size=shapes[kind]) * self.scale
                if kind == "complex":
                    value = value + 1j * self.values.normal(size=shapes[kind])
                    found[name] = value.astype("complex128")
                    continue
                with np.errstate(over="ignore"):
                    value = value.astype(self.program.dtype)
                if not np.isfinite(value).all():
                    self.scale = 1.0
                    value = np.ones_like(value)
                if value.size and rng.random() < 0.3:
                    value.flat[rng.randrange(value.size)] = self.limit_value(rng.choice(LIMITS))
                found[name] = value
        return found

    def limit_value(self, value):
        info = np.finfo(self.program.dtype)
        named = {
            "tiny": info.tiny,
            "subnormal": info.smallest_subnormal,
            "-subnormal": -info.smallest_subnormal,
            "eps": info.eps,
        }
        return named.get(value, value) if isinstance(value, str) else value

    def plant(self, arguments):
        """Spoil one element of an argument or of a shared variable; return how."""
        rng = self.rng
        dtype = self.program.dtype
        if self.program.gates and rng.random() < 0.7:
            gate = rng.choice(self.program.gates)
            value = arguments[gate.name]
            if not value.size:
                return "none"
            spoiler = self.spoiler(rng.choice(SPOILERS))
            value[self.place(value)] = spoiler
            return f"gate {gate.name} = {spoiler}"
        numbers = [name for name in self.names if name != "k" and arguments[name].size]
        with np.errstate(over="ignore"):
            bad = np.asarray(rng.choice(BAD), dtype)
        if self.shared and rng.random() < 0.6:
            name = rng.choice([name for name in self.shared if name != "generator"] or [None])
            if name is None:
                return "none"
            return f"shared {name}: {self.spoil_shared(name, bad)}"
        if not numbers:
            return "none"
        name = rng.choice(numbers)
        value = arguments[name]
        value[self.place(value)] = bad
        return f"input {name} = {bad}"

    def spoiler(self, value):
        """Return a value for a gate in the program's dtype; -1 for one that would be infinite."""
        with np.errstate(over="ignore"):
            value = np.asarray(value, self.program.dtype)
        return value if np.isfinite(value) else np.asarray(-1, self.program.dtype)

    def deck(self):
        """Return the faults that calls play, shuffled: how, the name, the value and the place."""
        gates = {gate.name for gate in self.program.gates}
        shared = [name for name in self.shared if name != "generator"]
        found = [
            *(("gate", name, value) for name in gates for value in SPOILERS),
            *(("input", name, value) for name in self.names if name != "k" for value in BAD),
            *((how, name, value) for name in shared for how in SPOILING for value in BAD),
        ]
        found = [(*fault, place) for fault in sorted(found, key=str) for place in range(3)]
        self.rng.shuffle(found)
        return found

    def plant_next(self, arguments):
        """Play the next fault of the deck; return how."""
        if not self.faults:
            self.faults = self.deck()
        how, name, value, place = self.faults.pop()
        if how in SPOILING:
            with np.errstate(over="ignore"):
                bad = np.asarray(value, self.program.dtype)
            return f"shared {name}: {self.spoil_shared(name, bad, how, place)}"
        array = arguments[name]
        if not array.size:
            return "none"
        with np.errstate(over="ignore"):
            array[place_of(array, place)] = self.spoiler(value) if how == "gate" else value
        return f"{how} {name} = {value}"

    def place(self, value):
        """Return the index of the element to spoil; in the tables, the first, middle or last."""
        if self.is_table:
            return place_of(value, self.rng.randrange(3))
        return np.unravel_index(self.rng.randrange(value.size), value.shape)

    def spoil_shared(self, name, bad, how=None, place=None):
        """Change one element of a shared variable in one of the ways there are."""
        rng = self.rng
        how = how or rng.choice(SPOILING)
        value = get(self.shared[name])
        shape = np.shape(value)
        if place is None:
            at = tuple(rng.randrange(n) for n in shape)
        else:
            at = tuple(map(int, place_of(value, place)))
        if how == "large":  # nothing bad itself, but what is computed from it may be
            bad = np.asarray(min(9e9, np.finfo(self.program.dtype).max / 3), self.program.dtype)
        for variable in (self.shared[name], self.twins[name]):
            # (JAX may have left a float64 where the variable has float32)
            copied = get(variable).astype(variable.type.dtype)
            if how in ("set_value", "rebind"):
                copied[at] = bad
                variable.set_value(copied, borrow=how == "rebind")
            elif how == "function" and shape:
                self.writer(variable)(at[0], np.full(shape[1:], bad, self.program.dtype))
            else:
                value = variable.get_value(borrow=True, return_internal_type=True)
                if isinstance(value, np.ndarray) and value.flags.writeable:
                    value[at] = bad
                else:  # JAX's cannot be written
                    copied[at] = bad
                    variable.set_value(copied)
        return f"{how} {at} = {bad}"

    def writer(self, variable):
        """Return an unguarded function that overwrites a row of a shared variable in place."""
        key = id(variable)
        writers = self.__dict__.setdefault("writers", {})
        if key not in writers:
            row = pt.tensor(dtype=variable.dtype, shape=(None,) * (variable.ndim - 1))
            i = pt.lscalar()
            writers[key] = pytensor.function(
                [i, row],
                [],
                updates={variable: pt.set_subtensor(variable[i], row)},
                mode=plain_mode("c" if self.backend == "numba" else self.backend),
            )
        return writers[key]

    def layout(self, name, value):
        """Return the same numbers in one of the layouts that an array can have."""
        if isinstance(value, np.ndarray) and value.ndim:
            how = self.rng.randrange(6)
            if self.backend == "numba":  # which compiles a program for each combination of them
                how = self.layouts.setdefault(name, how if self.program.seed % 3 == 0 else 0)
            if how == 1:
                value = np.asfortranarray(value)
            elif how == 2:
                value = value[::-1].copy()[::-1]
            elif how == 3:
                wide = np.full((*value.shape[:-1], 2 * value.shape[-1]), 7, value.dtype)
                wide[..., ::2] = value
                value = wide[..., ::2]
            elif how == 4 and value.ndim == 2:
                value = value.T.copy().T
        return value

    # -- judging

    def judge_call(self, arrays, trouble):
        """Make one call and compare it with the reference and with the unguarded function."""
        counts = self.tally.counts
        counts["calls"] += 1
        before = {name: get(v) for name, v in self.shared.items()}
        copies = [a.copy() for a in arrays]
        for name, variable in self.twins.items():
            if not same([get(variable)], [before[name]]):
                put(variable, before[name])
        try:
            verdict = self.reference.judge(arrays)
        except Exception as error:  # wrong shapes: the unguarded function must say so, too
            verdict, unrunnable = None, error
        calls_before = self.guarded.vm.guard.calls
        event, message, outputs, other = None, "", None, None
        try:
            outputs = self.guarded(*arrays)
        except GuardError as error:
            event = error.event
            message = str(error)
        except Exception as error:
            if is_exit(error):
                raise
            other = error
        self.before, self.arrays, self.trouble = before, copies, trouble
        if not same(arrays, copies) and not (self.mutable and outputs is not None):
            self.fail("input changed", "an argument was overwritten")
        if verdict is None or other is not None:
            self.judge_broken(verdict, other, event, before, unrunnable if not verdict else None)
            return
        events = [e for e in events_of(self.guarded) if e.call == calls_before + 1]
        complaints = list(self.complaints(verdict, events, event, message))
        if complaints:  # unless it depends on the last bits, and the backend rounds otherwise
            verdict = self.reference.judge_rounded(named(verdict, events, event))
            complaints = list(self.complaints(verdict, events, event, message))
            if {what for what, _ in complaints} == {"false report"}:
                kinds = {e.kind for e in (*events, event) if e is not None}
                if self.computes_otherwise(verdict, kinds):
                    complaints = []
            counts["decided by rounding"] += not complaints
        if self.must_report(verdict):
            counts["planted"] += 1
        if any(not f.is_certain for f in verdict.findings):
            counts["left open"] += 1
        for what, detail in complaints:
            self.fail(what, detail)
        if self.settings.get("action") == "record":
            counts["recorded"] += len(events)
        elif event is not None:
            counts["reported"] += 1
            after = {name: get(v) for name, v in self.shared.items()}
            changed = [name for name in after if not same([after[name]], [before[name]])]
            if changed:
                self.fail("state", f"after the error {changed} are not as before")
            return
        self.compare_with_plain(arrays, outputs)

    def computes_otherwise(self, verdict, kinds):
        """Whether the unguarded function gives bad results that no run of the reference gives.

        XLA makes a NaN of some operations that it computes together.  A function may also raise,
        as NumPy does for eigenvalues that it cannot find.
        """

        def any_bad(values):
            numbers = [v for v in map(np.asarray, values) if v.dtype.kind in "fc"]
            return any(self.rules.mask(v, kind).any() for v in numbers for kind in kinds)

        if self.backend == "c":
            return False
        try:
            results = self.plain(*(a.copy() for a in self.arrays))
        except (ArithmeticError, ValueError, np.linalg.LinAlgError):
            return True
        left = [get(variable) for variable in self.twins.values()]
        return any_bad([*results, *left]) and not any(map(any_bad, verdict.outputs))

    def complaints(self, verdict, events, event, message):
        """Yield where what was reported disagrees with a verdict: what, and the details."""
        if self.settings.get("action") == "record":
            yield from self.judge_records(verdict, events)
        elif event is not None:
            yield from self.judge_event(verdict, event, message)
        elif must := self.must_report(verdict):
            yield "miss", listed(must)

    def must_report(self, verdict):
        """Return what is in error for certain, and follows from nothing else."""
        by_result = self.settings.get("judge") == "result"
        return [] if by_result and not all(verdict.spoils) else verdict.first()

    def results_bad(self, verdict):
        """Yield of each run whether a result is bad."""
        for outputs in verdict.outputs:
            yield any(
                bool(self.rules.bad(v).any())
                for v in outputs
                if isinstance(v, np.ndarray) and v.dtype.kind in "fc"
            )

    def judge_broken(self, verdict, other, event, before, unrunnable):
        """Judge a call that ended in another error: the unguarded one must end so, too."""
        counts = self.tally.counts
        self.ended_early.add(self.guarded)
        try:
            self.plain(*(a.copy() for a in self.arrays))
        except Exception as error:
            if is_exit(error):
                raise
            counts["other errors"] += 1
            # (what JAX cannot compile is met in the order of the graph, and the guard's is another)
            as_expected = type(other) is type(error) or self.backend == "jax"
            if event is None and not as_expected:
                found = "nothing" if other is None else type(other).__name__
                self.fail("result", f"{found} instead of {type(error).__name__}")
        else:
            if other is not None:
                self.fail("crash", f"{type(other).__name__}: {str(other)[:600]}", other)
            elif event is None and isinstance(unrunnable, IndexError):
                self.fail("miss", f"an index is outside: {unrunnable}")  # (Numba checks none)
            else:  # (a report is not judged, either)
                counts["reference failed"] += 1
                counts[f"reference failed: {type(unrunnable).__name__}"] += 1
                if counts["reference failed"] == 1:
                    where = "".join(traceback.format_exception(unrunnable)[-4:])
                    counts[f"reference failed: {where}"] += 1
        after = {name: get(v) for name, v in self.shared.items()}
        if (other is not None or event is not None) and any(
            not same([after[name]], [before[name]]) for name in after
        ):
            self.fail("state", "after another error the shared variables are not as before")

    def judge_event(self, verdict, event, message):
        """Yield what is wrong with an error that was raised."""
        matching = [f for f in verdict.findings if matches(f, event)]
        if event.role == "constant" and self.reference.constants():
            return
        if not verdict.findings or not (self.must_report(verdict) or self.may_report(verdict)):
            yield "false report", told(event) + "\n" + message[:600]
        elif not matching:
            yield "wrong place", f"{told(event)}\nin error are\n{listed(verdict.findings)}"
        elif all(f.follows for f in matching) and verdict.first():
            # (where all depends on rounding, a second run need not give what came first)
            yield "not first", f"{told(event)}\nin error are\n{listed(verdict.findings)}"
        elif not any(agrees(f, event) for f in matching):
            yield "wrong element", f"{told(event)}\nin error are\n{listed(matching)}"

    def may_report(self, verdict):
        """Whether it is left open if something is to be reported.

        So it is where a result is bad and depends on an error by a truth value or a whole number
        alone.
        """
        if self.settings.get("judge") == "result":
            return bool(verdict.findings) and any(self.results_bad(verdict))
        return any(not f.is_certain for f in verdict.findings)

    def judge_records(self, verdict, events):
        """Yield each disagreement: a fault without an event, or an event without a fault."""
        for event in events:
            if not any(matches(f, event) for f in verdict.findings):
                yield "false report", f"recorded {told(event)}\n{listed(verdict.findings)}"
        for f in verdict.first():
            # (of a fused operation with several bad outputs, one is recorded)
            if not any(matches(f, event, loosely=True) for event in events):
                recorded = "\n".join(map(told, events))
                yield "record", f"not recorded: {f}\nrecorded:\n{recorded}"

    def compare_with_plain(self, arrays, outputs):
        """After a call without an error all is as the unguarded function leaves it."""
        if self.backend == "numba" and self.program.seed % 3:
            return  # to compile it takes as long as all calls
        try:
            expected = self.plain(*([a.copy() for a in self.arrays] if self.mutable else arrays))
        except Exception as error:
            self.fail("result", f"the unguarded function raises {type(error).__name__}: {error}")
            return
        # Without garbage collection PyTensor computes into the arrays of the call before, which may
        # have been another one, and a product rounds by their layout.  After an error, so does its
        # virtual machine in Python, guarded or not.
        linker = self.settings.get("linker", "")
        keeps = linker.endswith("_nogc") or (linker == "vm" and self.guarded in self.ended_early)
        self.ended_early.discard(self.guarded)
        exact = self.backend == "c" and not keeps
        agree = same if exact else partial(alike, size=largest(self.arrays))
        returned = [output.variable for output in self.guarded.maker.outputs]
        if not agree(typed(outputs, returned), typed(expected, returned)):
            self.fail("result", "the outputs are not those of the unguarded function")
        for name, variable in self.shared.items():
            left = [[get(v)] for v in (variable, self.twins[name])]
            if not agree(*(typed(values, [variable]) for values in left)):
                self.fail("result", f"{name} is not what the unguarded function leaves")

    def is_spoilt(self):
        """Whether a shared variable holds what would spoil the calls to come."""
        with np.errstate(all="ignore"):
            return any(
                isinstance(value := get(v), np.ndarray)
                and not bool(np.all(np.abs(value.astype("float64")) < 50))
                for v in self.shared.values()
            )

    def restore(self):
        """Give the shared variables good values again."""
        for name, value in self.good.items():
            for variable in (self.shared[name], self.twins[name]):
                put(variable, value)

    # -- failures

    def fail(self, what, detail, error=None):
        counts = self.tally.counts
        counts[f"FAILED {what}"] += 1
        usual = (True, "cvm", "auto")
        settings = {k: v for k, v in self.settings.items() if v not in usual}
        fused = "" if self.fused else ", not fused"
        detail = f"{settings}{fused}, planted: {getattr(self, 'trouble', None)}\n{detail}"
        reproduction = self.reproduction() if hasattr(self, "arrays") else self.program.text
        self.tally.failures.append(
            Failure(what, self.program.seed, self.call, detail, reproduction)
        )

    def reproduction(self):
        """Return a program that makes the failing call alone, from its shared variables."""
        lines = [self.program.text, "", "from theanoguard import GuardMode", ""]
        which = "" if self.guarded is self.casts[0][0] else "companion_"
        arguments = ", ".join(f"{k}={v!r}" for k, v in self.settings.items())
        excluding = "" if self.fused else '.excluding("fusion")'
        lines.append(
            f'mode = GuardMode(optimizer="fast_run", backend="{self.backend}", {arguments})'
            f"{excluding}"
        )
        lines.append(
            f"fn = pytensor.function(list(inputs.values()), {which}outputs, "
            f"updates={which}updates, mode=mode, "
            'on_unused_input="ignore")'
        )
        lines.append("nan, inf = np.nan, np.inf")
        for name, value in self.before.items():
            if isinstance(value, np.ndarray):
                lines.append(f"{name}.set_value({literal(value)})")
        arguments = ",\n    ".join(literal(value) for value in self.arrays)
        lines.append(f"print(fn(\n    {arguments}\n))")
        return "\n".join(lines) + "\n"


def place_of(value, place):
    """Return the index of the first (0), the middle (1) or the last element (2) of an array."""
    return np.unravel_index((0, value.size // 2, value.size - 1)[place], value.shape)


def is_exit(error):
    return isinstance(error, KeyboardInterrupt | SystemExit | MemoryError)


def literal(value):
    """Return Python text for an array."""
    if value.size > 3000:
        return f"np.ones({value.shape}, {str(value.dtype)!r})  # too large to print"
    return f"np.array({value.tolist()!r}, {str(value.dtype)!r}).reshape({value.shape})"


def get(variable):
    """Return a copy of the value of a shared variable; of a generator, its state."""
    value = variable.get_value(borrow=False)
    if hasattr(value, "bit_generator"):
        return value.bit_generator.state
    if isinstance(value, dict):  # a generator's, with JAX
        return {k: np.array(v) if hasattr(v, "shape") else v for k, v in value.items()}
    return np.array(value)


def put(variable, value):
    """Set the value that :func:`get` gave."""
    if isinstance(value, dict) and "bit_generator" in value and "state" in value:
        generator = np.random.default_rng(0)
        generator.bit_generator.state = value
        variable.set_value(generator)
    elif isinstance(value, np.ndarray):
        variable.set_value(value.copy(order="K"))


def same(one, other):
    """Whether two lists of values are bit for bit the same."""
    return all(
        str(a) == str(b)
        if isinstance(a, dict)
        else np.shape(a) == np.shape(b) and _bits(a) == _bits(b)
        for a, b in zip(one, other, strict=True)
    )


def _bits(value):
    """Return the bits of an array; NaNs are all alike."""
    value = np.array(value)
    if value.dtype.kind in "fc":
        value = np.where(np.isnan(value), np.asarray(np.nan, value.dtype), value)
    return value.tobytes()


def typed(values, variables):
    """Return the values of variables in their types.

    What JAX computes from a sum may have more bits than its type, but is no more accurate.
    """
    return [
        np.asarray(value, v.type.dtype) if isinstance(v.type, TensorType) else value
        for value, v in zip(values, variables, strict=True)
    ]


def largest(arrays):
    """Return the largest finite magnitude in arrays, at least 1."""
    numbers = [np.abs(a) for a in arrays if isinstance(a, np.ndarray) and a.dtype.kind in "fc"]
    return max([1.0, *(float(n[np.isfinite(n)].max(initial=0)) for n in numbers)])


def alike(one, other, size=1.0):
    """Whether two lists of values differ by rounding at most.

    A remainder is as inexact as the number, perhaps of magnitude `size`, from which it is taken.
    """
    for a, b in zip(one, other, strict=True):
        if isinstance(a, dict):
            continue
        a, b = np.asarray(a), np.asarray(b)
        if a.dtype.kind not in "fc":
            if not np.array_equal(a, b):
                return False
            continue
        with np.errstate(all="ignore"):
            bits = 1e5 * np.finfo(a.dtype).eps
            if not np.allclose(a, b, rtol=bits, atol=bits * size, equal_nan=True):
                return False
    return True


def matches(finding, event, loosely=False):
    """Whether an event is about a finding; loosely: at another step, in another output."""
    if finding.role != event.role:
        return False
    path = tuple((step.op, step.step) for step in event.path)
    own = finding.path
    if len(own) > len(path) and own[: len(path)] == path and event.op == own[len(path)][0]:
        return True  # Numba: what was fused by more than elements is judged as one piece
    if loosely:
        path, own = (tuple(op for op, _ in p) for p in (path, own))
    if path != own:
        return False
    if finding.role == "node":
        if finding.path:  # inside, PyTensor's releases name variables in different ways
            return finding.name.split("(")[0] == event.node.split("(")[0]
        return finding.name == event.node and (loosely or finding.output == event.output)
    return finding.name == event.variable


def named(verdict, events, event):
    """Return the nodes that a verdict or events are about, as they are printed."""
    found = [f.name for f in verdict.findings if f.role == "node"]
    return {*found, *(e.node for e in (*events, event) if e is not None and e.node)}


def agrees(finding, event):
    """Whether an event names an element of a finding, and counts as many."""
    if finding.value.shape != tuple(event.shape) or len(finding.path) != len(event.path):
        return True  # sparse, lists, and what was fused: nothing is said of their elements
    either = finding.certain | finding.possible
    lowest, highest = int(finding.certain.sum()), int(either.sum())
    return bool(either[tuple(event.first_index)]) and lowest <= event.n_bad <= highest


def told(event):
    path = "".join(f"{step}: " for step in event.path)
    return (
        f"{path}{event.role} {event.node or event.variable} output {event.output} "
        f"{event.kind} at {event.first_index}, {event.n_bad} of {event.size}"
    )


def listed(findings):
    return "\n".join(f"  {finding}" for finding in findings[:8])
