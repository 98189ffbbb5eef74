"""Play a world: programs that are compiled as one function, guarded, beside an unguarded twin.

Each call is made on both sides.  Whatever somebody receives or keeps is compared bit for bit:
outputs, shared variables, inputs, constants, arrays that somebody holds, and errors.
"""

import logging
import random
import signal
import time
import traceback
import warnings
from collections import Counter
from contextlib import nullcontext
from dataclasses import dataclass, field
from unittest import mock

import numpy as np
import pytensor
import scipy.sparse
from pieces import LENGTHS, write_piece
from playing import alike, is_exit, literal, place_of
from pytensor.compile.mode import Mode

from theanoguard import GuardError, GuardMode
from theanoguard.guard.reporting import Reporter

SETTINGS = [
    {},
    {},
    {},
    {},
    {"action": "record"},
    {"action": "record"},
    {"judge": "result"},
    {"check_inputs": "trusted"},
    {"inf_is_error": "any"},
    {"every": 3},
    {"audit": True},
    {"big_is_error": True, "big_threshold": 1e30},
]
LINKERS = {"c": ["cvm"] * 5 + ["cvm_nogc", "vm"]}
PLAIN = {"c": "CVM", "numba": "NUMBA", "jax": "JAX", "pytorch": "PYTORCH"}
ROUNDS = ("jax", "pytorch")
"""Backends that fuse anew around a check, and so round otherwise.  The difference is bounded."""
GENERIC = (ValueError, TypeError, IndexError, AssertionError, ZeroDivisionError, RuntimeError)

BAD = [-1.0, 0.0, -1e3, 1e3, 800.0, 1e300, -1e300]


@dataclass
class Failure:
    """One difference.

    Parameters
    ----------
    what : str
        Such as "output", "shared", "input", "held", "constant", "error", "state", "false report".
    world : int
        Its seed.
    piece : int or None
        The program's number in its world.
    call : int
    detail : str
    """

    what: str
    world: int
    piece: int | None
    call: int
    detail: str


@dataclass
class Tally:
    """What has been played; its counts are of programs, calls and comparisons."""

    counts: Counter = field(default_factory=Counter)
    failures: list = field(default_factory=list)


def plain_mode(backend, linker="cvm"):
    """Return the mode that compiles without a guard what the guard compiles with one.

    (An operation of C writes into the array of the call before if the linker keeps that, whatever
    the order of its elements, on which the sums of a product depend.)
    """
    if backend == "c" and not pytensor.config.cxx:
        linker = linker.replace("cvm", "vm")
    return Mode(linker if backend == "c" else backend, "fast_run")


def copied(value):
    """Return a value that no later call changes."""
    if hasattr(value, "bit_generator"):
        return value.bit_generator.state
    if isinstance(value, dict):  # a generator's, with JAX
        return {k: copied(v) for k, v in value.items()}
    if scipy.sparse.issparse(value):
        return value.copy()
    if isinstance(value, list | tuple):
        return [copied(v) for v in value]
    return np.array(value) if hasattr(value, "shape") else value


def facts(value):
    """Return what has to be the same: class, dtype, shape and bits (NaNs are all alike)."""
    if isinstance(value, dict):
        return str({k: facts(v) if hasattr(v, "shape") else v for k, v in value.items()})
    if scipy.sparse.issparse(value):
        return value.format, facts(value.toarray())
    if isinstance(value, list):
        return tuple(map(facts, value))
    array = np.array(value)
    if array.dtype.kind in "fc":
        array = np.where(np.isnan(array), np.asarray(np.nan, array.dtype), array)
    return str(array.dtype), array.shape, array.tobytes()


def is_bad(value):
    """Whether there is a NaN or an Inf in a value."""
    if scipy.sparse.issparse(value):
        value = value.data
    array = np.asarray(value) if hasattr(value, "shape") else np.zeros(0)
    return array.dtype.kind in "fc" and not np.isfinite(array).all()


class Complaints(logging.Handler):
    """Keeps the messages by which the package says that it has failed itself."""

    def __init__(self):
        super().__init__(logging.ERROR)
        self.texts = []

    def emit(self, record):
        if "please report" in record.getMessage():
            error = traceback.format_exception(*record.exc_info)[-5:] if record.exc_info else []
            self.texts.append("".join([record.getMessage() + "\n", *error]))


