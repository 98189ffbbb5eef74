"""Random programs, as Python text: what fails can be printed and run on its own.

A program is written from a pool of small blocks, so that PyTensor's compile cache knows most of
its operations.  `KINDS` are the shapes that its values have: ``n`` changes from call to call,
``m`` does not.
"""

import random
import re
from dataclasses import dataclass, field

import numpy as np

KINDS = ("nm", "n", "m", "mm")

# Elementwise, for every kind, harmless for moderate numbers.
UNARY = """
-{a}|abs({a})|pt.sign({a})|pt.tanh({a})|pt.sigmoid({a})|pt.softplus({a})|pt.sqr({a})
pt.exp(pt.clip({a}, -5, 5))|pt.log1p(abs({a}))|pt.sqrt(abs({a}) + 1)|pt.sin({a})|pt.cos({a})
pt.arctan({a})|pt.arcsinh({a})|pt.erf({a})|pt.erfc({a})|pt.floor({a})|pt.ceil({a})|pt.round({a})
pt.expm1(pt.clip({a}, -3, 3))|pt.gammaln(abs({a}) + 1)|pt.psi(abs({a}) + 1)|1 / (1 + abs({a}))
pt.maximum({a}, 0)|pt.minimum({a}, 1)|pt.switch({a} > 0, {a}, {a} * 0.1)|pt.clip({a}, -1, 1)
pt.switch(pt.isnan({a}), 0, {a})|pt.switch(pt.isinf({a}), 1, {a})|pt.log1mexp(-abs({a}) - 0.1)
pt.cast({a} > 0, "{D}")|pt.cast(pt.cast(pt.clip({a}, -9, 9), "int32"), "{D}")
pt.cast(pt.cast(pt.clip({a}, -9, 9), "int8"), "{D}")|pt.cast(pt.cast({a}, "float32"), "{D}")
pt.cosh(pt.clip({a}, -3, 3))|pt.exp2(pt.clip({a}, -3, 3))|pt.log2(abs({a}) + 1)|{a} ** 2
pt.sinh(pt.clip({a}, -3, 3))|pt.tan(pt.clip({a}, -1, 1))|pt.deg2rad({a})|pt.trunc({a})
modulus(pt.cast({a}, "complex128") * 2j).astype("{D}")|pt.real(pt.exp(1j * pt.clip({a}, -3, 3)))
pt.clip({a}, 0.9, {a} * 0 + 0.1)|pt.switch(pt.eq({a}, {a}), {a}, 0)|pt.i0(pt.clip({a}, -3, 3))
"""

BINARY = """
{a} + {b}|{a} - {b}|{a} * {b}|pt.maximum({a}, {b})|pt.minimum({a}, {b})|{a} / (1 + pt.sqr({b}))
pt.arctan2({a}, {b})|(abs({a}) + 0.5) ** pt.clip({b}, -2, 2)|pt.mod({a}, abs({b}) + 1)
{a} // (abs({b}) + 1)|pt.switch({a} > {b}, {a}, {b})|pt.cast(pt.eq({a}, {b}), "{D}")
pt.switch(pt.and_({a} > 0, {b} > 0), {a}, {b})|pt.logaddexp({a}, {b})|{a} * pt.tanh({b}) + {a}
pt.sqrt(pt.sqr({a}) + pt.sqr({b}))|pt.cast(pt.cast({a}, "bool"), "{D}") * {b}
"""

