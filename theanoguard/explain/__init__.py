"""Explain a bad value: where it came from, and what to do."""

import lazy_loader

# Loaded when first used: a program in which nothing goes wrong has nothing to explain.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
