"""Random programs whose results and states somebody keeps, as Python text.

A program ("piece") has inputs, shared variables and outputs of its own, so that many of them can be
compiled as one function and compared one by one.  The operations come from the tables of
``tests/fuzz/programs.py``; the tables here have loops, indices and states.
"""
# ruff: noqa: E501  (an entry of a table is one line)

import random
import re
from dataclasses import dataclass, field

from programs import BINARY, GATES, PREAMBLE, SPECIAL, STRUCTURES, UNARY, shared_text, table, typed

FLOATS = ("float64", "float64", "float64", "float32", "float32")
OTHERS = ("int64", "int32", "int8", "uint8", "bool", "complex128", "complex64", "float16")

HELPERS = '''
from pytensor.graph.replace import vectorize_graph

N, SEED = {N}, {seed}
inputs, outputs, givens, shared, held, more = [], [], {{}}, {{}}, {{}}, []
SHAPES = {{"nm": (N, M), "n": (N,), "m": (M,), "mm": (M, M), "s": ()}}


def value(i, kind):
    """Return moderate numbers of the program's dtype."""
    rng, shape = np.random.default_rng([SEED, i]), SHAPES[kind]
    if D == "bool":
        return np.array(rng.integers(0, 2, shape), D)
    if np.dtype(D).kind in "iu":
        return np.array(rng.integers(0, 5, shape), D)
    number = np.round(rng.uniform(-1, 1, shape), 3)
    return np.array(number + 1j * number[::-1] if D.startswith("c") and shape else number, D)


def keep(name, array, borrow):
    """Return a shared variable; who borrows the array out holds it."""
    if borrow:
        held[name] = array
    shared[name] = pytensor.shared(array, name=name, borrow=borrow)
    return shared[name]


def fixed(name, array):
    """Return a constant whose array somebody holds."""
    held[name] = array
    return pt.constant(array, name=name)


def given(name, variable):
    """Return a variable that the function replaces."""
    new = variable.type(name=name)
    givens[new] = variable
    return new


def bare(f, a, q):
    return f(a, q)


def in_scan(f, a, q):
    return scan(lambda q, a: f(a, q), sequences=[pt.stack([q, q])], non_sequences=[a])


def in_graph(f, a, q):
    own, other = a.type(), q.type()
    return OpFromGraph([own, other], [f(own, other)])(a, q)


def turned(q):
    """Return two rows that no rewrite makes one."""
    return pt.stack([q, q[::-1] if q.ndim else q])


def in_blockwise(f, a, q):
    own, other = a.type(), q.type()
    new = {{own: pt.stack([a, a[::-1]]), other: turned(q)}}
    return vectorize_graph(f(own, other), new)


def over_index(f, a, q):
    other = q.type()
    return vectorize_graph(f(a, other), {{other: turned(q)}})


def in_branch(f, a, q):
    return ifelse(pt.ge(pt.abs(a).sum(), 0), f(a, q), f(a, q) * 2)


def add_logs(a, b):
    m = pt.maximum(a, b)
    return m + pt.log(pt.exp(a - m) + pt.exp(b - m))


def twice_in_graph(u):
    inner = u.type()
    return OpFromGraph([inner], [pt.tanh(inner) * 2 - inner])(u)
'''

WRAPS = "bare|in_scan|in_graph|in_blockwise|over_index|in_branch"