# What changes the shape, or more than one element at a time: kinds of operands, result, text.
STRUCTURES = """
nm > nm | {a}[::-1]
nm > nm | pt.cumsum({a}, axis=0) / 10
nm > nm | pt.cumprod(pt.tanh({a}), axis=1)
nm > nm | {a}[pt.argsort({a}[:, 0])]
nm > nm | {a} - {a}.mean(axis=0, keepdims=True)
nm > nm | {a} / (1 + abs({a}).sum(axis=1, keepdims=True))
nm > nm | {a}.max(axis=1, keepdims=True) - {a}
nm > nm | pt.set_subtensor({a}[:1], 1)
nm > nm | pt.set_subtensor({a}[:, 0], 0.5)
nm > nm | pt.inc_subtensor({a}[1:], {a}[:-1])
nm > nm | pt.concatenate([{a}[1:], {a}[:1]])
nm > nm | pt.special.softmax({a}, axis=1)
nm > nm | pt.special.log_softmax({a}, axis=1)
nm > nm | {a}.T.T * 0.5
nm > nm | {a}.T.reshape({a}.shape)
nm > nm | {a}.flatten().reshape({a}.shape)
nm > nm | pt.sort({a}, axis=1)
nm > nm | pt.roll({a}, 1, axis=0)
nm > nm | pt.concatenate([{a}[:, :1], pt.diff({a}, axis=1)], axis=1)
nm > nm | pt.zeros_like({a})[:, :] + pt.ones_like({a})
nm > nm | pt.set_subtensor(pt.empty_like({a})[:], {a})
nm > nm | pt.inc_subtensor(pt.zeros_like({a})[::2], {a}[::2])
nm > nm | pt.join(0, {a}[:1], pt.cast({a}[1:] > 0, "int8")).astype("{D}")
nm > nm | pt.repeat({a}, 2, axis=0)[::2]
nm > nm | pt.tile({a}, (1, 2))[:, : {a}.shape[1]]
nm > nm | pt.where({a} > 0, {a}, -{a})
nm > nm | (pt.stack([{a}, {a} * 2]).sum(axis=0)) / 4
nm > nm | pt.linalg.norm({a}, axis=1)[:, None] * 0.1 + {a}
nm > n | {a}.sum(axis=1)
nm > n | {a}.mean(axis=1)
nm > n | {a}.max(axis=1)
nm > n | {a}.min(axis=1)
nm > n | pt.tanh({a}).prod(axis=1)
nm > n | {a}[:, 0]
nm > n | pt.logsumexp({a}, axis=1)
nm > n | pt.argmax({a}, axis=1).astype("{D}")
nm > n | pt.any({a} > 0, axis=1).astype("{D}")
nm > n | pt.var({a}, axis=1)
nm > m | {a}.sum(axis=0) / 10
nm > m | pt.tanh({a}).mean(axis=0)
nm > mm | pt.dot({a}.T, {a}) / 20
n > nm | {a}[:, None] + pt.zeros((1, M))
n > nm | pt.outer({a}, z)
n > n | {a}[::-1]
n > n | pt.cumsum({a}) / 10
n > n | {a} - {a}.mean()
n > n | pt.concatenate([{a}[:1], {a}[:-1]])
n > n | pt.set_subtensor({a}[-1:], 0)
n > n | pt.sort({a})
m > m | {a}[::-1]
m > m | {a} / (1 + abs({a}).sum())
m > m | pt.special.softmax({a})
m > mm | pt.diag({a})
m > mm | pt.outer({a}, {a}) / 4
mm > m | pt.diagonal({a})
mm > m | {a}[0]
mm > m | {a}.sum(axis=0)
mm > mm | {a}.T
mm > mm | pt.tril({a})
mm > mm | {a} + pt.eye(M)
mm > mm | pt.linalg.inv({a} / (1 + abs({a}).sum()) + 2 * pt.eye(M))
mm > mm | pt.linalg.cholesky(pt.dot({a}, {a}.T) / (1 + abs({a}).max() ** 2) + pt.eye(M))
mm > m | pt.linalg.det({a} / (1 + abs({a}).sum()) + pt.eye(M)) * z
mm > m | pt.linalg.svd({a}, compute_uv=False)
mm > mm | pt.linalg.matrix_power({a} / 4, 2)
mm > mm | pt.stack([{a}, {a} + 1])[1]
mm > mm | pt.linalg.inv(pt.stack([{a} / (1 + abs({a}).sum()) + 2 * pt.eye(M), pt.eye(M)]))[0]
nm,mm > nm | pt.dot({a}, {b}) / 4
nm,mm > nm | pt.matmul({a}[:, None, :], {b})[:, 0]
nm,mm > nm | pt.dot({a}, {b}.T) / 4
nm,m > n | pt.dot({a}, {b}) / 4
nm,m > nm | {a} * {b}
nm,m > nm | {a} + {b}
nm,n > nm | {a} * {b}[:, None]
nm,n > m | pt.dot({b}, {a}) / 8
nm,nm > mm | pt.dot({a}.T, {b}) / 8
nm,nm > n | ({a} * {b}).sum(axis=1)
nm,nm > nm | pt.concatenate([{a}, {b}], axis=1)[:, : {a}.shape[1]]
nm,nm > n | pt.matmul({a}[:, None, :], {b}[:, :, None])[:, 0, 0]
nm,m > nm | pt.set_subtensor({a}[0], {b})
nm,m > nm | pt.inc_subtensor({a}[:2], {b})
n,m > nm | pt.outer({a}, {b})
n,n > n | {a} * ({a} > {b})
m,m > mm | pt.outer({a}, {b})
mm,m > m | pt.dot({a}, {b}) / 4
mm,m > m | pt.linalg.solve({a} / (1 + abs({a}).sum()) + 2 * pt.eye(M), {b})
mm,m > m | pt.linalg.solve_triangular(pt.tril({a}) / (1 + abs({a}).sum()) + 2 * pt.eye(M), {b})
mm,mm > mm | pt.dot({a}, {b}) / 4
mm,m > mm | {a} * {b}
mm,m > mm | pt.set_subtensor({a}[0], {b})
mm,m > mm | pt.inc_subtensor({a}[:, 0], {b})
m > nm | pt.zeros_like(x) + {a}
"""

