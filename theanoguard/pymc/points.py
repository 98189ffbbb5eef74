"""The draws of a trace as points of a model's value variables, and the points where it diverged."""

import logging
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from pytensor import shared
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import graph_inputs
from pytensor.tensor import as_tensor
from pytensor.tensor.random.type import RandomType

from theanoguard._arguments import refuse
from theanoguard._pytensor import Mode, config
from theanoguard.guard.pausing import unguarded

Point = dict[str, Any]

DIVERGED = {"start": "divergence_point_source", "end": "divergence_point_dest"}
"""What PyMC's warning holds of a trajectory that diverged: its last sound point, and the next."""


def is_finite(point: Mapping[str, Any]) -> bool:
    """Return whether all values of a point are finite."""
    return all(np.isfinite(value).all() for value in point.values())


def compiled(model: Any, inputs: Sequence[Any], outputs: Sequence[Any], on_c: bool = True) -> Any:
    """Return a function without a guard, as PyMC compiles it.

    With `on_c` False, NumPy runs the same graph: to compile it for C takes longer than one call.
    """
    import pymc

    outputs = with_own_generators(outputs)
    mode = Mode(("cvm" if config.cxx else "vm") if on_c else "py", "fast_run")
    if not on_c:
        # NumPy computes an array at once, but a fused operation number by number.  The user's
        # operations may return a number, into which nothing can be written.
        mode = mode.excluding("fusion", "inplace")
    with unguarded(), model, _without_notice_of_blas():
        return pymc.compile(list(inputs), outputs, mode=mode, on_unused_input="ignore")


def with_own_generators(outputs: Sequence[Any]) -> list[Any]:
    """Return outputs that draw from copies of the model's generators, which PyMC seeds anew."""
    own = {
        v: shared(v.get_value(), name=v.name)
        for v in graph_inputs(outputs)
        if isinstance(v, SharedVariable) and isinstance(v.type, RandomType)
    }
    return clone_replace(list(outputs), own, rebuild_strict=False) if own else list(outputs)


@contextmanager
def _without_notice_of_blas() -> Iterator[None]:
    """Hide PyTensor's notices about a missing BLAS: a user of Numba does not ask for C code."""
    logger = logging.getLogger("pytensor.tensor.blas")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "PyTensor could not link to a BLAS")
            yield
    finally:
        logger.setLevel(level)


def of_points(model: Any, outputs: Sequence[Any]) -> Callable:
    """Return a function from a point, by names of value variables, to some values at it."""
    inputs = list(model.value_vars)
    function = compiled(model, inputs, outputs)
    return lambda point: function(*(point[v.name] for v in inputs))


def of_draws(model: Any, outputs: Sequence[Any]) -> Callable:
    """Return a function from a draw, by names of random variables, to some variables of a model."""
    given = {rv: rv.type(name=rv.name) for rv in model.free_RVs}
    made = clone_replace(list(outputs), given, rebuild_strict=False)
    function = compiled(model, list(given.values()), made)

    def compute(draw: Mapping[str, Any]) -> list[Any]:
        return function(*(np.asarray(draw[rv.name]).astype(rv.dtype) for rv in given))

    return compute


def pymc_of(function: str, model: Any) -> Any:
    """Return PyMC, for a function that takes a model of it.

    Raises ``ImportError``, ``TypeError``: if it is not installed, or if `model` is not a model.
    """
    try:
        import pymc
    except ImportError as error:
        raise ImportError(
            "theanoguard.pymc needs PyMC, which is not installed.\n"
            'Install it with: pip install "pymc>=6"'
        ) from error
    if not isinstance(model, pymc.Model):
        raise refuse(function, "model", model, "model must be a pymc.Model", TypeError)
    return pymc


def unconstraining(model: Any) -> Callable:
    """Return a function from a draw to the values of the value variables."""
    outputs = []
    for rv in model.free_RVs:
        transform = model.rvs_to_transforms[rv]
        made = rv if transform is None else transform.forward(rv, *rv.owner.inputs)
        outputs.append(getattr(made, "values", made))
    compute = of_draws(model, outputs)
    names = [model.rvs_to_values[rv].name for rv in model.free_RVs]
    return lambda draw: dict(zip(names, compute(draw), strict=True))


