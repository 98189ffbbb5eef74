"""The value that a formula has in exact arithmetic.

The modules of the families of operations (``scalars``, ``moving``, ``reductions``, ``products``,
...) say what the exact value of each operation is.  ``twin`` evaluates a graph with them.
"""

from theanoguard._exact import moving, products, reductions
from theanoguard._exact.result import Exact, Note
from theanoguard._exact.twin import evaluate, exact

__all__ = ["Exact", "Note", "evaluate", "exact", "moving", "products", "reductions"]
