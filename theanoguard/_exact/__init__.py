"""The value that a formula has in exact arithmetic.

The modules of the families of operations (``scalars``, ``moving``, ``reductions``, ``products``,
...) say what the exact value of each operation is.  ``twin`` evaluates a graph with them.
"""

# (These modules register their rules.)
from theanoguard._exact import linear_algebra, moving, products, reductions  # noqa: F401
from theanoguard._exact.result import Exact, Note
from theanoguard._exact.twin import evaluate, exact

__all__ = ["Exact", "Note", "evaluate", "exact"]