# The same, by what they need beside the pool: text over the pool, and a name that must be there.
SPECIAL = """
index: m > nm | pt.outer({a}, {a})[k] / 2
index: mm > nm | {a}[k]
index: mm,nm > mm | pt.inc_subtensor({a}[k], {b} / 8)
index: m > n | {a}[k]
index: m,n > m | pt.inc_subtensor({a}[k], {b} / 8)
index: n > n | pt.cast(k, "{D}") + {a}
index: nm > nm | pt.set_subtensor({a}[:, 0], pt.cast(k, "{D}"))
index: nm > n | {a}[pt.arange({a}.shape[0]), k]
computed index: m > m | {a}[pt.cast(pt.clip(abs({a}), 0, M - 1), "int64")]
computed index: nm > nm | {a}[:, pt.cast(pt.clip(abs({a}[0]), 0, M - 1), "int32")]
computed index: mm > m | {a}[pt.cast(pt.clip({a}[0, 0], 0, M - 1), "int64")]
computed index: m > m | pt.set_subtensor({a}[pt.cast(pt.clip(abs({a}), 0, 1), "int64")], 0.5)
computed index: mm > mm | {a}[: pt.cast(pt.clip({a}[0, 0], 1, 2), "int64")].sum(axis=0) + {a}
embedding: n > nm | E[k] + {a}[:, None]
scan: nm,mm > nm | loop_simple({a}, {b})
scan: nm,m > nm | loop_rows({a}, {b})
scan: nm > nm | loop_taps({a})
scan: nm,mm > mm | loop_gradient({a}, {b})
scan: m > m | loop_fixed({a})
while: m > m | loop_while({a})
while: nm > nm | loop_while({a})
ifelse: nm,nm > nm | ifelse(pt.gt({a}.sum(), 0), {a} + {b}, {a} - {b})
ifelse: m,m > m | ifelse(pt.gt({a}.sum(), {b}.sum()), pt.tanh({a}), pt.log1p(abs({b})))
ifelse: mm,mm > mm | ifelse(pt.lt({a}[0, 0], 0), pt.dot({a}, {b}) / 4, {a})
random: nm > nm | {a} + draw("normal", {a} * 0.1, 0.1)
random: m > m | draw("normal", {a}, 1.0)
random: n > n | draw("uniform", -1, 1 + abs({a}))
random: m > m | draw("exponential", abs({a}) + 0.1) * 0.1
random: n > n | draw("poisson", abs(pt.clip({a}, -9, 9)) + 0.1)
random: n > n | draw("gamma", abs({a}) + 0.5, 1.0) * 0.1
sparse: nm,mm > nm | sparse.structured_dot(sparse.csr_from_dense({a}), {b}) / 4
sparse: nm > n | sparse.sp_sum(sparse.csr_from_dense({a}), axis=1)
sparse: nm > nm | sparse.dense_from_sparse(sparse.csr_from_dense({a}))
typed list: nm > nm | make_list([{a}, {a} * 2])[1]
convolution: n > n | pt.signal.convolve1d({a}, z, mode="same")[: {a}.shape[0]] / 8
convolution: nm > nm | conv2d_same({a})
complex: n > n | modulus(c * {a})
complex: n > n | pt.real(c + {a}) / (1 + modulus(c))
body: nm > nm | tanh_body({a})
"""

