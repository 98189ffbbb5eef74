"""theanoguard finds bad numbers inside compiled PyTensor graphs and explains them.

The public names are listed in ``__init__.pyi``.  A name loads its module when it is first used, so
that the command line and the pytest plugin start without PyTensor.
"""

import lazy_loader

from theanoguard import _hooks, _releases
from theanoguard._arguments import did_you_mean

__version__ = "0.1.0.dev0"

_load, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> object:
    try:
        return _load(name)
    except ImportError as error:
        raise _releases.explained(error) from error
    except AttributeError:
        raise AttributeError(
            f"theanoguard has no {name!r}{did_you_mean(name, __all__)}", name=name
        ) from None


_hooks.start()