# Steps of loops: the kind of the state `u`, and what is computed of it, of `r` (a row or an element
# of a sequence of numbers), `q` (an index), `p` (two indices) and `b` (a mask).
STEPS = """
m | u * 0.5 + r
m | pt.inc_subtensor(u[p], 1)
m | pt.set_subtensor(u[p], 0.5)
m | pt.inc_subtensor(u[p], r[:2])
m | pt.set_subtensor(u[p], r[:2])
m | pt.inc_subtensor(u[q], 1)
m | pt.set_subtensor(u[q], r[0])
m | pt.inc_subtensor(u[:2], r[:2])
m | pt.inc_subtensor(u[1:3], 1)
m | pt.set_subtensor(u[1:], r[:-1])
m | pt.inc_subtensor(u[::-1][:1], r[:1])
m | pt.set_subtensor(u[b], 0.5)
m | pt.inc_subtensor(u[b], 1)
m | u + r[b].sum()
m | u + r[p].sum()
m | u / 2 + r[q]
m | u + z[b].sum()
m | u + z[p].sum() + r
m | pt.set_subtensor(pt.inc_subtensor(u[p], 1)[q], 0)
m | pt.inc_subtensor(u[p], 1) * 0.5
m | pt.inc_subtensor((u * 0.5)[p], 1)
m | add_logs(u, r)
m | add_logs(r, u)
m | add_logs(u, pt.concatenate([pt.as_tensor(np.array([-5], D)), u[:-1]])) + r
m | pt.tanh(u + r)
m | pt.log(pt.sqr(u) + 1) + r
m | pt.sqrt(abs(u) + 1) - r
m | pt.sort(u + r)
m | pt.cumsum(u) * 0.1 + r
m | pt.cumsum(u) / 10
m | pt.sort(u)
m | u[::-1] + r
m | u[::-1]
m | pt.roll(u, 1) * 0.5 + r
m | pt.dot(W, u) / 4 + r
m | pt.special.softmax(u + r)
m | pt.maximum(u, r)
m | pt.clip(u + r, -1, 1)
m | pt.switch(u > r, u, r * 0.5)
m | ifelse(pt.gt(r.sum(), 0), u + r, u - r)
m | ifelse(pt.gt(r.sum(), 0), u, r)
m | ifelse(pt.gt(r.sum(), 0), pt.inc_subtensor(u[p], 1), u)
m | twice_in_graph(u) / 4 + r
m | twice_in_graph(u + r) / 4
m | scan(lambda w: pt.inc_subtensor(w[p], 1) * 0.5, outputs_info=[u], n_steps=2)[-1]
m | scan(lambda e, w: w * 0.5 + e, sequences=[r], outputs_info=[u])[-1]
m | u
m | r
m | u * 1
m | u.reshape((M,)) + 0 * r
mm | pt.inc_subtensor(u[p], 1)
mm | pt.set_subtensor(u[p], r)
mm | pt.inc_subtensor(u[:, q], r)
mm | pt.set_subtensor(u[q, :], r)
mm | pt.inc_subtensor(u[p, p], 1)
mm | pt.set_subtensor(u[b], 0.5)
mm | pt.inc_subtensor(u[:, b], 1)
mm | pt.dot(u, W) / 4 + r
mm | u.T * 0.5 + r
mm | u.T
mm | pt.linalg.solve(u / (1 + abs(u).sum()) + 2 * pt.eye(M), u * 0.1) + r
mm | pt.set_subtensor(u[u > 0], 0.5)
mm | pt.fill_diagonal(u, 0) + r
mm | add_logs(u, r)
s | u * 0.5 + r[0]
s | u + r.sum()
s | add_logs(u, r[0])
s | pt.maximum(u, r[q])
s | pt.log(pt.sqr(u) + 1)
s | u + pt.switch(b, r, 0).sum()
"""
# Of these kinds are the sequences.
SEQUENCES = {"r": "nm", "q": "ks", "p": "kp", "b": "bb"}
RETURNED = "{l}[-1]|{l}[-1]|{l}[-1]|{l}[-1]|{l}|{l}.sum(axis=0)|{l}[-2:]|{l}[::2]|{l}[0]"