PREAMBLE = """
import numpy as np
import pytensor
import pytensor.sparse as sparse
import pytensor.tensor as pt
from pytensor.compile.builders import OpFromGraph
from pytensor.scan.utils import until
from pytensor.typed_list import make_list

try:
    from pytensor.conditional import ifelse
except ImportError:
    from pytensor.ifelse import ifelse

D, M = {D!r}, {M}
generator = pytensor.shared(np.random.default_rng({seed}), name="generator")
state, updates = [generator], {{}}


def draw(name, *args):
    state[0], value = getattr(pt.random, name)(
        *args, rng=state[0]
    ).owner.outputs
    updates[generator] = state[0]
    return value.astype(D)


def modulus(z):  # (PyTensor's C code of abs does not compile for complex numbers)
    return pt.sqrt(pt.sqr(pt.real(z)) + pt.sqr(pt.imag(z)))


def scan(*args, **kwargs):
    return pytensor.scan(*args, **kwargs, return_updates=False)


def loop_simple(h, w):
    step = lambda h, w: (pt.tanh(pt.dot(h, w) / 2) + h / 2).astype(D)
    return scan(step, outputs_info=[h], non_sequences=[w], n_steps=3)[-1]


def loop_rows(x, v):
    step = lambda row, total: ((total * 0.5 + row * v).astype(D), pt.sqr(total))
    totals, squares = scan(step, sequences=[x], outputs_info=[v, None])
    return totals + pt.tanh(squares)


def loop_taps(x):
    step = lambda row, one, two: (pt.sin(one) + row * 0.1 - two / 4).astype(D)
    first = pt.stack([pt.zeros_like(x.sum(axis=0)), pt.ones_like(x.sum(axis=0))])
    return scan(step, sequences=[x], outputs_info=[{{"initial": first, "taps": [-1, -2]}}])


def loop_gradient(x, w):
    w = w * 1
    return pt.grad(loop_simple(pt.tanh(x), w).sum(), w)


def loop_fixed(v):
    return scan(lambda u: (pt.sqrt(abs(u) + 1) - u / 3).astype(D), outputs_info=[v], n_steps=4)[-1]


def loop_while(v):
    step = lambda u: ((u * 2 + 0.1).astype(D), until(abs(u).sum() > 40))
    return pt.tanh(scan(step, outputs_info=[v], n_steps=12)[-1])


def conv2d_same(x):
    kernel = np.array([[0, 1, 0], [1, 2, 1], [0, 1, 0]], D) / 6
    return pt.signal.convolve2d(x, kernel, mode="same").astype(D)


def tanh_body(x):
    inner = pt.matrix(dtype=D)
    return OpFromGraph([inner], [pt.tanh(inner) * 2 + pt.sqr(inner)])(x)
"""

