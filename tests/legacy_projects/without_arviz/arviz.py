"""What pymc3 imports of ArviZ, whose releases of that time are not for the NumPy of today."""

from types import SimpleNamespace

plots = stats = SimpleNamespace(__all__=[])


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)

    def function(*args, **kwargs):
        raise NotImplementedError(f"arviz.{name} is not here.\nUse the samples themselves.")

    return function
