"""Guarding a run of a sampler: :class:`guarding`, and what PyMC is patched with.

PyMC hands a model to other samplers, which compile it by themselves and take no mode.  A guard that
is asked for, by the mode or by a block, is put into them.
"""

import importlib.util
import inspect
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from typing import Any

import numpy as np
from pytensor.graph.traversal import ancestors

from theanoguard._context import setting
from theanoguard._patching import Patch, Wrapped, applied, apply
from theanoguard._provenance import meaning
from theanoguard._steps import attempt, failures
from theanoguard.guard import GuardError, GuardMode, every_function
from theanoguard.guard.pausing import unguarded
from theanoguard.pymc import with_jax, with_nutpie
from theanoguard.pymc.modes import (
    BUILDING,
    anything,
    bad_start_value,
    minimizing,
    model_lines,
    rejecting,
    settings_for_pymc,
    spoils_this_run,
)
from theanoguard.pymc.parameters import OF_OTHERS, misfits, noting_parameters
from theanoguard.pymc.points import DIVERGED
from theanoguard.pymc.records import SamplingError, Where
from theanoguard.pymc.rejections import warn_of
from theanoguard.pymc.watch import (
    Ending,
    Watch,
    bad_start,
    existing,
    guard_of_linker,
    left_out,
    logger,
)

_asked: ContextVar[GuardMode | None] = ContextVar("theanoguard_pymc_guard", default=None)


def guard_of() -> GuardMode | None:
    """Return the guard that holds for a sampler that is started here, or None."""
    if (guard := _asked.get()) is not None:
        return guard
    for run in reversed(every_function.guarding.running):
        return run.guard_for_sampler()
    return None


@contextmanager
def _samplers_patched(*names: str) -> Iterator[None]:
    """Put the guard into the samplers of these names, as far as their modules are loaded."""
    with ExitStack() as stack:
        if "nutpie" in names and (compiling := sys.modules.get("nutpie.compile_pymc")):
            patches = with_nutpie.patches(compiling, sys.modules["nutpie"], guard_of)
            stack.enter_context(applied(existing(patches)))
        if names != ("nutpie",) and (module := sys.modules.get("pymc.sampling.jax")):
            stack.enter_context(applied(existing(with_jax.patches(module, guard_of))))
        yield


MODULES = {
    "nutpie": ("nutpie", "nutpie.compile_pymc"),
    "numpyro": ("pymc.sampling.jax",),
    "blackjax": ("pymc.sampling.jax",),
}
"""By the name of a sampler, what is patched for it."""


@contextmanager
def _asked_by(mode: Any) -> Iterator[None]:
    """Hold a guard for what is started in the block, if the mode that was given is one."""
    token = _asked.set(mode) if isinstance(mode, GuardMode) else None
    try:
        yield
    finally:
        if token is not None:
            _asked.reset(token)


def _external(original: Wrapped) -> Wrapped:
    signature = inspect.signature(original)

    @wraps(original)
    def _sample_external_nuts(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs).arguments
        with _asked_by((given.get("compile_kwargs") or {}).get("mode")):
            sampler = given.get("sampler")
            if guard_of() is None or sampler not in MODULES:
                return original(*args, **kwargs)
            for name in MODULES[sampler]:
                importlib.import_module(name)
            with _samplers_patched(sampler):
                return original(*args, **kwargs)

    return _sample_external_nuts


def _starting(original: Wrapped) -> Wrapped:
    @wraps(original)
    def init_nuts(*args: Any, **kwargs: Any) -> Any:
        with _asked_by((kwargs.get("compile_kwargs") or {}).get("mode")):
            return original(*args, **kwargs)

    return init_nuts


