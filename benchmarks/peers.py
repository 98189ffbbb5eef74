"""What looking for NaN costs in other tools: guarded against unguarded, the same mathematics.

Four workloads in float32, on one thread.  Each (tool, workload) has a process of its own, since
what one tool sets globally must not reach another; within it the unguarded function, a second one
("again", what the machine can resolve) and the guarded ones are called alternately, in random
order within each round.  What is compared is CPU time of the whole process, and what is reported
the median of the paired ratios.

Before anything is timed, the results of all variants are compared with those of PyTensor's C
backend, and every detector is fed a NaN, in the same process, through the function that is timed;
again after the timing.  One that does not complain is reported as off.  A tool that is not
installed is skipped with a line that says so.

    python benchmarks/peers.py [--rounds 30] [--tool jax ...] [--workload W2 ...] [--json FILE]

Torch, JAX and TensorFlow come with ``pip install .[peers]``.
"""

import argparse
import contextlib
import importlib.metadata
import io
import os
import re
import statistics
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context

import numpy as np
import pytensor
from pytensor.compile.debug.monitormode import MonitorMode, detect_nan
from pytensor.compile.debug.nanguardmode import NanGuardMode
from pytensor.compile.mode import Mode
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.traversal import graph_inputs
from reporting import geometric_mean, write_json
from timing import Variant, interleaved, ratio
from workloads import logp, mlp, rnn, small_nodes

import theanoguard

ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "TF_NUM_INTRAOP_THREADS": "1",
    "TF_NUM_INTEROP_THREADS": "1",
    "JAX_PLATFORMS": "cpu",
    "CUDA_VISIBLE_DEVICES": "",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}


class Skipped(Exception):
    """This machine cannot run that tool; the message says why."""


# ---------------------------------------------------------------- the workloads


def tiny(dtype, rng):
    """Some 200 operations on vectors of 10 elements: a value and its gradient."""
    inputs, value, updates, values = small_nodes(100)(dtype, rng)
    return inputs, [value, pytensor.grad(value, inputs[0])], updates, values


@dataclass(frozen=True)
class Workload:
    """The graph, where a NaN is put in, and what the gradient is taken for.

    Parameters
    ----------
    title : str
    build : callable
        As in ``workloads.py``.
    bad : str
        Name of the input whose first element becomes NaN.
    trains : bool
        Whether a call is a step of training; else it returns the loss and the gradient.
    """

    title: str
    build: Callable
    bad: str
    trains: bool


WORKLOADS = {
    "W1": Workload("training step of an MLP", mlp, "x", True),
    "W2": Workload("training step of a recurrent net", rnn, "x", True),
    "W3": Workload("log-density of 100k, gradient", logp, "theta", False),
    "W4": Workload("200 tiny operations, gradient", tiny, "x", False),
}


@dataclass
class Arrays:
    """What a workload computes on, by name."""

    params: dict = field(default_factory=dict)
    inputs: dict = field(default_factory=dict)
    constants: dict = field(default_factory=dict)


def arrays_of(workload):
    """Return the values that PyTensor's function has, for the other tools to compute on."""
    inputs, outputs, updates, values = workload.build("float32", np.random.default_rng(1))
    found = Arrays(inputs={v.name: a for v, a in zip(inputs, values, strict=True)})
    outputs = outputs if isinstance(outputs, list) else [outputs]
    for v in graph_inputs([*outputs, *(new for _, new in updates)]):
        if isinstance(v, SharedVariable):
            trained = any(v is p for p, _ in updates)
            (found.params if trained else found.constants)[v.name] = v.get_value()
    return found


def with_nan(workload, inputs):
    bad = {name: value.copy() for name, value in inputs.items()}
    bad[workload.bad].flat[0] = np.nan
    return bad


# ---------------------------------------------------------------- the tools


@dataclass
class Guarded:
    """A variant that takes inputs: ``call(inputs)`` returns arrays."""

    call: Callable
    good: object
    bad: object
    reset: Callable = lambda: None
    on: Callable = contextlib.nullcontext

    def variant(self):
        return Variant(partial(self.call, self.good), self.reset, self.on)