def prior_points(pymc: Any, model: Any, n: int, seed: int = 0) -> Iterator[Point]:
    """Yield points, by the names of the value variables, that are drawn from the prior.

    A variable that cannot be drawn, such as ``pm.Flat`` or one whose scale is negative at some
    draws, is moved around its starting value; one of whole numbers stays there.
    """
    mode = Mode("py", "fast_compile")

    def drawn(outputs: Iterable[Any], moved: Mapping[Any, Any]) -> Any:
        outputs = clone_replace(list(outputs), moved) if moved else list(outputs)
        return pymc.draw(with_own_generators(outputs), draws=n, random_seed=seed, mode=mode)

    with unguarded():
        values, moved = _values(pymc, model, None)
        try:
            draws = drawn(values.values(), moved)
        except Exception:  # (an operation of PyMC or of the user's may raise whatever it likes)
            values, moved = _values(pymc, model, lambda rv, moved: drawn([rv], moved))
            draws = drawn(values.values(), moved)
    for number in range(n):
        yield {name: one[number] for name, one in zip(values, draws, strict=True)}


def _values(pymc: Any, model: Any, draw: Callable | None) -> tuple[Point, dict[Any, Any]]:
    """Return the random values by name, and what stands for the variables that `draw` cannot draw.

    Without `draw`, all can be drawn.
    """
    values: Point = {}
    moved: dict[Any, Any] = {}
    for rv in model.free_RVs:
        transform, name = model.rvs_to_transforms.get(rv), model.rvs_to_values[rv].name
        try:
            if draw is not None:
                draw(rv, moved)
            made = rv if transform is None else transform.forward(rv, *rv.owner.inputs)
        except Exception:
            made = as_tensor(model.initial_point()[name])
            if made.dtype.startswith("float"):
                made += pymc.Uniform.dist(-1, 1, shape=made.type.shape)
            moved[rv] = made if transform is None else transform.backward(made, *rv.owner.inputs)
            if rv.type != moved[rv].type:
                moved[rv] = rv.type.filter_variable(moved[rv], allow_convert=True)
        values[name] = getattr(made, "values", made)
    return values, moved


@dataclass(frozen=True)
class Broken:
    """A trajectory that diverged."""

    key: tuple[str, int, int]  # group of the trace, chain and draw
    proposal: Any  # the draw: a point of the trajectory from before it broke
    #: `start`, `end`: the last sound point, and the point of too much energy.  None if the trace
    #: has none.
    start: Any = None
    end: Any = None

    @property
    def point(self) -> Any:
        """The nearest point known to where it broke."""
        return self.proposal if self.start is None else self.start


def broken_points(model: Any, stats: Any, chain: int, draw: int) -> dict[str, Any]:
    """Return the points that a trace holds of a trajectory that diverged, as far as it does."""
    found = {}
    for which, attribute in DIVERGED.items():
        name = f"divergence_{which}"
        if name in stats:
            found[which] = split(model, np.asarray(stats[name])[chain, draw])
        elif "warning" in stats:
            found[which] = _of_warning(np.asarray(stats["warning"])[chain, draw], attribute)
    return {which: point for which, point in found.items() if point is not None}


def _of_warning(warning: Any, attribute: str) -> Any:
    warning = warning.item() if isinstance(warning, np.ndarray) else warning
    return getattr(warning, attribute, None)


def is_known(stats: Any) -> Any:
    """Return of which draws a trace holds the points where their trajectories broke."""
    if "warning" in stats:
        known = [
            [_of_warning(warning, DIVERGED["start"]) is not None for warning in chain]
            for chain in np.asarray(stats["warning"])
        ]
        return np.array(known, bool)
    if "divergence_start" in stats:
        return ~np.isnan(np.asarray(stats["divergence_start"])).all(axis=-1)
    return np.zeros(np.shape(stats["diverging"]), bool)


def joined(model: Any, point: Mapping[str, Any]) -> np.ndarray:
    """Return the continuous values of a point as one vector."""
    return np.concatenate([np.ravel(point[v.name]) for v in model.continuous_value_vars])


def split(model: Any, vector: np.ndarray) -> dict[str, np.ndarray] | None:
    """Return the values in a vector by the names of the value variables, or None if it has none."""
    start = model.initial_point()
    sizes = [np.size(start[v.name]) for v in model.continuous_value_vars]
    if len(vector) != sum(sizes) or np.isnan(vector).all():
        return None
    parts = np.split(np.asarray(vector, float), np.cumsum(sizes)[:-1])
    return {
        v.name: part.reshape(np.shape(start[v.name]))
        for v, part in zip(model.continuous_value_vars, parts, strict=True)
    }