def _jittering(original: Wrapped) -> Wrapped:
    """Let PyMC replace the starting points that it rejects, and name the chain of a bad one."""
    signature = inspect.signature(original)

    @wraps(original)
    def _init_jitter(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs)
        if (logp_fn := given.arguments.get("logp_fn")) is not None:
            given.arguments["logp_fn"] = _at_start(logp_fn, given.arguments["model"])
        with rejecting(bad_start_value):
            return original(*given.args, **given.kwargs)

    return _init_jitter


def _at_start(logp_fn: Wrapped, model: Any) -> Wrapped:
    """Return the log-density of starting points; its errors say that the chain starts there."""
    chain = 0  # a chain has its starting point when the log-density is finite

    @wraps(logp_fn)
    def logp(point: Any) -> Any:
        nonlocal chain
        try:
            value = logp_fn(point)
        except GuardError as error:
            # A bad starting value or constant is best explained in terms of the model.
            is_given = error.event.role in ("input", "constant")
            ours = bad_start(model, [point], "PyMC", chain) if is_given else None
            where = Where("PyMC", chain, at_start=True)
            raise ours or SamplingError(error.event, error.explanation, where) from None
        chain += bool(np.isfinite(value))
        return value

    return logp


def _checked(original: Wrapped) -> Wrapped:
    """Explain the starting point that PyMC refuses, where a guard is asked for."""

    @wraps(original)
    def check_start_vals(self: Any, start: Any, *args: Any, **kwargs: Any) -> Any:
        refused = importlib.import_module("pymc.exceptions").SamplingError
        try:
            return original(self, start, *args, **kwargs)
        except (refused, GuardError) as error:
            if guard_of() is None:
                raise
            points = [start] if isinstance(start, dict) else start
            ours = bad_start(self, points, with_jax.running_sampler() or "PyMC")
            if ours is None:
                raise
            # (The guard's own error says less of the same.)
            raise ours from (None if isinstance(error, GuardError) else error)

    return check_start_vals


def _fitting(original: Wrapped) -> Wrapped:
    """Tell the guard that the functions that run are of the negative log-density."""

    @wraps(original)
    def _fit_MAP(*args: Any, **kwargs: Any) -> Any:
        with minimizing():
            return original(*args, **kwargs)

    return _fit_MAP


@dataclass(frozen=True)
class Told:
    """A point that a step method has rejected, as the process of its chain sends it."""

    joined: Any  # the values of the variables of the step method
    others: dict[str, np.ndarray]  # the values of the other variables
    logp: float
    gradient: np.ndarray  # by `joined`; empty if the step method computes none
    floor: float  # the log-density below which the step method rejects a point for its energy

    def ending(self, where: Where) -> Ending:
        """Return what the :class:`~theanoguard.pymc.watch.Watch` judges."""
        rmap = importlib.import_module("pymc.blocking").DictToArrayBijection.rmap
        gradient = rmap(self.joined._replace(data=self.gradient)) if self.gradient.size else None
        return Ending({**self.others, **rmap(self.joined)}, self.logp, gradient, where, self.floor)


class RejectedPoint(RuntimeError):
    """What PyMC's warning about a trajectory holds in ``exec_info``: the point that ended it."""

    def __init__(self, message: str, told: Told) -> None:
        super().__init__(message, told)
        self.told = told


class Stats(dict[str, Any]):
    """Statistics of a step, with the points that it has rejected."""

    told: tuple[Told, ...] = ()


def _is_guarded(step: Any) -> bool:
    if "_theanoguard" not in step.__dict__:
        step._theanoguard = _guard_in(step) is not None
    return bool(step._theanoguard)


