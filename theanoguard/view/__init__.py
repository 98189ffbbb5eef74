"""Show graphs: as text, as pictures, and with the time that each node takes."""

import lazy_loader

# Loaded when first used: the view of a graph needs little of what shows it.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
