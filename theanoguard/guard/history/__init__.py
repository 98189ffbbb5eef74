"""The record of the calls of a function, and what it says of the call that failed.

Few functions keep one, so it is loaded when the first of them is compiled.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