def _trajectory(original: Wrapped) -> Wrapped:
    """Let the sampler reject points, and note in its warning the one that ended a trajectory."""

    @wraps(original)
    def _hamiltonian_step(self: Any, start: Any, *args: Any, **kwargs: Any) -> Any:
        if not _is_guarded(self):
            return original(self, start, *args, **kwargs)
        with rejecting(anything):
            step = original(self, start, *args, **kwargs)
        if np.isneginf(step.end.energy):  # a log-density of +inf, which the sampler accepts
            end = start.q._replace(data=np.asarray(step.end.q.data))
            self.integrator.compute_state(end, start.p)
        info = step.divergence_info
        state = None if info is None else info.state_div
        if state is None or np.isfinite([state.model_logp, *state.q_grad]).all():
            return step
        others = self._logp_dlogp_func.get_extra_values()
        floor = -(start.energy + self.Emax)
        told = Told(state.q, others, float(state.model_logp), state.q_grad, floor)
        noted = RejectedPoint(info.message, told)
        return step._replace(divergence_info=info._replace(exec_info=noted))

    return _hamiltonian_step


def _proposing(original: Wrapped) -> Wrapped:
    """Let a Metropolis sampler reject points, and note the bad ones in its statistics."""

    @wraps(original)
    def astep(self: Any, q0: Any, *args: Any, **kwargs: Any) -> Any:
        if not _is_guarded(self):
            return original(self, q0, *args, **kwargs)
        delta_logp, told = self.delta_logp, []

        def noting(q: Any, before: Any) -> Any:
            value = delta_logp(q, before)
            if not np.isfinite(value) and not np.isneginf(value):
                others = {name: shared.get_value() for name, shared in self.shared.items()}
                joined = q0._replace(data=np.array(q))
                told.append(Told(joined, others, float(value), np.empty(0), -np.inf))
            return value

        self.delta_logp = noting
        try:
            with rejecting(anything):
                point, stats = original(self, q0, *args, **kwargs)
        finally:
            self.delta_logp = delta_logp
        if told:
            stats = [Stats(stats[0]), *stats[1:]]
            stats[0].told = tuple(told[:1])
        return point, stats

    return astep


def _guard_in(step: Any) -> GuardMode | None:
    """Return the guard for PyMC in a step method, or None."""
    function = getattr(getattr(step, "_logp_dlogp_func", None), "_pytensor_function", None)
    function = function or getattr(step, "delta_logp", None)
    if function is None:
        return None
    linker = function.maker.linker  # (PyTensor may have put another mode around it)
    if getattr(getattr(linker, "policy", None), "judge", None) is not spoils_this_run:
        return None
    return guard_of_linker(linker, function.maker.mode.provided_optimizer)


def _tuning(original: Wrapped) -> Wrapped:
    """Let a sampler reject points as long as it is tuned."""

    @wraps(original)
    def astep(self: Any, *args: Any, **kwargs: Any) -> Any:
        with rejecting(anything) if self.tune else nullcontext():
            return original(self, *args, **kwargs)

    return astep


def _mutating(original: Wrapped) -> Wrapped:
    """Let the kernel of a sequential Monte Carlo sampler reject proposals."""

    @wraps(original)
    def mutate(self: Any) -> None:
        with rejecting(anything):
            original(self)

    return mutate


_watch: ContextVar[Watch | None] = ContextVar("theanoguard_pymc_watch", default=None)


@contextmanager
def _watching(step: Any, model: Any, draws: Any, tune: Any, chains: Any) -> Iterator[None]:
    """Judge the points that end trajectories in the block; sum them up at its end."""
    methods = getattr(step, "methods", [step])
    guard = next((found for method in methods if (found := _guard_in(method))), None)
    if guard is None:
        yield
        return
    is_hamiltonian = any(hasattr(method, "integrator") for method in methods)
    unit = "trajectories" if is_hamiltonian else "steps"
    watch = Watch("PyMC", model, guard, None, draws - tune, tune, chains, unit)
    with setting(_watch, watch):
        yield
    warn_of(watch)