class Side:
    """The functions of all programs of a world, guarded or not.

    Parameters
    ----------
    pieces : list of Piece
    mode : Mode
    copies : bool
        Whether calls are made through ``f.copy()``, too.
    """

    def __init__(self, pieces, mode, copies=False):
        self.pieces = pieces
        self.names = [piece.build() for piece in pieces]
        self.mode = mode
        inputs = [v for names in self.names for v in names["inputs"]]
        outputs = [v for names in self.names for v in names["outputs"]]
        self.n_outputs = [len(names["outputs"]) for names in self.names]
        self.functions = {"f": self.function(inputs, outputs, self.merged("updates"))}
        more = [entry for names in self.names for entry in names["more"][:1]]
        self.others = [i for i, names in enumerate(self.names) if names["more"]]
        if more:
            self.functions["other"] = self.function(
                [v for entry in more for v in entry[0]],
                [v for entry in more for v in entry[1]],
                {v: new for entry in more for v, new in entry[2].items()},
            )
        if copies:
            self.functions["copy"] = self.functions["f"].copy()
        self.shared = {
            (i, name): variable
            for i, names in enumerate(self.names)
            for name, variable in names["shared"].items()
        }
        self.held = {
            (i, name): array
            for i, names in enumerate(self.names)
            for name, array in names["held"].items()
        }

    def merged(self, which):
        return {v: new for names in self.names for v, new in names[which].items()}

    def function(self, inputs, outputs, updates):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return pytensor.function(
                inputs,
                outputs,
                updates=updates,
                givens=self.merged("givens"),
                mode=self.mode,
                on_unused_input="ignore",
            )

    def states(self):
        """Return copies of the values of the shared variables."""
        return {key: copied(v.get_value(borrow=True)) for key, v in self.shared.items()}

    def put(self, states):
        """Set all shared variables; who has lent an array lends one again."""
        for key, variable in self.shared.items():
            value = states[key]
            if isinstance(value, np.ndarray):  # (PyTorch may have given it another dtype)
                value = value.astype(variable.type.dtype)
            if isinstance(value, dict):
                if "bit_generator" not in value:
                    continue
                generator = np.random.default_rng(0)
                generator.bit_generator.state = value
                variable.set_value(generator, borrow=True)
            elif key in self.held:
                self.held[key] = value.copy()
                variable.set_value(self.held[key], borrow=True)
            else:
                variable.set_value(copied(value))


