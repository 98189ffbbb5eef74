"""The models that a program builds, kept until they are checked."""

import weakref
from collections.abc import Callable
from functools import wraps
from typing import Any

from theanoguard._patching import Patch, Wrapped, apply

STARTS = (
    *("sample", "fit", "find_MAP", "sample_smc", "sample_prior_predictive"),
    *("sample_posterior_predictive", "draw"),
)
"""PyMC's functions that a model is built for."""


class Sampled(BaseException):
    """The program samples a model."""


class BuiltModels:
    """Keeps the models whose blocks a program has entered.

    - `stops`: whether the program is stopped where it samples the first one.
    - `models`: those that are not part of another one.
    - Raises ``ValueError``: if PyMC is not installed.
    """

    def __init__(self, stops: bool) -> None:
        try:
            import pymc
        except ImportError as error:
            raise ValueError(
                'PyMC is not installed.\nInstall it with: pip install "pymc>=6"'
            ) from error
        self.models: list[Any] = []
        self._known: weakref.WeakSet[Any] = weakref.WeakSet()
        self._patches = [Patch(pymc.Model, "__exit__", self._noting)]
        if stops:
            self._patches += [Patch(pymc, name, _stopping) for name in STARTS]

    def start(self) -> Callable[[], None]:
        """Begin; return the function that ends it."""
        return apply(self._patches)

    def taken(self) -> list[Any]:
        """Return the models with random variables that were built since the last call.

        A model is returned once: the check and the sampler enter its block again.
        """
        found, self.models = self.models, []
        return [model for model in found if model.basic_RVs]

    def _noting(self, original: Wrapped) -> Wrapped:
        @wraps(original)
        def __exit__(model: Any, *args: Any) -> Any:
            if model.isroot and model not in self._known:
                self._known.add(model)
                self.models.append(model)
            return original(model, *args)

        return __exit__


def _stopping(original: Wrapped) -> Wrapped:
    @wraps(original)
    def stopped(*args: Any, **kwargs: Any) -> Any:
        raise Sampled

    return stopped