def _error_of(
    stats: Iterable[Any], chain: int | None, draw: int, tune: int
) -> SamplingError | None:
    """Judge the points that the statistics of a draw tell; return the error, if there is one."""
    if (watch := _watch.get()) is None:
        return None
    for one in stats:
        warning = one.get("warning")
        noted = getattr(warning, "exec_info", None)
        told = getattr(one, "told", ())
        if isinstance(noted, RejectedPoint):
            told, warning.exec_info = (noted.told,), None  # PyMC keeps the warnings of all draws
        for point in told:
            ending = watch.attempt(
                "a rejected point", None, point.ending, _place(chain, draw, tune)
            )
            error = None if ending is None else watch.judge(ending)
            if error is not None:
                return error
    return None


def _place(chain: int | None, draw: int, tune: int) -> Where:
    tuning = draw < tune
    return Where("PyMC", chain, draw if tuning else draw - tune, tuning)


def _placed(error: GuardError, where: Where) -> SamplingError:
    return SamplingError(error.event, error.explanation, where)


def _one_chain(original: Wrapped) -> Wrapped:
    """Name the chain and the draw in an error of PyMC's own sampler."""

    @wraps(original)
    def _iter_sample(*args: Any, **kwargs: Any) -> Iterator[Any]:
        chain, tune, draw = kwargs.get("chain"), kwargs.get("tune", 0), 0
        try:
            for stats in original(*args, **kwargs):
                if (ours := _error_of(stats, chain, draw, tune)) is not None:
                    raise ours
                draw += 1
                yield stats
        except SamplingError:
            raise
        except GuardError as error:
            raise _placed(error, _place(chain, draw, tune)) from None

    return _iter_sample


def _keeping(original: Wrapped) -> Wrapped:
    """Keep the points at which trajectories diverged, as numbers that every format can store."""

    @wraps(original)
    def drop_warning_stat(idata: Any) -> Any:
        if guard_of() is not None:
            for name in ("sample_stats", "warmup_sample_stats"):
                if name in idata.children and "warning" in idata[name]:
                    with failures() as failed:
                        told = idata[name]["warning"]
                        points: dict[str, Any] = attempt(
                            "the points of the divergences", {}, _diverged, told
                        )
                    if failed:
                        logger.warning("%s", left_out(failed))
                    idata[name].dataset = idata[name].to_dataset().assign(points)
        return original(idata)

    return drop_warning_stat


def _diverged(told: Any) -> dict[str, Any]:
    """Return the arrays of the points in PyMC's warnings, under nutpie's names for them."""
    to_vector = importlib.import_module("pymc.blocking").DictToArrayBijection.map
    made = {}
    for which, attribute in DIVERGED.items():
        known = {
            at[:2]: to_vector(point).data
            for at, warning in np.ndenumerate(told.values)
            if (point := getattr(warning, attribute, None)) is not None
        }
        if known:
            size = len(next(iter(known.values())))
            array = np.full((*told.shape[:2], size), np.nan)
            for at, vector in known.items():
                array[at] = vector
            made[f"divergence_{which}"] = (("chain", "draw", "unconstrained_parameter"), array)
    return made


def _many(original: Wrapped) -> Wrapped:
    @wraps(original)
    def _sample_many(*args: Any, **kwargs: Any) -> Any:
        with _watching(*(kwargs.get(n) for n in WATCHED)):
            return original(*args, **kwargs)

    return _sample_many


WATCHED = ("step", "model", "draws", "tune", "chains")


def _chains(original: Wrapped) -> Wrapped:
    """Raise the guard's own error where PyMC raises that a process has failed."""

    @wraps(original)
    def _mp_sample(*args: Any, **kwargs: Any) -> Any:
        drawn: Counter[int | None] = Counter()
        tune = kwargs.get("tune", 0)

        def counted(recv: Any) -> Any:
            receive = recv.__func__

            def recv_draw(*args: Any, **kwargs: Any) -> Any:
                result = receive(*args, **kwargs)
                chain = result[0].chain
                if (ours := _error_of(result[-1], chain, drawn[chain], tune)) is not None:
                    raise ours
                drawn[chain] += 1
                return result

            return staticmethod(recv_draw)

        parallel = importlib.import_module("pymc.sampling.parallel")
        try:
            with (
                _watching(*(kwargs.get(n) for n in WATCHED)),
                applied([Patch(parallel.ProcessAdapter, "recv_draw", counted)]),
            ):
                return original(*args, **kwargs)
        except parallel.ParallelSamplingError as error:
            if not isinstance(error.__cause__, GuardError):
                raise
            chain = getattr(error, "_chain", None)
            raise _placed(error.__cause__, _place(chain, drawn[chain], tune)) from None

    return _mp_sample