def pytensor_functions(workload, makers, build=None, static=False):
    """Compile the workload once per mode, on shared variables of its own."""
    result = {}
    for name, make in makers.items():
        inputs, outputs, updates, values = (build or workload.build)(
            "float32", np.random.default_rng(1)
        )
        givens = {}
        if static:  # JAX has to know the length of a loop when it compiles
            known = [
                v.type.clone(shape=a.shape)(v.name) for v, a in zip(inputs, values, strict=True)
            ]
            inputs, givens = known, dict(zip(inputs, known, strict=True))
        with pytensor.config.change_flags(floatX="float32"):
            fn = pytensor.function(inputs, outputs, updates=updates, givens=givens, mode=make())
        fn.trust_input = True
        start = [(p, p.get_value()) for p, _ in updates]
        good = {v.name: a for v, a in zip(inputs, values, strict=True)}
        result[name] = Guarded(
            call=lambda values, fn=fn: as_list(fn(*values)),
            good=list(good.values()),
            bad=list(with_nan(workload, good).values()),
            reset=lambda start=start: [p.set_value(value) for p, value in start],
        )
    return result


def as_list(outputs):
    """Return NumPy arrays, which are there when this returns (JAX's may not be)."""
    return [np.asarray(o) for o in (outputs if isinstance(outputs, list) else [outputs])]


def pytensor_variants(backend, linker, workload):
    if backend == "jax":
        import jax  # noqa: F401  (PyTensor would say so only when it compiles)
    plain = partial(Mode, linker, "fast_run")
    guard = partial(theanoguard.GuardMode, True, True, True, optimizer="fast_run", backend=backend)
    nan_guard = partial(NanGuardMode, True, True, True, optimizer="fast_run")
    makers = {"plain": plain, "again": plain, "GuardMode": guard, "NanGuardMode": nan_guard}
    if backend == "c":
        makers["MonitorMode"] = partial(MonitorMode, post_func=detect_nan, optimizer="fast_run")
    if backend == "jax":
        del makers["NanGuardMode"]  # it would be compared with one that has static shapes
    result = pytensor_functions(workload, makers, static=backend == "jax")
    if "MonitorMode" in result:
        result["MonitorMode"].on = silence
    if workload.build is rnn and "NanGuardMode" in makers:
        name = "NanGuardMode, scan(mode=)"
        result |= pytensor_functions(workload, {name: nan_guard}, partial(rnn, mode=nan_guard()))
    return result


@contextlib.contextmanager
def silence():
    """Show nothing of what MonitorMode prints of NaN, in uninitialised memory too."""
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        yield