# The kind of the array `a`, the kind of the index `q`, and what is computed.
LOOKUPS = """
m kn | a[q]
m kn | pt.set_subtensor(a[q], 0.5)
m kn | pt.inc_subtensor(a[q], 1)
m kn | pt.inc_subtensor(a[q] * 1, 1)
m kn | pt.take(a, q)
m kn | pt.log(abs(a[q]) + 1).sum()
m kn | pt.set_subtensor(a[q], a[q] * 0.5)
m bm | a[q]
m bm | pt.set_subtensor(a[q], 0.5)
m bm | pt.inc_subtensor(a[q], 1)
m bm | pt.exp(a[q]).sum()
m bm | a[pt.nonzero(q)]
m bm | pt.inc_subtensor(a[q], a[q])
m k0 | a[q]
m k0 | pt.set_subtensor(a[q], 0.5)
m k0 | pt.inc_subtensor(a[q], 1)
mm kn | a[q]
mm kn | a[:, q]
mm kn | a[q, q]
mm kn | a[q, 0]
mm kn | a[q, :2]
mm kn | a[0, q]
mm kn | a[q][:, q]
mm kn | a[q[:, None], q]
mm kn | pt.take(a, q, axis=1)
mm kn | pt.set_subtensor(a[q], 0.5)
mm kn | pt.set_subtensor(a[:, q], 0.5)
mm kn | pt.inc_subtensor(a[q, q], 1)
mm kn | pt.inc_subtensor(a[q], a[q])
mm kn | a[q].sum(axis=0)
mm bm | a[q]
mm bm | a[:, q]
mm bm | a[q, :2]
mm bm | pt.set_subtensor(a[q], 0.5)
mm bm | pt.inc_subtensor(a[:, q], 1)
mm bm | a[q].sum(axis=0)
mm bM | a[q]
mm bM | pt.set_subtensor(a[q], 0.5)
mm bM | pt.inc_subtensor(a[q], 1)
mm k0 | a[q]
mm k0 | a[:, q]
mm k0 | a[q, q]
mm k0 | pt.set_subtensor(a[q], 0.5)
mm k0 | pt.inc_subtensor(a[:, q], 1)
n kN | a[q]
n kN | pt.inc_subtensor(a[q], 1)
n bn | a[q]
n bn | pt.set_subtensor(a[q], 0.5)
nm kN | a[q]
nm bn | a[q].sum(axis=0)
nm kN | pt.inc_subtensor(a[q], 1)
"""