# Where a fault is planted: the operand `g` is `lo` to `hi` where the gate is at rest.
GATES = """
pt.log({g}) 0.5 4|pt.log1p({g}) 0.5 4|pt.log2({g}) 0.5 4|pt.log10({g}) 0.5 4|pt.sqrt({g}) 0.5 4
1 / {g} 0.5 4|pt.exp({g}) -2 2|pt.expm1({g}) -2 2|pt.exp2({g}) -2 2|pt.arcsin({g}) -0.9 0.9
pt.arccos({g}) -0.9 0.9|pt.arccosh({g}) 1.5 3|pt.arctanh({g}) -0.9 0.9|pt.gammaln({g}) 0.5 4
pt.gamma({g}) 0.5 4|pt.psi({g}) 0.5 4|pt.sinh({g}) -2 2|pt.cosh({g}) -2 2|pt.tan({g}) -1 1
pt.sqr({g}) -2 2|{g} ** 3 -2 2|{g} ** 1.5 0.5 2|{g} ** -0.5 0.5 2|{g} ** {g} 0.5 2|{h} / {g} 0.5 2
{g} * {h} -2 2|{g} * 1e4 -2 2|{g} * {g} * {g} * {g} -1 1|{g} + {h} -2 2|{g} - {h} -2 2
pt.erfinv({g}) -0.9 0.9|pt.erfcinv({g}) 0.2 1.8|pt.erfcx({g}) -1 2|pt.softplus({g}) -2 2
pt.log1mexp(-{g}) 0.5 4|pt.mod({h}, {g}) 0.5 2|{h} // {g} 0.5 2|pt.sigmoid({g}) -2 2
pt.tanh({g}) -2 2
pt.cast(pt.cast({g}, "float32"), "{D}") -2 2|pt.log(pt.sigmoid({g})) -2 2
pt.tri_gamma(pt.maximum({g}, -9)) 0.5 4
pt.arctan2({g}, {h}) -1 1|pt.gammainc({g}, 2.0) 0.5 4|pt.switch({g} > 3, np.nan, {h}) -1 1
pt.switch({g} > 3, -np.inf, {h}) -1 1|pt.switch({g} > 3, np.inf, {h}) -1 1
pt.switch({g} > 3, 1e30, {h}) -1 1|pt.switch({g} > 0, pt.log({g}), {h}) 0.5 4
pt.exp(pt.switch({g} > 0, pt.log({g}), -np.inf)) 0.5 4|pt.maximum(pt.log({g}), -9) 0.5 4
pt.cumsum({g}) 0.5 4|pt.cumprod({g}) 0.5 1
modulus(pt.sqrt(pt.cast({g}, "complex128"))).astype("{D}") 0.5 4
pt.real(pt.tanh(1j * pt.cast({g}, "complex128"))).astype("{D}") 0.1 1|{h} + {g}.sum() -1 1
{h} * {g}.prod() 0.9 1.1|{h} - {g}.max() -1 1|{h} / {g}.min() 0.5 2|pt.i0({g}) -1 1|pt.j0({g}) -1 1
pt.cast({g}, "float16").astype("{D}") -2 2|pt.logaddexp({g}, {h}) -1 1
"""
SHAPED_GATES = """
nm > m | pt.logsumexp({g}, axis=0) -1 1
nm > nm | pt.special.softmax({g}, axis=1) -1 1
nm > nm | {g} - pt.logsumexp({g}, axis=1, keepdims=True) -1 1
nm > nm | pt.inc_subtensor({g}[:2], {g}[:1] * 10) -1 1
nm > nm | pt.log(pt.inc_subtensor({g}[:1], 0.5)) 1 4
nm > nm | pt.dot({g}, pt.ones((M, M))) -1 1
nm > nm | {g} / {g}.sum(axis=1, keepdims=True) 0.5 4
nm > nm | ({g} - {g}.mean(axis=0)) / {g}.std(axis=0) -1 1
nm > nm | {g} / pt.sqrt(pt.sqr({g}).sum(axis=1, keepdims=True)) 0.5 4
mm > mm | pt.linalg.inv({g} / 100 + pt.eye(M)) 0.1 1
mm > mm | pt.linalg.cholesky(pt.dot({g}, {g}.T) + pt.eye(M)) -1 1
mm > mm | pt.dot({g}, {g}) -1 1
m > m | pt.linalg.solve(pt.diag({g}), pt.ones(M)) 0.5 2
m > m | pt.dot(pt.diag({g}), {g}) -1 1
m > m | scan(lambda u: (u * 1.5 - 0.1).astype(D), outputs_info=[{g}], n_steps=6)[-1] -1 1
m > m | scan(lambda u: (pt.sqrt(u) + 0.5).astype(D), outputs_info=[{g}], n_steps=3)[-1] 0.5 4
nm > nm | scan(lambda row: pt.log(row) * 2, sequences=[{g}]) 0.5 4
"""