def torch_variants(workload):
    import torch
    from torch import nn

    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.w_in = nn.Linear(32, 128, bias=False)
            self.w = nn.Linear(128, 128, bias=False)
            self.w_out = nn.Linear(128, 8, bias=False)

        def forward(self, x, t):
            h = torch.zeros(32, 128)
            for x_t in x:
                h = torch.tanh(self.w_in(x_t) + self.w(h))
            return ((self.w_out(h) - t) ** 2).mean()

    class Classifier(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(
                nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
            )
            self.loss = nn.CrossEntropyLoss()

        def forward(self, x, y):
            return self.loss(self.layers(x), y)

    class Density(nn.Module):
        def forward(self, theta):
            mu, sigma = theta[0] + theta[1] * constants["covariate"], torch.exp(theta[2])
            z = (constants["obs"] - mu) / sigma
            return (-0.5 * z**2 - torch.log(sigma) - 0.9189385332046727).sum()

    class Round(nn.Module):
        def __init__(self, i):
            super().__init__()
            self.i = i

        def forward(self, y, x):
            y = torch.exp(-(y**2)) if self.i % 2 else torch.tanh(y) + x
            return torch.cumsum(y, 0).flip(0) if self.i % 3 else m @ y

    class Chain(nn.Module):
        def __init__(self):
            super().__init__()
            self.rounds = nn.ModuleList([Round(i) for i in range(50)])

        def forward(self, x):
            y = x
            for one in self.rounds:
                y = one(y, x)
            return y.sum()

    torch.set_num_threads(1)
    m = torch.eye(10) * 0.5
    found = arrays_of(workload)
    constants = {name: torch.from_numpy(value) for name, value in found.constants.items()}
    # In PyTensor's order of names; a Linear layer keeps the transpose.
    names = {mlp: ["w0", "b0", "w1", "b1", "w2", "b2"], rnn: ["w_in", "w", "w_out"]}
    start = [torch.from_numpy(found.params[n].T.copy()) for n in names.get(workload.build, ())]
    module = {mlp: Classifier, rnn: Recurrent, logp: Density, tiny: Chain}[workload.build]

    def refuse(_module, _args, output):
        if not torch.isfinite(output).all():
            raise FloatingPointError("a module returned NaN or Inf")

    def make(hooks):
        model = module()
        params = list(model.parameters())
        if hooks:
            for part in model.modules():
                part.register_forward_hook(refuse)
        optimizer = torch.optim.SGD(params, lr=0.01) if params else None

        def check_gradients(leaves):
            norm = torch.nn.utils.get_total_norm([leaf.grad for leaf in leaves])
            if not torch.isfinite(norm):
                raise FloatingPointError("the norm of the gradient is NaN or Inf")

        def train(inputs):
            optimizer.zero_grad()
            loss = model(*inputs)
            loss.backward()
            if hooks:
                check_gradients(params)
            optimizer.step()
            return [loss.detach()]

        def differentiate(inputs):
            leaf = inputs[0].detach().requires_grad_()
            leaf.grad = None
            loss = model(leaf)
            loss.backward()
            if hooks:
                check_gradients([leaf])
            return [loss.detach(), leaf.grad]

        def reset():
            with torch.no_grad():
                for p, value in zip(params, start, strict=True):
                    p.copy_(value)

        def tensors(inputs):
            # Class labels have to be of 64 bits there.
            found = [torch.from_numpy(value) for value in inputs.values()]
            return [t.long() if t.dtype == torch.int32 else t for t in found]

        return Guarded(
            call=train if workload.trains else differentiate,
            good=tensors(found.inputs),
            bad=tensors(with_nan(workload, found.inputs)),
            reset=reset,
        )

    anomaly = make(False)
    anomaly.on = partial(torch.autograd.set_detect_anomaly, True)
    return {
        "plain": make(False),
        "again": make(False),
        "anomaly mode": anomaly,
        "forward hooks, gradient norm": make(True),
    }


def jax_variants(workload):
    import jax
    import jax.numpy as jnp
    from jax.experimental import checkify

    def classify(params, x, y):
        h = x
        for i in range(3):
            h = h @ params[f"w{i}"] + params[f"b{i}"]
            if i < 2:
                h = jnp.maximum(h, 0)
        return -jax.nn.log_softmax(h)[jnp.arange(len(y)), y].mean()

    def recur(params, x, t):
        def step(h, x_t):
            return jnp.tanh(x_t @ params["w_in"] + h @ params["w"]), None

        h, _ = jax.lax.scan(step, jnp.zeros((32, 128)), x)
        return ((h @ params["w_out"] - t) ** 2).mean()

    def density(theta):
        mu, sigma = theta[0] + theta[1] * constants["covariate"], jnp.exp(theta[2])
        z = (constants["obs"] - mu) / sigma
        return (-0.5 * z**2 - jnp.log(sigma) - 0.9189385332046727).sum()

    def chain(x):
        y = x
        for i in range(50):
            y = jnp.exp(-(y**2)) if i % 2 else jnp.tanh(y) + x
            y = jnp.cumsum(y)[::-1] if i % 3 else m @ y
        return y.sum()

    m = jnp.eye(10) * 0.5
    found = arrays_of(workload)
    constants = {name: jnp.asarray(value) for name, value in found.constants.items()}
    start = {name: jnp.asarray(value) for name, value in found.params.items()}
    loss = {mlp: classify, rnn: recur, logp: density, tiny: chain}[workload.build]

    def step(params, inputs):
        value, gradient = jax.value_and_grad(loss)(params, *inputs)
        return jax.tree.map(lambda p, g: p - 0.01 * g, params, gradient), [value]

    def differentiate(params, inputs):
        return params, list(jax.value_and_grad(loss)(*inputs))

    compute = step if workload.trains else differentiate

    def make(checks=False, on=contextlib.nullcontext):
        # A function of its own each time, or they would share what JAX has compiled.
        def function(params, inputs):
            return compute(params, inputs)

        errors = checkify.float_checks
        fn = jax.jit(checkify.checkify(function, errors) if checks else function)
        state = {}

        def call(inputs):
            found = fn(state["params"], inputs)
            if checks:
                error, found = found
                error.throw()
            state["params"], outputs = jax.block_until_ready(found)
            return outputs

        return Guarded(
            call=call,
            good=[jnp.asarray(value) for value in found.inputs.values()],
            bad=[jnp.asarray(value) for value in with_nan(workload, found.inputs).values()],
            reset=lambda: state.update(params=start),
            on=on,
        )

    return {
        "plain": make(),
        "again": make(),
        "debug_nans": make(on=partial(jax.debug_nans, True)),
        "checkify float_checks": make(checks=True),
    }


def tensorflow_variants(workload):
    import tensorflow as tf

    def classify(params, x, y):
        h = x
        for i in range(3):
            h = tf.matmul(h, params[f"w{i}"]) + params[f"b{i}"]
            if i < 2:
                h = tf.nn.relu(h)
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, h))

    def recur(params, x, t):
        def step(i, h):
            return i + 1, tf.tanh(tf.matmul(x[i], params["w_in"]) + tf.matmul(h, params["w"]))

        _, h = tf.while_loop(lambda i, h: i < 64, step, (0, tf.zeros((32, 128))))
        return tf.reduce_mean((tf.matmul(h, params["w_out"]) - t) ** 2)

    def density(params, theta):
        mu, sigma = theta[0] + theta[1] * constants["covariate"], tf.exp(theta[2])
        z = (constants["obs"] - mu) / sigma
        return tf.reduce_sum(-0.5 * z**2 - tf.math.log(sigma) - 0.9189385332046727)

    def chain(params, x):
        y = x
        for i in range(50):
            y = tf.exp(-(y**2)) if i % 2 else tf.tanh(y) + x
            y = tf.cumsum(y)[::-1] if i % 3 else tf.linalg.matvec(m, y)
        return tf.reduce_sum(y)

    m = tf.eye(10) * 0.5
    found = arrays_of(workload)
    constants = {name: tf.constant(value) for name, value in found.constants.items()}
    loss_of = {mlp: classify, rnn: recur, logp: density, tiny: chain}[workload.build]

    @contextlib.contextmanager
    def check_numerics():
        tf.debugging.enable_check_numerics()
        try:
            yield
        finally:
            tf.debugging.disable_check_numerics()

    def make(on=contextlib.nullcontext):
        params = {name: tf.Variable(value) for name, value in found.params.items()}

        @tf.function(autograph=False)
        def function(*inputs):
            with tf.GradientTape() as tape:
                if not workload.trains:
                    tape.watch(inputs[0])
                loss = loss_of(params, *inputs)
            if not workload.trains:
                return [loss, tape.gradient(loss, inputs[0])]
            for p, g in zip(
                params.values(), tape.gradient(loss, list(params.values())), strict=True
            ):
                p.assign_sub(0.01 * g)
            return [loss]

        guarded = Guarded(
            call=lambda inputs: [o.numpy() for o in function(*inputs)],
            good=[tf.constant(value) for value in found.inputs.values()],
            bad=[tf.constant(value) for value in with_nan(workload, found.inputs).values()],
            reset=lambda: [p.assign(found.params[name]) for name, p in params.items()],
            on=on,
        )
        with guarded.on():  # what a function checks is settled when it is traced
            guarded.call(guarded.good)
        return guarded

    return {"plain": make(), "again": make(), "enable_check_numerics": make(check_numerics)}


