"""The parameters of a random variable as the model gives them: PyMC computes its own from these.

The variables of a model are made inside of this module's wrapper, so :mod:`~theanoguard.pymc.modes`
does not hide its frames.
"""

import inspect
from collections.abc import Mapping
from functools import wraps
from typing import Any

from pytensor.graph.basic import Variable


def noting_parameters(original: Any) -> Any:
    """Wrap how a distribution makes a random variable; note the parameters that it is given."""
    create = original.__func__

    @wraps(create)
    def __new__(cls, name, *args, **kwargs):
        made = create(cls, name, *args, **kwargs)
        names = inspect.signature(cls.dist).parameters
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        made.tag.given_parameters = {
            name: given[name] if isinstance(given[name], Variable) else None
            for name in names
            if given.get(name) is not None
        }
        return made

    return staticmethod(__new__)


def given_parameters(variable: Any) -> Mapping[str, Any]:
    """Return the parameters by their names, and None for each number.

    There are none if theanoguard was imported after the model was built.
    """
    return getattr(variable.tag, "given_parameters", {})