UPDATES = """
W W - 0.01 * {mm}
W pt.tanh(W + 0.1 * {mm})
W pt.inc_subtensor(W[:2], 0.01 * {m})
W pt.set_subtensor(W[0], {m})
W W * 0.9 + 0.05 * {mm}
W pt.switch(abs({mm}) < 5, {mm}, W)
v v - 0.01 * {m}
v pt.set_subtensor(v[:1], pt.tanh({m}[:1]))
v 0.9 * v + 0.1 * pt.sqr(pt.tanh({m}))
s s * 0.9 + {m}.mean()
s pt.minimum(s + 1, 5.0)
"""
EMBEDDING_UPDATES = """
E pt.inc_subtensor(E[k], 0.01 * {nm})
E pt.set_subtensor(E[k], pt.tanh({nm}))
E pt.inc_subtensor(E[:1], 0.01 * {m})
"""
# What a companion reads, and writes without making anything.
READERS = """
W * 100|pt.dot(W, v)|v + s|W[0] * z|pt.exp(pt.clip(W, -3, 3))|E[1] * 3|W.sum()|v - v.max()|E[:2]
"""
COMPANION_UPDATES = """
W pt.set_subtensor(W[1], {m} * z)
W pt.inc_subtensor(W[:, :1], {mm}[:, 1:2] * d0.sum())
v pt.set_subtensor(v[1:2], d0.sum() * 1e9)
E pt.set_subtensor(E[0], {m} * d0.sum())
E pt.inc_subtensor(E[:1], pt.log(d0.sum() + 2))
s s + d0.sum()
"""


def table(text):
    """Return the entries of one of the texts above."""
    return [part for line in text.strip().splitlines() for part in line.split("|") if part]


def typed(text):
    """Return ``(kinds of operands, kind of result, template)`` of each line."""
    found = []
    for line in text.strip().splitlines():
        kinds, template = line.split(" | ", 1)
        operands, result = kinds.split(" > ")
        found.append((tuple(operands.split(",")), result, template))
    return found


@dataclass
class Gate:
    """A place where calls plant faults: the input that does it, and how."""

    name: str
    kind: str
    rest: float  # 0 is added, 1 is multiplied


@dataclass
class Program:
    """The text of a program and what its calls need to know.

    Parameters
    ----------
    seed : int
    dtype : str
    m : int
    text : str
        Defines ``inputs``, ``outputs``, ``updates`` and ``shared``, dictionaries but for
        ``outputs``.  A companion is a second function of the same inputs and shared variables,
        with ``companion_outputs`` and ``companion_updates``.
    gates : list of Gate
    features : set of str
    companion : {None, "guarded", "plain"}
    """

    seed: int
    dtype: str
    m: int
    text: str
    gates: list = field(default_factory=list)
    features: set = field(default_factory=set)
    companion: str | None = None

    def build(self):
        """Run the text; return its names."""
        names = {}
        exec(compile(self.text, f"<program {self.seed}>", "exec"), names)
        return names


INPUTS = {
    "x": ("nm", 'pt.matrix("x", dtype=D)'),
    "y": ("n", 'pt.vector("y", dtype=D)'),
    "z": ("m", 'pt.vector("z", dtype=D)'),
    "k": ("index", 'pt.vector("k", dtype="int64")'),
    "c": ("complex", 'pt.vector("c", dtype="complex128")'),
}


def shared_text(dtype, m, seed):
    values = np.random.default_rng(abs(seed))
    lines = []
    for name, shape in (("W", (m, m)), ("v", (m,)), ("s", ()), ("E", (m + 2, m))):
        value = np.round(values.normal(size=shape) / 2, 3).tolist()
        lines.append(f'{name} = pytensor.shared(np.array({value}, D), name="{name}")')
    return lines


SPECIAL_RATES = {
    "index": 0.5,
    "embedding": 0.3,
    "scan": 0.4,
    "while": 0.15,
    "ifelse": 0.25,
    "random": 0.2,
    "sparse": 0.1,
    "typed list": 0.05,
    "convolution": 0.1,
    "complex": 0.15,
    "body": 0.15,
}
# What PyTensor does not compile for a backend.
LACKS = {
    "c": {},
    "numba": {"typed list", "float16"},
    "jax": {
        "typed list",
        "sparse",
        "while",
        "scan",
        "convolution",
        "float16",
        "random",
        "computed index",  # (it clips indices)
    },
}