TOOLS = {
    "pytensor": ("PyTensor, C", "pytensor", partial(pytensor_variants, "c", "cvm")),
    "numba": ("PyTensor, Numba", "numba", partial(pytensor_variants, "numba", "numba")),
    "pytensor-jax": ("PyTensor, JAX", "jax", partial(pytensor_variants, "jax", "jax")),
    "torch": ("PyTorch, eager", "torch", torch_variants),
    "jax": ("JAX, jit", "jax", jax_variants),
    "tensorflow": ("TensorFlow, tf.function", "tensorflow", tensorflow_variants),
}


# ---------------------------------------------------------------- measuring


def results(guarded):
    """Return what three calls return, in one vector: training steps include their updates."""
    guarded.reset()
    with guarded.on():
        found = [guarded.call(guarded.good) for _ in range(3)]
    return np.concatenate([np.ravel(np.asarray(o)) for outputs in found for o in outputs])


def complains(guarded):
    """Whether something is said of NaN when an input has one, by an error or on the terminal."""
    said = io.StringIO()
    guarded.reset()
    with guarded.on(), contextlib.redirect_stdout(said):
        try:
            guarded.call(guarded.bad)
        except Exception as error:  # each tool has a class of its own
            said.write(str(error))
    return re.search(r"\bnan\b", said.getvalue(), re.IGNORECASE) is not None


def check_results(name, found, expected):
    """Compare with what the first tool computed, in float32.

    Raises
    ------
    ArithmeticError
        When they are not the same mathematics.
    """
    expected = np.asarray(expected)
    error = np.max(np.abs(found - expected)) / np.max(np.abs(expected))
    if not error < 1e-3:
        raise ArithmeticError(
            f"{name} does not compute the same: it is off by {error:.2g}, relative to the largest "
            f"value.\nIt returned {found[:4]}..., and should have returned {expected[:4]}..."
        )


