"""Functions whose value and gradient are finite at the edge of their domain."""

import lazy_loader

# Loaded when first used: ``explain`` needs the patterns, and ``rewriting`` needs ``explain``.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