class World:
    """Programs side by side.

    Parameters
    ----------
    seed : int
        Its programs have the seeds ``seed * 100 + i``.
    backend : {"c", "numba", "jax", "pytorch"}
    n_pieces : int
    only : sequence of int, optional
        The numbers of the programs that are played.
    settings : dict, optional
        Of :class:`GuardMode`, instead of those that the seed chooses.
    phase : callable, optional
        Is told what comes next, since it may end the process.
    family : str, optional
        Of all programs.
    """

    def __init__(self, seed, backend, n_pieces, only=None, settings=None, phase=None, family=None):
        self.rng = random.Random(seed ^ 0x7717)
        self.values = np.random.default_rng(seed)
        self.seed, self.backend = seed, backend
        self.phase = phase or (lambda what: None)
        self.tally = Tally()
        self.call = 0
        self.is_spoilt = False  # whether a call without a planted fault makes NaN or Inf
        chosen = self.rng.choice(SETTINGS)
        chosen = {"big_is_error": False, **chosen}
        if backend in LINKERS:
            chosen["linker"] = self.rng.choice(LINKERS[backend])
        self.settings = chosen if settings is None else {"big_is_error": False, **settings}
        # (Each fused operation is a compilation of its own, which takes most of the time on C.)
        self.fused = self.rng.random() < (0.2 if backend == "c" else 0.6)
        self.copies = self.rng.random() < 0.25
        self.fast = backend == "numba" and self.rng.random() < 0.1
        self.explained = self.rng.random() < 0.1
        self.pieces = {}
        for i in range(n_pieces):
            if only is None or i in only:
                self.pieces[i] = write_piece(seed * 100 + i, backend, family)
        self.exact = backend not in ROUNDS and not self.fast

    # -- compiling

    def modes(self):
        plain = plain_mode(self.backend, self.settings.get("linker", "cvm"))
        guarded = GuardMode(
            nan_is_error=True,
            inf_is_error=self.settings.get("inf_is_error", True),
            optimizer="fast_run",
            backend=self.backend,
            **{k: v for k, v in self.settings.items() if k != "inf_is_error"},
        )
        if not self.fused or self.backend == "jax":
            plain, guarded = plain.excluding("fusion"), guarded.excluding("fusion")
        return plain, guarded

    def compile(self):
        """Compile both sides; leave out the programs that PyTensor cannot compile."""
        plain, guarded = self.modes()
        try:
            twin = self.side(plain, self.pieces)
        except Exception as error:
            if is_exit(error):
                raise
            for i in list(self.pieces):
                try:
                    twin = self.side(plain, {i: self.pieces[i]})
                except Exception as own:
                    if is_exit(own):
                        raise
                    self.pieces.pop(i)
                    self.tally.counts["not compiled"] += 1
                    text = f"{type(own).__name__}: {str(own).strip().splitlines()[0][:90]}"
                    self.tally.counts[f"not compiled: {text}"] += 1
            if not self.pieces:
                return False
            twin = self.side(plain, self.pieces)
        self.twin = twin
        self.phase("compiling guarded")
        try:
            self.guarded = self.side(guarded, self.pieces)
        except Exception as error:
            if is_exit(error):
                raise
            found = False
            for i in self.pieces:
                try:
                    self.side(guarded, {i: self.pieces[i]})
                except Exception as own:
                    found = True
                    self.fail("compiling", i, traceback.format_exception(own)[-1][:600])
            if not found:
                self.fail("compiling", None, "".join(traceback.format_exception(error)[-3:])[:900])
            return False
        self.numbers = list(self.pieces)
        return True

    def side(self, mode, pieces):
        return Side(list(pieces.values()), mode, self.copies)

    # -- playing

    def play(self):
        """Play all calls; return the :class:`Tally`."""
        # (PyTensor 3.0 compiles the bodies of OpFromGraph, when first called, with this mode.)
        flags = {"mode": PLAIN[self.backend], "numba__fastmath": self.fast}
        short = mock.patch.object(Reporter, "explained", lambda self, trip: GuardError(trip.event))
        self.complaints = Complaints()
        with (
            warnings.catch_warnings(),
            mock.patch.object(logging.getLogger("theanoguard"), "handlers", [self.complaints]),
            np.errstate(all="ignore"),
            pytensor.config.change_flags(**flags),
            nullcontext() if self.explained else short,
        ):
            warnings.simplefilter("ignore")
            self.phase("compiling the twin")
            begun = time.process_time()
            ok = self.compile()
            self.tally.counts["compiling, ms"] += int(1000 * (time.process_time() - begun))
            if ok:
                self.tally.counts["programs"] += len(self.pieces)
                for piece in self.pieces.values():
                    self.tally.counts[f"family: {piece.family}"] += 1
                self.good = self.guarded.states()
                self.kept = []  # results of the last calls: both sides' arrays and what they were
                for what, piece in self.plan():
                    if len(self.tally.failures) >= 6:
                        break
                    self.one_call(what, piece)
                    while self.complaints.texts:
                        self.fail("complaint", piece, self.complaints.texts.pop()[:1500])
        return self.tally

    def plan(self):
        """Yield the kinds of calls, and the number of the program that is to fail."""
        n = len(self.pieces)
        yield from [("good", None)] * 3
        troubles = []
        for i, piece in enumerate(self.pieces.values()):
            troubles += [(what, i) for what in self.troubles(piece)]
        self.rng.shuffle(troubles)
        at_most = 2 + n // 2 if self.backend != "c" else 2 * n
        dear = [t for t in troubles if t[0] == "gate"]
        # (A second run compiles each node by itself on these backends.)
        if self.backend != "c":
            dear = dear[: 1 + (self.rng.random() < 0.3)]
        cheap = [t for t in troubles if t[0] != "gate"]
        for what in (cheap + dear)[:at_most] + dear[:1]:
            yield what
            if self.rng.random() < 0.3:
                yield "good", None
        if self.backend != "jax":
            yield from [("interrupted", None)] * 5
        yield from [("good", None)] * 2

    def troubles(self, piece):
        """Return the ways in which a program can fail."""
        found = []
        kinds = piece.kinds.values()
        if piece.gate:
            found.append("gate")
        if self.backend in ("c", "numba"):
            if any(k[0] == "k" for k in kinds):
                found += ["outside", "before"]
            if any(k[0] == "b" for k in kinds):
                found += ["short mask", "long mask"]
            if piece.family == "loop" and not piece.is_fixed:
                found.append("empty")
        return found

    def arguments(self, piece, trouble):
        """Return values of the inputs, by name."""
        rng, values = self.rng, self.values
        m = piece.m
        n = piece.n if piece.is_fixed or piece.n > 7 else max(rng.choice(LENGTHS), piece.least)
        if trouble in ("outside", "before", "short mask", "long mask") and not piece.is_fixed:
            n = max(n, 2)
        if trouble == "empty":
            n = 0
        found = {}
        shapes = {"nm": (n, m), "n": (n,), "m": (m,), "mm": (m, m), "s": (), "complex": (n,)}
        lengths = {"ks": (n,), "kp": (n, 2), "kn": (n,), "kN": (rng.choice([0, 1, 4]),), "k0": ()}
        masks = {"bb": (n, m), "bm": (m,), "bn": (n,), "bM": (m, m)}
        wrong = {"short mask": -1, "long mask": 1 + rng.choice([0, 0, 5])}.get(trouble, 0)
        dtype = piece.dtype
        for name, kind in piece.kinds.items():
            if kind in masks:
                shape = masks[kind]
                shape = (*shape[:-1], max(shape[-1] + wrong, 0))
                found[name] = values.integers(0, 2, shape).astype(bool)
                if rng.random() < 0.1:
                    found[name][...] = rng.random() < 0.5
            elif kind in lengths:
                length = n if kind == "kN" else m
                array = np.asarray(values.integers(0, max(length, 1), lengths[kind]), "int64")
                if rng.random() < 0.3:
                    array = array - np.asarray(length * (values.random(array.shape) < 0.5), "int64")
                if length == 0:
                    array = array[:0] if array.ndim else array
                if trouble in ("outside", "before") and array.size:
                    array = np.array(array)
                    out = rng.choice([length, length + 1, length + 100])
                    bad = out if trouble == "outside" else -out - 1
                    array[place_of(array, rng.randrange(3))] = bad
                found[name] = array
            elif name == piece.gate:
                array = np.ones(shapes[kind], dtype)
                if trouble == "gate" and array.size:
                    bad = np.asarray(rng.choice(BAD)).astype(dtype)
                    array[place_of(array, rng.randrange(3))] = bad if np.isfinite(bad) else -1
                found[name] = array
            elif dtype == "bool":
                found[name] = values.integers(0, 2, shapes[kind]).astype(bool)
            elif np.dtype(dtype).kind in "iu":
                found[name] = np.asarray(values.integers(0, 5, shapes[kind]), dtype)
            else:
                array = np.asarray(values.uniform(-1, 1, shapes[kind]))
                is_complex = kind == "complex" or dtype.startswith("complex")
                found[name] = np.asarray(
                    array + 1j * array[::-1] if is_complex and array.ndim else array,
                    "complex128" if kind == "complex" else dtype,
                )
        return found

    def all_arguments(self, which, trouble, victim):
        """Return the arguments of a function, in order, with the numbers of their programs."""
        found = []
        for i, (piece, names) in enumerate(
            zip(self.pieces.values(), self.guarded.names, strict=True)
        ):
            values = self.arguments(piece, trouble if i == victim else None)
            if which == "other":
                wanted = [v.name for v in names["more"][0][0]] if names["more"] else []
            else:
                wanted = list(values)
                order = [getattr(v, "variable", v).name for v in names["inputs"]]
                wanted.sort(key=order.index)
            found += [(i, name, values[name]) for name in wanted]
        return found

    def one_call(self, what, victim):
        """Make one call on both sides and compare."""
        self.call += 1
        counts = self.tally.counts
        rng = self.rng
        which = "f"
        if what == "good" and len(self.guarded.functions) > 1 and rng.random() < 0.6:
            which = rng.choice(list(self.guarded.functions))
        elif what != "good" and "copy" in self.guarded.functions and rng.random() < 0.4:
            which = "copy"
        self.last = arguments = self.all_arguments(which, what, victim)
        self.what, self.which, self.victim = what, which, victim
        before = self.guarded.states()
        mine = [self.layout(a.copy()) for _, _, a in arguments]
        other = [a.copy(order="K") for a in mine]
        others_bits = [a.copy() for a in mine]
        if what in ("outside", "before", "short mask", "long mask") and self.backend == "numba":
            self.judge_outside(mine, others_bits, before, victim)
            return
        self.phase("calling the twin")
        expected, error = self.attempt(self.twin.functions[which], other)
        after = self.twin.states()
        self.phase("calling guarded")
        if what == "interrupted":
            got, raised = self.interrupted(self.guarded.functions[which], mine)
        else:
            got, raised = self.attempt(self.guarded.functions[which], mine)
        counts["calls"] += 1
        now = self.guarded.states()
        if isinstance(raised, KeyboardInterrupt):
            counts["interrupted calls"] += 1
            self.judge_interrupted(before, after, now)
            self.compare_inputs(arguments, mine, others_bits)
            self.again(now)
            return
        made_bad = error is None and (
            any(map(is_bad, expected)) or any(map(is_bad, after.values()))
        )
        if error is not None and what == "good":
            self.is_spoilt = True
            counts["failed at rest"] += 1
            counts[f"at rest: {type(error).__name__}: {str(error).splitlines()[0][:70]}"] += 1
        if raised is not None:
            counts["failed calls"] += 1
            self.compare_states("after an error", before, now)
            self.compare_inputs(arguments, mine, others_bits)
            if isinstance(raised, GuardError):
                counts["guard errors"] += 1
                if made_bad and what == "good":
                    self.is_spoilt = True
                    counts["bad at rest"] += 1
                if error is None and not made_bad:
                    counts["guard errors, masked"] += 1
                    if what in ("good", "interrupted"):
                        self.fail("false report", self.of_event(raised), str(raised)[:500])
            elif error is None and same_class(raised, self.reference(victim or 0, raised)):
                counts["errors as written only"] += 1
            elif error is None:
                text = f"{type(raised).__name__}: {str(raised)[:700]}"
                self.fail("error", victim, f"the twin raised nothing, the guarded raised {text}")
            elif self.is_spoilt:  # (which of two errors is first is left open)
                counts["left open"] += 1
            elif not same_class(raised, error):
                self.fail(
                    "error", victim, f"the twin raised {error!r:.300}, the guarded {raised!r:.300}"
                )
            self.again(now)
            return
        if error is not None:
            self.fail("no error", victim, f"the twin raised {type(error).__name__}: {error!s:.300}")
            self.again(before)
            return
        counts["good calls"] += 1
        looks = self.settings.get("every", 1) == 1 and self.settings.get("action") != "record"
        if made_bad and looks and not (expected and self.settings.get("judge")):
            self.fail("miss", victim, "the twin made NaN or Inf, and the guard raised nothing")
            self.again(before)
            return
        self.compare_outputs(which, expected, got)
        self.compare_states("after a call", after, now)
        self.compare_inputs(arguments, mine, other)
        self.compare_held()
        self.compare_kept()
        self.keep(which, got, expected, other)
        self.act_as_user(mine, other, which, got, expected)
        if any(map(is_large, self.guarded.states().values())):
            self.again(self.good, both=True)

    def attempt(self, function, arguments):
        """Call; return the results and the error."""
        try:
            found = function(*arguments)
        except Exception as error:
            if is_exit(error):
                raise
            return [], error
        return found if isinstance(found, list) else [found], None

    def interrupted(self, function, arguments):
        """Call, and have Ctrl-C come at a random time."""
        signal.signal(signal.SIGALRM, _interrupt)
        seconds = self.rng.choice([2e-6, 1e-5, 3e-5, 1e-4, 3e-4, 1e-3]) * self.rng.uniform(0.5, 2)
        found, error = [], None
        try:
            signal.setitimer(signal.ITIMER_REAL, seconds)
            found, error = self.attempt(function, arguments)
            signal.setitimer(signal.ITIMER_REAL, 0)
        except KeyboardInterrupt as interruption:
            error = interruption
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        return found, error

    def layout(self, array):
        """Return the same numbers, perhaps in another layout."""
        if self.backend != "c" or not array.ndim or self.rng.random() < 0.7:
            return array
        how = self.rng.randrange(3)
        if how == 0:
            return np.asfortranarray(array)
        if how == 1:
            return np.repeat(array, 2, axis=0)[::2]
        return array[::-1].copy()[::-1]

    def judge_outside(self, mine, copies, before, victim):
        """Numba's own code does not check indices: C computed in Python says what is right."""
        counts = self.tally.counts
        self.phase("calling guarded")
        got, raised = self.attempt(self.guarded.functions[self.which], mine)
        self.phase("computing in Python")
        error = self.reference(victim, raised)
        counts["calls"] += 1
        now = self.guarded.states()
        if error is None and raised is None:
            counts["good calls"] += 1
        elif raised is None:
            self.fail("no error", victim, f"C raises {type(error).__name__}: {error!s:.200}")
            self.again(before, both=True)
            return
        else:
            counts["failed calls"] += 1
            self.compare_states("after an error", before, now)
            self.compare_inputs(self.last, mine, copies)
            if self.is_spoilt:
                counts["left open"] += 1
            elif error is None:
                self.fail("error", victim, f"C raises nothing, the guarded raised {raised!r:.300}")
            elif not isinstance(raised, type(error)):
                self.fail("error", victim, f"C raised {error!r:.200}, the guarded {raised!r:.200}")
        self.again(now, both=raised is None)

    def reference(self, victim, raised):
        """Return the error that a program raises in Python, or None.

        A rewrite may have removed an index that is not needed: the error is there as written, but
        not as compiled.  Either is right.
        """
        piece = list(self.pieces.values())[victim]
        for optimizer in ("fast_run", None):
            with pytensor.config.change_flags(cxx="", mode="CVM"):
                side = Side([piece], Mode("vm", optimizer))
                for key, variable in side.shared.items():
                    variable.set_value(self.guarded.shared[victim, key[1]].get_value())
                own = [a.copy() for i, _, a in self.last if i == victim]
                error = self.attempt(side.functions["f"], own)[1]
            if (error is None) == (raised is None):
                break
        return error

    # -- comparing

    def equal(self, one, other, rounding=True):
        """Whether two values are the same; where rounding may differ, within its bound."""
        self.tally.counts["comparisons"] += 1
        first, second = facts(one), facts(other)
        if first == second:
            return True
        if self.exact or not rounding or first[:2] != second[:2]:
            return False
        try:
            near = alike([one], [other], 10.0)
        except (TypeError, ValueError):
            return False
        self.tally.counts["rounded otherwise"] += near
        return near

    def compare_outputs(self, which, expected, got):
        if len(expected) != len(got):
            self.fail("output", None, f"{len(got)} outputs instead of {len(expected)}")
            return
        owners = self.owners(which)
        for i, (one, two) in enumerate(zip(expected, got, strict=True)):
            if type(one) is not type(two) or not self.equal(one, two):
                self.fail("output", owners[i], f"output {i}: {shown(two)} instead of {shown(one)}")

    def owners(self, which):
        """Return the number of the program of each output of a function."""
        names = self.guarded.names
        if which == "other":
            return [i for i, n in enumerate(names) for entry in n["more"][:1] for _ in entry[1]]
        return [i for i, n in enumerate(names) for _ in n["outputs"]]

    def compare_states(self, when, expected, got):
        for key in expected:
            if not self.equal(expected[key], got[key], rounding=when == "after a call"):
                self.fail(
                    "shared",
                    key[0],
                    f"{when}, {key[1]} is {shown(got[key])} instead of {shown(expected[key])}",
                )

    def compare_inputs(self, arguments, mine, other):
        for (i, name, _), one, two in zip(arguments, other, mine, strict=True):
            if f"In({name}, mutable=True)" in list(self.pieces.values())[i].text:
                continue
            if not self.equal(one, two, rounding=False):
                self.fail("input", i, f"{name} is {shown(two)} instead of {shown(one)}")

    def compare_held(self):
        for key, array in self.twin.held.items():
            variable = self.twin.shared.get(key)
            if variable is not None and variable.get_value(borrow=True) is not array:
                self.tally.counts["held no longer"] += 1  # (PyTensor may have worked in it)
                continue
            own = self.guarded.held[key]
            if not self.equal(array, own):
                kind = "held" if key in self.guarded.shared else "constant"
                self.fail(kind, key[0], f"{key[1]} is {shown(own)} instead of {shown(array)}")

    def compare_kept(self):
        """What earlier calls have returned is changed by later ones only if the twin's is."""
        for kept in self.kept:
            for i, mine, other in kept:
                if not self.equal(other, mine):
                    self.fail("returned before", i, f"{shown(mine)} instead of {shown(other)}")

    def keep(self, which, got, expected, arguments):
        """Keep what a call has returned, but for what it lends, or has made of an argument."""
        if which != "other":
            arrays = [v for v in arguments if isinstance(v, np.ndarray)]

            def is_given(value):
                return isinstance(value, np.ndarray) and any(
                    np.may_share_memory(value, v) for v in arrays
                )

            own = zip(self.owners(which), got, expected, self.lent(), strict=True)
            kept = [
                (i, mine, other)
                for i, mine, other, is_lent in own
                if not (is_lent or is_given(other))
            ]
            self.kept = [*self.kept[-2:], kept]

    def lent(self):
        """Return for each output whether it may be overwritten by the next call."""
        return [getattr(v, "borrow", False) for n in self.guarded.names for v in n["outputs"]]

    def judge_interrupted(self, before, after, now):
        nothing = all(facts(before[k]) == facts(now[k]) for k in now)
        everything = all(self.equal(after[k], now[k]) for k in now)
        if not nothing and not everything:
            torn = {
                key: f"{shown(now[key])}; before {shown(before[key])}, after {shown(after[key])}"
                for key in now
                if not nothing and facts(before[key]) != facts(after[key])
            }
            self.fail("torn", next(iter(torn), (None,))[0], str(torn)[:900])

    # -- between calls

    def act_as_user(self, mine, other, which, got, expected):
        """Do with both sides what a user may do with arrays that are theirs."""
        rng = self.rng
        if rng.random() < 0.3:  # (the arguments are used again for other numbers)
            for arrays in (mine, other):
                for array in arrays:
                    if array.dtype.kind == "f":
                        array[...] = 0.25
        if rng.random() < 0.2 and self.kept and which != "other":
            for results in (got, expected):
                for array, is_lent in zip(results, self.lent(), strict=True):
                    usable = isinstance(array, np.ndarray) and array.flags.writeable
                    if usable and not is_lent and array.dtype.kind == "f":
                        array[...] = 0.5
        if rng.random() < 0.3:
            keys = [k for k, v in self.guarded.shared.items() if k[1] != "generator"]
            if keys:
                key = rng.choice(keys)
                borrow = rng.random() < 0.5 and key not in self.guarded.held
                for side in (self.twin, self.guarded):
                    if key not in side.held:
                        side.shared[key].set_value(copied(self.good[key]), borrow=borrow)

    def again(self, states, both=False):
        """Give the twin, or both sides, these values of the shared variables."""
        self.twin.put(states)
        held = any(key in self.guarded.held for key in self.guarded.shared)
        if both or held:
            self.guarded.put(states)

    # -- failures

    def of_event(self, error):
        """Return the number of the program that an error is about, if there is one only."""
        return None

    def fail(self, what, piece, detail):
        number = None if piece is None else list(self.pieces)[piece]
        if what == "compiling":
            number = piece
        victim = getattr(self, "victim", None)
        victim = None if victim is None else list(self.pieces)[victim]
        settings = {k: v for k, v in self.settings.items() if k != "big_is_error"}
        context = (
            f"call {self.call}: {getattr(self, 'what', '')} of {victim} by "
            f"{getattr(self, 'which', '')}, {settings}, fused {self.fused}, fast {self.fast}"
        )
        self.tally.counts[f"FAILED {what}"] += 1
        if not any((f.what, f.piece) == (what, number) for f in self.tally.failures):
            failure = Failure(what, self.seed, number, self.call, f"{context}\n{detail}")
            self.tally.failures.append(failure)


def same_class(one, other):
    """Whether two errors are of the same class, as far as a handler can tell."""
    return any(isinstance(one, kind) and isinstance(other, kind) for kind in GENERIC) or (
        type(one) is type(other)
    )


def is_large(value):
    array = np.asarray(value) if hasattr(value, "shape") else np.zeros(0)
    return array.dtype.kind in "fciu" and array.size > 0 and not bool(np.all(np.abs(array) < 60))


def shown(value):
    """Return a short text of a value."""
    if isinstance(value, np.ndarray) and value.size <= 60:
        return f"{type(value).__name__} {literal(value)}"
    return f"{type(value).__name__} {value!r:.300}"


def _interrupt(number, frame):
    raise KeyboardInterrupt


def play(seed, backend, n_pieces=8, **chosen):
    """Play a world; return its :class:`Tally`."""
    return World(seed, backend, n_pieces, **chosen).play()