# What a function does with its states `s`, `t` (of one kind) and an input `i` of the same kind.
STATES = """
outputs += [s]; updates[s] = s + i
outputs += [s]; updates[s] = i
outputs += [s]; updates[s] = s + 1
outputs += [s, s.sum()]; updates[s] = s * 2 - s
outputs += [s * 1]; updates[s] = s + 1
outputs += [s, t]; updates[s] = t; updates[t] = s
outputs += [s]; updates[s] = t; updates[t] = s + t
outputs += [s]; s.default_update = s + 1
outputs += [s, i]; s.default_update = i; updates[t] = s + t
outputs += [pytensor.Out(s, borrow=True)]; updates[s] = s + i
outputs += [pytensor.Out(s, borrow=True), s.sum()]; updates[s] = s + 1; updates[t] = s
new = s + i; outputs += [new]; updates[s] = new
new = s + i; outputs += [new, s]; updates[s] = new
new = s + i; outputs += [pytensor.Out(new, borrow=True)]; updates[s] = new
new = s + i; outputs += [new]; updates[s] = new; updates[t] = new
new = s + i; outputs += [s, t, new.sum()]; updates[s] = new; updates[t] = new
new = tame(i); outputs += [new, new]; updates[s] = new
outputs += [s[::-1]]; updates[s] = s[::-1] + i
outputs += [s[:1], s[1:]]; updates[s] = pt.set_subtensor(s[:1], 0)
outputs += [s]; updates[s] = pt.inc_subtensor(s[:1], 1)
outputs += [s.sum()]; updates[s] = pt.inc_subtensor(s[:1], i[:1])
updates[s] = pt.set_subtensor(s[:1], i[:1]); outputs += [t]; updates[t] = s
updates[s] = t[::-1]; updates[t] = i; outputs += [s, t]
updates[s] = pt.zeros_like(s); outputs += [s]
updates[s] = i; outputs += [i]
updates[s] = i; updates[t] = i; outputs += [i * 1]
updates[s] = s + i
updates[s] = s + 1; updates[t] = t * 0 + s
updates[s] = s; outputs += [s + i]
updates[s] = t; outputs += [s]
updates[s] = t; updates[t] = t + 1; outputs += [t]
new = tame(s + i); outputs += [new]; updates[s] = new; updates[t] = t + new
j = given("j", s); outputs += [j + i]; updates[s] = tame(j + i)
j = given("j", s); outputs += [j]; updates[s] = j + 1
j = given("j", s + i); outputs += [j]; updates[t] = j
updates[s] = ifelse(pt.gt(t.sum(), i.sum()), t, i); outputs += [s]
updates[s] = ifelse(pt.gt(t.sum(), i.sum()), s, i); outputs += [s]
updates[s] = twice_in_graph(s); outputs += [s, t]
l = scan(lambda u: u * 1, outputs_info=[s], n_steps=3); updates[s] = l[-1]; outputs += [l, s]
l = scan(lambda u: u + i, outputs_info=[s], non_sequences=[], n_steps=2)[-1]; updates[s] = l; outputs += [l]
l = scan(lambda u: tame(u), outputs_info=[s], n_steps=2)[-1]; updates[t] = l; outputs += [s]
l = scan(lambda u: pt.inc_subtensor(u[:1], 1), outputs_info=[s], n_steps=2)[-1]; outputs += [l]; updates[t] = s
l = scan(lambda u: pt.inc_subtensor(u[:1], 1), outputs_info=[s], n_steps=2)[-1]; outputs += [l, s]; updates[s] = l
more += [([], [s], {}), ([i], [t], {t: i + s})]; outputs += [s]; updates[s] = s + i
more += [([], [s, t], {s: t, t: s})]; outputs += [s]; updates[s] = tame(s + i)
more += [([i], [s], {s: i}), ([], [s * 1], {})]; outputs += [t]; updates[t] = s
outputs += [i]; updates[s] = pt.concatenate([s[1:], s[:1]])
outputs += [pt.stack([s, t])]; updates[s] = pt.stack([s, t])[1]; updates[t] = pt.stack([s, i])[0]
outputs += [s.reshape(s.shape)]; updates[s] = (s + i).reshape(s.shape)
outputs += [pt.specify_shape(s, s.type.shape)]; updates[s] = s + 1
"""
MATRIX_STATES = """
outputs += [s.T]; updates[s] = s.T
outputs += [s[0]]; updates[s] = pt.inc_subtensor(s[0], i[0])
outputs += [s[k]]; updates[s] = pt.inc_subtensor(s[k], 1)
outputs += [s]; updates[s] = pt.set_subtensor(s[k], i[0])
outputs += [s.diagonal()]; updates[s] = pt.set_subtensor(s[:, 0], 1)
outputs += [s]; updates[s] = s[k[:0].sum()] + i
outputs += [s.sum()]; updates[s] = pt.set_subtensor(s[k], s[k] * 1)
outputs += [s.flatten()]; updates[s] = s[::-1, ::-1]
more += [([], [s[0]], {s: s[::-1]})]; outputs += [s]; updates[s] = pt.inc_subtensor(s[k, k], 1)
"""
FLOAT_STATES = """
v = 0.9 * t - 0.1 * i; updates[t] = v; updates[s] = s + v; outputs += [pt.sqr(s).sum()]
m1 = 0.9 * t + 0.1 * pt.sqr(i); updates[t] = m1; updates[s] = s - 0.01 * i / (pt.sqrt(m1) + 0.1); outputs += [s]
g = pt.grad(pt.sqr(pt.tanh(s) - i).sum(), s); updates[s] = s - 0.1 * g; outputs += [pt.sqr(s).sum()]
outputs += [draw("normal", s, 1.0)]; updates[s] = s * 0.5
a = draw("normal", i, 1.0); b = draw("uniform", -1, 1 + abs(i)); outputs += [a, b]; updates[s] = tame(a)
outputs += [draw("normal", i, 1.0)]
outputs += [pt.random.normal(i, 1.0, rng=generator)]
updates[s] = draw("exponential", abs(s) + 0.1) * 0.1; outputs += [s]
outputs += [draw("poisson", abs(s) + 0.1), s]; updates[s] = tame(s + i)
updates[s] = pt.cast(pt.exp(pt.clip(s, -2, 2)), D); outputs += [s]
a = draw("gamma", abs(i) + 0.5, 1.0) * 0.1; updates[t] = a; more += [([], [t], {t: t * 2})]; outputs += [s]
"""

ARITHMETIC = """
{a} + {b}|{a} * {b}|pt.maximum({a}, {b})|pt.switch({a} > {b}, {a}, {b})|pt.eq({a}, {b})|-{a}
{a}[::-1] + {b}|{a}.sum() + {b}|pt.cumsum({a}, axis=0) + {b}|pt.sort({a}, axis=0)|{a} // ({b} * {b} + 1)
pt.set_subtensor({a}[:1], 1) + {b}|pt.inc_subtensor({a}[:1], {b}[:1])|{a} + 1|abs({a})|pt.sqr({a})
pt.concatenate([{a}[1:], {b}[:1]])|pt.bitwise_xor({a}, {b})|{a} & {b}|~{a}|{a} % ({b} * {b} + 1)
{a} - {b}|pt.minimum({a}, {b})|{a}.astype("float64") / 3|pt.invert({a})|pt.where({a} > 0, {a}, {b})
pt.tanh({a})|pt.exp({a})|pt.any({a})|pt.all({a})|pt.real({a})|pt.imag({a}) + pt.real({b})|pt.conj({a})
pt.zeros_like({a})|pt.ones_like({a}) + {b}|{a}.max() + {b}|{a}.T|pt.repeat({a}, 2, axis=0)[: {b}.shape[0]]
"""

