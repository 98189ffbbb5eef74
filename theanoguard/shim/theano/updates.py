"""Updates of shared variables."""

from collections import OrderedDict

from pytensor.compile.sharedvalue import SharedVariable


class OrderedUpdates(OrderedDict):
    """New values by shared variable; two of them are joined by ``+``.

    Raises
    ------
    TypeError
        If a key is no shared variable.
    KeyError
        If joining would give one variable two different updates.
    """

    def __init__(self, *args, **kwargs):
        super().__init__()
        for key, value in OrderedDict(*args, **kwargs).items():
            self[key] = value

    def __setitem__(self, key, value):
        if not isinstance(key, SharedVariable):
            raise TypeError("OrderedUpdates keys must inherit from SharedVariable", key)
        super().__setitem__(key, value)

    def update(self, other=None):
        """Add updates of other variables, or the same ones."""
        for key, value in OrderedDict(other or {}).items():
            if key in self and self[key] is not value:
                raise KeyError("Collision", key)
            self[key] = value

    def __add__(self, other):
        joined = OrderedUpdates(self)
        joined.update(other)
        return joined

    def __radd__(self, other):
        joined = OrderedUpdates(other)
        joined.update(self)
        return joined