def _with_lines(original: Wrapped) -> Wrapped:
    @wraps(original)
    def building(*args: Any, **kwargs: Any) -> Any:
        with model_lines():
            return original(*args, **kwargs)

    return building


def _named(original: Wrapped) -> Wrapped:
    """Name the value of a random variable like the variable, not as PyMC names it on the way."""

    @wraps(original)
    def logp(self: Any, *args: Any, **kwargs: Any) -> Any:
        names: dict[str, str | None] = {}
        for rv, value in self.rvs_to_values.items():
            transform = getattr(self.rvs_to_transforms.get(rv), "name", None)
            if transform is not None:
                names |= {
                    f"{value.name}_{transform}": rv.name,
                    f"{value.name}_{transform}_jacobian": None,
                }
        try:
            with meaning(names):
                result = original(self, *args, **kwargs)
        except ValueError as error:
            for text in misfits(self).values():
                error.add_note(text)
            raise
        for variable in ancestors(result if isinstance(result, list) else [result]):
            variable.name = names.get(variable.name, variable.name)
        return result

    return logp


def _unguarded(original: Wrapped) -> Wrapped:
    """Compile without a guard what computes the starting point, which is checked as a whole."""

    @wraps(original)
    def make_initial_point_fn(*args: Any, **kwargs: Any) -> Any:
        with unguarded():
            return original(*args, **kwargs)

    return make_initial_point_fn


def _joining(original: Wrapped) -> Wrapped:
    """Note in the vector that PyMC joins variables to how they are called."""

    @wraps(original)
    def join_nonshared_inputs(
        point: Any, outputs: Any, inputs: Any, *args: Any, **kwargs: Any
    ) -> Any:
        result = original(point, outputs, inputs, *args, **kwargs)
        result[1].tag.joined_from = [(v.name, np.shape(point[v.name])) for v in inputs]
        if len(inputs) == 1:  # then nothing is taken out of the vector
            result[1].name = inputs[0].name
        return result

    return join_nonshared_inputs


def _two_points(original: Wrapped) -> Wrapped:
    """Note how variables are joined in the second point that Metropolis compares as well."""

    @wraps(original)
    def delta_logp(*args: Any, **kwargs: Any) -> Any:
        function = original(*args, **kwargs)
        points = function.maker.fgraph.inputs
        parts = next((p for v in points if (p := getattr(v.tag, "joined_from", None))), ())
        for point in points:
            if point.name == "inarray1" and parts:
                point.tag.joined_from = parts
                if len(parts) == 1:
                    point.name = parts[0][0]
        return function

    return delta_logp