LABELLED = """
px.as_xtensor({a}, dims=("n", "m")).mean("n").values
(px.as_xtensor({a}, dims=("n", "m")) - px.as_xtensor({a}, dims=("n", "m")).max("m")).values
px.as_xtensor({a}, dims=("n", "m")).isel(n=slice(None, 1)).values
px.as_xtensor({a}, dims=("n", "m")).transpose("m", "n").values * 2
"""

SOURCES = {
    "input": "{n} = pt.tensor('{n}', dtype=D, shape={s}); inputs += [{n}]",
    "mutable": "{n} = pt.tensor('{n}', dtype=D, shape={s}); inputs += [pytensor.In({n}, mutable=True)]",
    "borrowed input": "{n} = pt.tensor('{n}', dtype=D, shape={s}); inputs += [pytensor.In({n}, borrow=True)]",
    "shared": "{n} = keep('{n}', value({i}, '{k}'), False)",
    "borrowed": "{n} = keep('{n}', value({i}, '{k}'), True)",
    "constant": "{n} = fixed('{n}', value({i}, '{k}'))",
    "given": "{n} = given('{n}', keep('{n}0', value({i}, '{k}'), True))",
    "computed": "{n}0 = pt.tensor('{n}0', dtype=D, shape={s}); inputs += [{n}0]; {n} = {n}0 * 1 + 0",
    "view": "{n}0 = pt.tensor('{n}0', dtype=D, shape={s}); inputs += [{n}0]; {n} = {n}0{v}",
    "view of shared": "{n} = keep('{n}0', value({i}, '{k}'), True){v}",
    "filled": "{n} = pt.zeros(SHAPES['{k}'], dtype=D) + 1",
}
USUAL = ["input", "input", "input", "shared", "borrowed", "constant", "constant"]

INDICES = {
    # kind: dtype, number of dimensions
    "ks": ("int64", 1),  # n indices of m, each used alone
    "kp": ("int64", 2),
    "bb": ("bool", 2),
    "kn": ("int64", 1),
    "kN": ("int64", 1),
    "k0": ("int64", 0),
    "bm": ("bool", 1),
    "bn": ("bool", 1),
    "bM": ("bool", 2),
}
N_DIMS = {"nm": 2, "n": 1, "m": 1, "mm": 2, "s": 0}
LENGTHS = [0, 1, 2, 2, 2, 7, 7, 7]


@dataclass
class Piece:
    """One program: its text, and what its calls need to know.

    Parameters
    ----------
    seed : int
    text : str
        Defines ``inputs``, ``outputs`` and ``more`` (lists; `more` has ``(inputs, outputs,
        updates)`` of further functions), and ``updates``, ``givens``, ``shared`` and ``held``.
    family : str
    dtype : str
    m, n : int
    least : int
        The shortest length with which the program can be called.
    kinds : dict of str to str
        Of the inputs, by name.
    gate : str or None
        The input that makes something NaN or infinite if it is not at rest.
    """

    seed: int
    text: str = ""
    family: str = ""
    dtype: str = ""
    m: int = 3
    n: int = 2
    least: int = 0
    kinds: dict = field(default_factory=dict)
    gate: str | None = None

    def build(self):
        """Run the text; return its names."""
        names = {}
        exec(compile(self.text, f"<twin {self.seed}>", "exec"), names)
        return names

    @property
    def is_fixed(self):
        """Whether a shared variable or a constant has a length that all calls have to have."""
        return "value(" in self.text or "SHAPES[" in self.text.split("# body")[1]


