"""theanoguard finds bad numbers inside compiled PyTensor graphs and explains them.

The public names are listed in ``__init__.pyi``.  A name loads its module when it is first used, so
that the command line and the pytest plugin start without PyTensor.
"""

import lazy_loader

from theanoguard import _hooks

__version__ = "0.1.0.dev0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

_hooks.start()