class Writer:
    """Writes one program.

    Parameters
    ----------
    seed : int
    backend : {"c", "numba", "jax"}
    """

    def __init__(self, seed, backend):
        self.rng = random.Random(seed)
        self.seed = seed
        rng = self.rng
        dtypes = ["float64"] * 5 + ["float32"] * 4 + ["float16"]
        self.dtype = rng.choice([d for d in dtypes if d not in LACKS[backend]])
        self.m = rng.choice([3, 3, 9, 9, 17, 40])  # below and above what is always scanned
        self.features = {
            name
            for name, rate in SPECIAL_RATES.items()
            if rng.random() < rate and name not in LACKS[backend]
        }
        # (drawn apart, so that most older seeds still write the same programs)
        if random.Random(~seed * 37).random() < 0.2 and "computed index" not in LACKS[backend]:
            self.features.add("computed index")
        self.lines = []
        self.pool = {kind: [] for kind in KINDS}
        self.gates = []
        # (drawn apart, so that older seeds still write the same programs)
        self.apart = random.Random(~seed * 31)
        self.companion = self.apart.choice([None] * 6 + ["guarded", "plain"])

    def write(self):
        """Return the :class:`Program`."""
        rng = self.rng
        self.pool["nm"] += ["x"]
        self.pool["n"] += ["y"]
        self.pool["m"] += ["z", "v"]
        self.pool["mm"] += ["W"]
        length = rng.choice([2, 4, 6, 9, 14])
        n_gates = rng.choice([1, 2, 3])
        places = sorted(rng.randrange(length) for _ in range(n_gates))
        for i in range(length):
            self.block()
            for _ in range(places.count(i)):
                self.gate()
        return self.finish()

    def write_table(self):
        """Return the program of one entry of the tables of gates; its seed is negative."""
        one = [(kind, kind, entry) for kind in ("n", "nm") for entry in table(GATES)]
        shaped = [(kind, result, entry) for (kind,), result, entry in typed(SHAPED_GATES)]
        entries = one + shaped
        self.m = self.apart.choice([1, 2, 7])
        self.companion = None
        self.pool = {"nm": ["x"], "n": ["y"], "m": ["z", "v"], "mm": ["W"]}
        self.gate(entries[~self.seed % len(entries)])
        return self.finish()

    def add(self, kind, text):
        name = f"t{len(self.lines)}"
        text = text.replace("{D}", self.dtype)
        self.lines.append(f'{name} = pt.cast({text}, "{self.dtype}")')
        self.pool[kind].append(name)
        return name

    def pick(self, kind):
        """Return a variable of this kind, rather a new one."""
        pool = self.pool[kind]
        return pool[-1] if self.rng.random() < 0.6 else self.rng.choice(pool)

    def fill(self, template, kinds):
        names = {letter: self.pick(kind) for letter, kind in zip("ab", kinds, strict=False)}
        return template.replace("{a}", names["a"]).replace("{b}", names.get("b", ""))

    def block(self):
        rng = self.rng
        choice = rng.random()
        if choice < 0.35:
            kind = rng.choice(KINDS)
            new = self.add(kind, self.fill(rng.choice(table(UNARY)), (kind,)))
        elif choice < 0.55:
            kind = rng.choice(KINDS)
            new = self.add(kind, self.fill(rng.choice(table(BINARY)), (kind, kind)))
        else:
            wanted = typed(STRUCTURES)
            special = [
                line.split(": ", 1)[1]
                for line in SPECIAL.strip().splitlines()
                if line.split(": ", 1)[0] in self.features
            ]
            if special and rng.random() < 0.4:
                wanted = typed("\n".join(special))
            kinds, kind, template = rng.choice(wanted)
            new = self.add(kind, self.fill(template, kinds))
        if rng.random() < 0.5:  # keep the numbers moderate
            tame = rng.choice(["pt.tanh({a})", "pt.clip({a}, -3, 3)", "{a} / (1 + abs({a}))"])
            self.add(kind, tame.replace("{a}", new))

    def gate(self, chosen=None):
        """Write an operation with an operand that an input of its own can spoil."""
        rng = self.rng
        if chosen is not None:
            kind, result, entry = chosen
        elif rng.random() < 0.75:
            entry = rng.choice(table(GATES))
            kind = result = rng.choice(KINDS)
        else:
            (kind,), result, entry = rng.choice(typed(SHAPED_GATES))
        template, lo, hi = entry.rsplit(" ", 2)
        if "cumsum" in template or "cumprod" in template:
            template = template.replace("({g})", "({g}, axis=0)")
        lo, hi = float(lo), float(hi)
        name = f"d{len(self.gates)}"
        # sometimes one number, or a row, spoils a whole array
        width = kind if rng.random() < 0.7 else rng.choice({"nm": ["m", "s"]}.get(kind, ["s"]))
        rest = float(rng.random() < 0.5)
        base = f"({lo} + {hi - lo} * pt.sigmoid({self.pick(kind)}))"
        operand = f"({base} * {name})" if rest else f"({base} + {name})"
        if rng.random() < 0.3:
            operand = f"({base} + 2 * {name} - {2 * rest})"
        filled = template.replace("{h}", self.pick(kind))
        if template.count("{g}") > 1:
            operand_name = self.add(kind, operand)
            self.pool[kind].pop()
            filled = filled.replace("{g}", operand_name)
        else:
            filled = filled.replace("{g}", operand)
        self.gates.append(Gate(name, width, rest))
        new = self.add(result, filled)
        if rng.random() < 0.4:
            self.add(
                result, rng.choice(["pt.tanh({a})", "pt.clip({a}, -3, 3)"]).replace("{a}", new)
            )

    def finish(self):
        rng = self.rng
        made = [line.split(" = ")[0] for line in self.lines]
        leaves = [
            name
            for i, name in enumerate(made)
            if not any(re.search(rf"\b{name}\b", line) for line in self.lines[i + 1 :])
        ]
        last = made[-1]
        outputs = [last, *rng.sample(leaves[:-1], min(5, len(leaves) - 1))]
        if rng.random() < 0.5:
            outputs.append(rng.choice([f"{last}.sum()", f"{last} * 2"]))
        lines = []
        texts = rng.sample(table(UPDATES), rng.choice([0, 1, 2, 3]))
        if "embedding" in self.features:
            texts.append(rng.choice(table(EMBEDDING_UPDATES)))
        for text in texts:
            target, expression = text.split(" ", 1)
            for kind in KINDS:
                expression = expression.replace("{" + kind + "}", self.pick(kind))
            lines.append(f'updates[{target}] = pt.cast({expression}, "{self.dtype}")')
        body = [*self.lines, f"outputs = [{', '.join(outputs)}]", *lines]
        if self.companion:
            body += self.companion_lines(made)
        head = []
        for name, (_, text) in INPUTS.items():
            if any(re.search(rf"\b{name}\b", line) for line in body):
                head.append(f"{name} = {text}")
        dims = {"nm": "matrix", "mm": "matrix", "s": "scalar"}
        for gate in self.gates:
            kind = dims.get(gate.kind, "vector")
            head.append(f'{gate.name} = pt.{kind}("{gate.name}", dtype=D)')
        names = [line.split(" = ")[0] for line in head]
        head += shared_text(self.dtype, self.m, self.seed)
        preamble = PREAMBLE.format(D=self.dtype, M=self.m, seed=self.seed % 1000)
        tail = [
            f"inputs = {{{', '.join(f'{n!r}: {n}' for n in names)}}}",
            "shared = {'W': W, 'v': v, 's': s, 'E': E, 'generator': generator}",
        ]
        text = "\n".join([preamble.strip(), "", *head, *body, *tail, ""])
        return Program(
            self.seed, self.dtype, self.m, text, self.gates, self.features, self.companion
        )

    def companion_lines(self, made):
        """Return the outputs and the updates of a second function."""
        self.rng, rng = self.apart, self.apart
        reading = rng.sample(table(READERS), 2)
        lines = [f"companion_outputs = [{', '.join([rng.choice(made), *reading])}]"]
        lines.append("companion_updates = {v: e for v, e in updates.items() if v is generator}")
        for text in rng.sample([*table(UPDATES), *table(COMPANION_UPDATES)], rng.choice([0, 1, 2])):
            target, expression = text.split(" ", 1)
            for kind in KINDS:
                expression = expression.replace("{" + kind + "}", self.pick(kind))
            lines.append(f'companion_updates[{target}] = pt.cast({expression}, "{self.dtype}")')
        return lines


def write_program(seed, backend="c"):
    """Return the :class:`Program` of a seed; of a negative one, an operation of the tables."""
    writer = Writer(seed, backend)
    return writer.write() if seed >= 0 else writer.write_table()