class PieceWriter:
    """Writes one program.

    Parameters
    ----------
    seed : int
    backend : {"c", "numba", "jax", "pytorch"}
    """

    def __init__(self, seed, backend, family=None):
        self.rng = random.Random(seed * 2 + 1)
        self.backend, self.family = backend, family
        self.lines = []
        self.sources = 0
        self.piece = Piece(seed)

    def write(self):
        """Return the :class:`Piece`."""
        rng, piece = self.rng, self.piece
        families = ["operations"] * 4 + ["loop"] * 6 + ["lookup"] * 5 + ["state"] * 6
        families += ["other dtype"] * 2 + ["labelled"]
        piece.family = rng.choice(families)
        if self.family:
            piece.family = self.family
        piece.dtype = rng.choice(FLOATS)
        if piece.family == "other dtype":
            piece.dtype = rng.choice([d for d in OTHERS if self.backend == "c" or d != "float16"])
        elif piece.family == "state" and rng.random() < 0.35:
            piece.dtype = rng.choice(["int64", "int32", "bool", "complex128", "uint8"])
        piece.m = rng.choice([1, 2, 3, 3, 7])
        if piece.family == "loop" and piece.m < 3:
            piece.m = 3
        piece.n = rng.choice(LENGTHS)
        piece.least = int(piece.family in ("operations", "loop", "labelled"))
        if piece.family in ("state", "operations") and rng.random() < 0.12:
            piece.n = 20_000
        getattr(self, piece.family.replace(" ", "_"))()
        piece.n = max(piece.n, piece.least)
        piece.text = self.text()
        return piece

    # -- operands

    def source(self, kind, name=None, only=None):
        """Write where an operand comes from; return its name."""
        name = name or f"arg{self.sources}"  # (NumPy takes "a00" for a dtype)
        self.sources += 1
        ways = [*SOURCES, *USUAL] if only is None else only
        way = self.rng.choice(ways)
        shape = "(" + "None, " * N_DIMS[kind] + ")"
        view = self.rng.choice(["[::-1]", "[:]", ".T" if kind == "mm" else "[::-1]"])
        if kind == "s":
            view = ".reshape(())"
        elif kind == "nm" and view == ".T":
            view = "[:]"
        text = SOURCES[way].format(n=name, i=self.sources, k=kind, s=shape, v=view)
        self.lines.append(text)
        for given in re.findall(r"pt\.tensor\('(\w+)'", text):
            self.piece.kinds[given] = kind
        return name

    def index(self, kind, name):
        """Write an input of indices or of truth values."""
        dtype, n_dims = INDICES[kind]
        shape = "(" + "None, " * n_dims + ")"
        self.lines.append(
            f"{name} = pt.tensor('{name}', dtype='{dtype}', shape={shape}); inputs += [{name}]"
        )
        self.piece.kinds[name] = kind
        return name

    def leaves(self, text):
        """Write what the tables of the fuzzer name."""
        for name, kind in (("x", "nm"), ("y", "n"), ("z", "m")):
            if re.search(rf"\b{name}\b", text):
                self.source(kind, name, ["input", "mutable"])
        if re.search(r"\bk\b", text) and "k" not in self.piece.kinds:
            self.index("kn", "k")
        if re.search(r"\bc\b", text):
            self.lines.append("c = pt.vector('c', dtype='complex128'); inputs += [c]")
            self.piece.kinds["c"] = "complex"

    def gated(self, name, kind):
        """Write an operation that can go bad on top of an operand; return the result's name."""
        rng = self.rng
        if rng.random() < 0.4 or self.piece.dtype not in FLOATS:
            return name
        template, lo, hi = rng.choice(table(GATES)).rsplit(" ", 2)
        if re.search(r"cum(sum|prod)|\{h\}", template):
            return name
        middle = round(0.3 * float(lo) + 0.7 * float(hi), 3)
        gate = self.piece.gate = f"d{self.sources}"
        width = rng.choice([kind, "s"])
        shape = "(" + "None, " * N_DIMS[width] + ")"
        self.lines.append(
            f"{gate} = pt.tensor('{gate}', dtype=D, shape={shape}); inputs += [{gate}]"
        )
        self.piece.kinds[gate] = width
        operand = f"pt.as_tensor({gate} * {middle})"
        text = template.replace("{g}", operand)
        self.lines.append(f"{name}_ = ({name} + 0.1 * ({text})).astype(D)")
        return f"{name}_"

    # -- results

    def give(self, name, kind):
        """Write what happens with a result: it is returned, and may become a state."""
        rng = self.rng
        self.lines.append(f"result = pt.as_tensor({name})")
        borrowed = rng.random() < 0.3
        self.lines.append(f"outputs += [pytensor.Out(result, borrow={borrowed})]")
        if kind is None or rng.random() < 0.5:
            return
        self.source(kind, "s", ["shared", "borrowed"])
        new = rng.choice(["tame(result)", "tame(s + result)", "tame(s * 0.5 + result * 0.5)"])
        self.lines.append(f"updates[s] = {new}")
        if rng.random() < 0.5:
            self.lines.append("outputs += [s]")
        if rng.random() < 0.3:
            self.lines.append("more += [([], [s], {s: tame(s + 1)})]")

    # -- families

    def operations(self):
        rng = self.rng
        special = [line.split(": ", 1)[1] for line in SPECIAL.strip().splitlines()]
        kind = rng.choice(["nm", "n", "m", "mm"])
        pool = {kind: self.gated(self.source(kind), kind)}
        for i in range(rng.choice([1, 2, 3])):
            choice = rng.random()
            if choice < 0.3:
                kinds, template = (kind,), rng.choice(table(UNARY))
                result = kind
            elif choice < 0.45:
                kinds, template, result = (kind, kind), rng.choice(table(BINARY)), kind
            else:
                entries = [e for e in typed(STRUCTURES) if e[0][0] == kind]
                if rng.random() < 0.4:
                    entries = [e for e in typed("\n".join(special)) if e[0][0] == kind] or entries
                kinds, result, template = rng.choice(entries)
            names = [pool[kind], self.source(kinds[1]) if len(kinds) > 1 else ""]
            text = template.replace("{a}", names[0]).replace("{b}", names[1])
            text = text.replace("{D}", self.piece.dtype)
            self.lines.append(f"t{i} = pt.cast({text}, D)")
            kind, pool = result, {result: f"t{i}"}
        self.give(pool[kind], kind)

    def loop(self):
        rng = self.rng
        steps = [line.split(" | ") for line in STEPS.strip().splitlines()]
        if rng.random() < 0.4:  # (what works in place may work on what is the user's)
            steps = [entry for entry in steps if "subtensor(u[" in entry[1]]
        kind, step = rng.choice(steps)
        is_plain = rng.random() < 0.4
        start = self.source(kind)
        if not is_plain:
            start = self.gated(start, kind)
        used = [name for name in SEQUENCES if re.search(rf"\b{name}\b", step)]
        if not used and rng.random() < 0.5:
            used = ["r"]
        for name in used:
            if name == "r":
                self.source("nm", "R", ["input", "mutable", "constant", "shared", "borrowed"])
            else:
                self.index(SEQUENCES[name], name.upper())
        states = ["u"]
        arguments = ", ".join([*used, *states])
        info = start
        if not is_plain and rng.random() < 0.2:
            self.source(kind, "second")
            arguments += ", older"
            info = f"{{'initial': pt.stack([second, {start}]), 'taps': [-1, -2]}}"
            step = f"{step} + 0 * older" if rng.random() < 0.5 else step
        further = ""
        if not is_plain and rng.random() < 0.2:
            self.source("s", "count")
            arguments = arguments.replace("u", "u, c1", 1)
            info += ", count"
            further = ", c1 * 0.5"
        steps_text = "" if used and rng.random() < 0.9 else ", n_steps=3"
        go_backwards = used and not is_plain and rng.random() < 0.15
        backwards = ", go_backwards=True" if go_backwards else ""
        sequences = f"sequences=[{', '.join(n.upper() for n in used)}], " if used else ""
        until_text = ""
        if not is_plain and not further and rng.random() < 0.15:
            until_text = ", until(abs(u).sum() > 3)"
            steps_text = ", n_steps=3"
        if used and steps_text:
            self.piece.least = 3
        self.lines.append(f"step = lambda {arguments}: (pt.cast({step}, D){further}{until_text})")
        self.lines.append(
            f"loop = scan(step, {sequences}outputs_info=[{info}]{steps_text}{backwards})"
        )
        if further:
            self.lines.append("loop = loop[0]")
        returned = "loop[-1]" if is_plain else rng.choice(table(RETURNED)).replace("{l}", "loop")
        is_state = returned in ("loop[-1]", "loop[0]", "loop.sum(axis=0)")
        if not is_plain and rng.random() < 0.1:
            returned, is_state = (
                f"pt.grad(({returned}).sum(), {start}, disconnected_inputs='ignore')",
                True,
            )
        self.give(returned, kind if is_state else None)

    def lookup(self):
        rng = self.rng
        kinds, text = rng.choice([line.split(" | ") for line in LOOKUPS.strip().splitlines()])
        kind, index = kinds.split()
        array = self.gated(self.source(kind), kind)
        self.index(index, "q")
        wrap = rng.choice(table(WRAPS))
        if index.startswith("b") and wrap in ("in_blockwise", "over_index"):
            wrap = "bare"
        self.lines.append(f"found = {wrap}(lambda a, q: {text}, {array}, q)")
        same = "subtensor(a[" in text and wrap in ("bare", "in_graph", "in_branch")
        self.give("found", kind if same else None)

    def state(self):
        rng, piece = self.rng, self.piece
        kind = rng.choice(["n", "n", "m", "mm", "s"])
        texts = STATES
        if kind == "mm":
            texts += MATRIX_STATES
        if piece.dtype in FLOATS:
            texts += FLOAT_STATES
        lines = texts.strip().splitlines()
        if kind == "s":
            lines = [line for line in lines if "[:" not in line and "[1" not in line]
        text = rng.choice(lines)
        for name in "st":
            if re.search(rf"\b{name}\b", text):
                self.source(kind, name, ["shared", "borrowed", "borrowed"])
        if re.search(r"\bi\b", text):
            self.source(
                kind, "i", ["input", "input", "mutable", "borrowed input", "shared", "constant"]
            )
            if "i" not in piece.kinds:
                text = text.replace("[i],", "[],")
        if re.search(r"\bk\b", text):
            self.index("kn", "k")
        self.lines += text.split("; ")
        if piece.dtype in FLOATS and rng.random() < 0.4:
            self.lines.append("extra = pt.zeros((), D)")
            gated = self.gated("extra", "s")
            self.lines.append(f"outputs += [{gated}]")

    def other_dtype(self):
        rng = self.rng
        kind = rng.choice(["n", "m", "mm"])
        names = {"{a}": self.source(kind), "{b}": self.source(kind)}
        text = rng.choice(table(ARITHMETIC))
        for letter, name in names.items():
            text = text.replace(letter, name)
        self.lines.append(f"found = pt.as_tensor({text})")
        self.give("found.astype(D)" if rng.random() < 0.7 else "found", None)
        if rng.random() < 0.5:
            self.source(kind, "s", ["shared", "borrowed"])
            self.lines.append(
                "updates[s] = pt.cast(found, D) if found.type.ndim == s.type.ndim else s"
            )
            self.lines.append("outputs += [s]")

    def labelled(self):
        name = self.gated(self.source("nm", only=["input", "shared", "mutable", "borrowed"]), "nm")
        text = self.rng.choice(LABELLED.strip().splitlines()).replace("{a}", name)
        self.lines.insert(0, "import pytensor.xtensor as px")
        self.give(text, None)

    # -- the text

    def text(self):
        piece = self.piece
        body = "\n".join(self.lines).replace("{D}", piece.dtype)
        self.lines = body.splitlines()
        before, self.lines = self.lines, []
        self.leaves(body)
        head = self.lines
        self.lines = [*head, *before]
        for line in shared_text(piece.dtype, piece.m, piece.seed) if piece.dtype in FLOATS else ():
            name, made = line.split(" = ", 1)
            if re.search(rf"\b{name}\b", body) and not re.search(rf"^{name} = ", body, re.M):
                self.lines.insert(0, f"{line}\nshared['{name}'] = {name}")
        if "tame(" in body:
            self.lines.insert(0, TAME)
        preamble = PREAMBLE.format(D=piece.dtype, M=piece.m, seed=piece.seed % 1000)
        helpers = HELPERS.format(N=piece.n, seed=piece.seed)
        ends = "updates and shared.update({v.name: v for v in updates if v is generator})"
        parts = [preamble.strip(), helpers.strip(), "\n# body\nimport pytensor", *self.lines, ends]
        return "\n".join(parts) + "\n"


TAME = '''
def tame(a):
    """Return an array of the program's dtype whose numbers stay moderate."""
    return pt.cast(pt.clip(a, -3, 3) if np.dtype(D).kind == "f" else a, D)
'''.strip()


def write_piece(seed, backend="c", family=None):
    """Return the :class:`Piece` of a seed."""
    return PieceWriter(seed, backend, family).write()