def patches() -> list[Patch]:
    """Return what PyMC is patched with as long as it and theanoguard are loaded.

    It changes no result, and does nothing for a sampler where no guard is asked for.
    """
    mcmc = importlib.import_module("pymc.sampling.mcmc")
    hmc = importlib.import_module("pymc.step_methods.hmc")
    model = importlib.import_module("pymc.model.core").Model
    distribution = importlib.import_module("pymc.distributions.distribution").Distribution
    distributions = importlib.import_module("pymc.distributions")
    made_of_others = [getattr(distributions, name, None) for name in OF_OTHERS]
    metropolis = importlib.import_module("pymc.step_methods.metropolis")
    slicer = importlib.import_module("pymc.step_methods.slicer")
    kernels = importlib.import_module("pymc.smc.kernels")
    joining = ["model.core", "smc.kernels", "step_methods.metropolis", "step_methods.slicer"]
    fitting = []
    if importlib.util.find_spec("pymc.tuning.scipy_interface"):  # not in PyMC 6.0
        joining.append("tuning.scipy_interface")
        fitting.append(importlib.import_module("pymc.tuning.starting"))
    starting = [importlib.import_module(f"pymc.{name}") for name in ("initial_point", "model.core")]
    return [
        *(Patch(model, name, _with_lines) for name in BUILDING),
        Patch(model, "logp", _named),
        Patch(distribution, "__new__", noting_parameters),
        *(Patch(kind, "__new__", noting_parameters) for kind in made_of_others if kind),
        *(Patch(module, "make_initial_point_fn", _unguarded) for module in starting),
        *(
            Patch(importlib.import_module(f"pymc.{name}"), "join_nonshared_inputs", _joining)
            for name in joining
        ),
        Patch(metropolis, "delta_logp", _two_points),
        Patch(mcmc, "_sample_external_nuts", _external),
        Patch(mcmc, "_iter_sample", _one_chain),
        Patch(mcmc, "_sample_many", _many),
        Patch(mcmc, "drop_warning_stat", _keeping),
        Patch(mcmc, "_mp_sample", _chains),
        Patch(mcmc, "init_nuts", _starting),
        Patch(mcmc, "_init_jitter", _jittering),
        Patch(model, "check_start_vals", _checked),
        *(Patch(module, "_fit_MAP", _fitting) for module in fitting),
        *(Patch(step, "_hamiltonian_step", _trajectory) for step in (hmc.NUTS, hmc.HamiltonianMC)),
        *(
            Patch(step, "astep", _proposing)
            for step in (metropolis.Metropolis, metropolis.DEMetropolisZ)
        ),
        *(
            Patch(step, "astep", _tuning)
            for step in (
                *(metropolis.BinaryMetropolis, metropolis.BinaryGibbsMetropolis),
                *(metropolis.CategoricalGibbsMetropolis, metropolis.DEMetropolis, slicer.Slice),
            )
        ),
        *(Patch(kernel, "mutate", _mutating) for kernel in (kernels.IMH, kernels.MH)),
    ]


_installed: list[Callable[[], None]] = []


def install() -> None:
    """Patch PyMC, if that has not been done.

    PyMC offers no hook in its samplers.  Where a release lacks a name that is replaced, its part of
    a run is not guarded, and a warning says so once.
    """
    if not _installed:
        _installed.append(apply(existing(patches())))


class guarding(every_function.guarding):
    """Guard every function that PyMC compiles, and every sampler.

    PyTensor's functions keep their backend.  nutpie, NumPyro and BlackJAX compile the log-density
    themselves.  The guard stops them if the log-density or its gradient is bad, and explains the
    point.

    Parameters
    ----------
    **settings
        Arguments of :class:`~theanoguard.GuardMode`, in addition to the settings of :func:`mode`.

    Raises
    ------
    TypeError, ValueError
        As :class:`~theanoguard.guarding`.

    Examples
    --------
    .. code-block:: python

        with model, theanoguard.pymc.guarding():
            trace = pymc.sample()
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings_for_pymc(settings))
        self._stack: ExitStack | None = None

    def start(self) -> "guarding":
        """Guard functions and samplers until :meth:`stop`."""
        super().start()
        if self._stack is None:
            self._stack = ExitStack()
            self._stack.callback(apply(existing(patches())))
            self._stack.enter_context(_samplers_patched(*MODULES))
            self._stack.enter_context(model_lines())
        return self

    def stop(self) -> None:
        """Compile and sample as before."""
        super().stop()
        if self._stack is not None:
            self._stack.close()
            self._stack = None