def compare(tool, title, rounds, budget, expected=None):
    """Measure one tool on one workload, in this process.

    Parameters
    ----------
    tool, title : str
        Keys of TOOLS and WORKLOADS.
    rounds : int
    budget : float
        Seconds for each variant in each round.
    expected : list of float or None
        What the calls should return; None takes what the plain variant returns.

    Returns
    -------
    dict
        ``ratios``: by variant, the median ratio, or None for a detector that is off;
        ``seconds``: of a plain call; ``results``: what the calls returned.

    Raises
    ------
    Skipped
        When the tool is not installed.
    """
    try:
        variants = TOOLS[tool][2](WORKLOADS[title])
    except ImportError as error:
        raise Skipped(str(error)) from None
    if expected is None:
        expected = results(variants["plain"])
    for name, guarded in variants.items():
        check_results(f"{tool}, {title}, {name}", results(guarded), expected)
    control = {"plain", "again"}
    off = {name for name, guarded in variants.items() if not complains(guarded)}
    if not control <= off:
        raise RuntimeError(f"{tool}, {title}: the unguarded function complains of NaN, too")
    timed = {n: v.variant() for n, v in variants.items() if n in control or n not in off}
    times = interleaved(timed, rounds, budget)
    off |= {name for name in timed if name not in control and not complains(variants[name])}
    names = [name for name in variants if name != "plain"]
    return {
        "ratios": {name: None if name in off - control else ratio(times, name) for name in names},
        "seconds": statistics.median(times["plain"]),
        "results": [float(value) for value in expected],
    }


def in_a_process(*arguments):
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(compare, *arguments).result()


def run(tools, titles, rounds, budget, do=in_a_process):
    """Measure, and say what is skipped and what fails.

    Returns
    -------
    rows : list of dict
        Of the table; a workload on which a tool failed is missing in its rows.
    failed : list of str
    """
    rows, skipped, expected, failed = {}, set(), {}, []
    for title in titles:
        for tool in tools:
            if tool in skipped:
                continue
            label = TOOLS[tool][0]
            try:
                found = do(tool, title, rounds, budget, expected.get(title))
            except Skipped as reason:
                print(f"{label}: skipped, {reason}", flush=True)
                skipped.add(tool)
                continue
            except Exception as error:  # of any tool; hours of measuring should not be lost
                failed.append(f"{title} {label}")
                print(f"{failed[-1]}: failed, {type(error).__name__}: {error}", flush=True)
                continue
            expected.setdefault(title, found["results"])
            rows.setdefault((label, "plain, ms"), {})[title] = found["seconds"] * 1e3
            for name, value in found["ratios"].items():
                rows.setdefault((label, name), {})[title] = value
            cells = ", ".join(f"{n} {cell(v)}" for n, v in found["ratios"].items())
            print(f"{title} {label}: {cells}", flush=True)
    order = {TOOLS[tool][0]: i for i, tool in enumerate(tools)}
    table = [
        {"tool": label, "guard": name, **rows[label, name]}
        for label, name in sorted(rows, key=lambda key: order[key[0]])
    ]
    return table, failed


def cell(value):
    return "off" if value is None else f"{value:.3g}" if value >= 10 else f"{value:.3f}"


def print_table(rows, titles):
    print(f"\n{'tool':<25}{'guard':<30}" + "".join(f"{t:>8}" for t in titles) + f"{'mean':>8}")
    for row in rows:
        cells = [cell(row[t]) if t in row else "-" for t in titles]
        values = [row.get(t) for t in titles]
        complete = None not in values and row["guard"] != "plain, ms"
        cells.append(cell(geometric_mean(values)) if complete else "-")
        print(f"{row['tool']:<25}{row['guard']:<30}" + "".join(f"{c:>8}" for c in cells))


def versions():
    found = {}
    for name in ("pytensor", "numpy", "numba", "torch", "jax", "tensorflow", "tensorflow-cpu"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--budget", type=float, default=0.05, help="seconds per variant and round")
    parser.add_argument("--tool", action="append", choices=list(TOOLS))
    parser.add_argument("--workload", action="append", choices=list(WORKLOADS))
    parser.add_argument("--json")
    args = parser.parse_args()
    os.environ.update(ONE_THREAD)
    titles = args.workload or list(WORKLOADS)
    print(", ".join(f"{name} {version}" for name, version in versions().items()))
    for title in titles:
        print(f"{title}: {WORKLOADS[title].title}")
    rows, failed = run(args.tool or list(TOOLS), titles, args.rounds, args.budget)
    print_table(rows, titles)
    if args.json:
        write_json(args.json, {"versions": versions(), "threads": ONE_THREAD, "rows": rows})
    if failed:
        parser.exit(1, f"failed: {', '.join(failed)}\n")


if __name__ == "__main__":
    main()
