"""Theano's ``theano.sparse.sandbox.sp``."""

from ..basic import ColScaleCSC as ColScaleCSC
from ..basic import Diag as Diag
from ..basic import EnsureSortedIndices as EnsureSortedIndices
from ..basic import Remove0 as Remove0
from ..basic import RowScaleCSC as RowScaleCSC
from ..basic import SpSum as SpSum
from ..basic import SquareDiagonal as SquareDiagonal
from ..basic import clean as clean
from ..basic import col_scale as col_scale
from ..basic import diag as diag
from ..basic import ensure_sorted_indices as ensure_sorted_indices
from ..basic import remove0 as remove0
from ..basic import row_scale as row_scale
from ..basic import sp_sum as sp_sum
from ..basic import square_diagonal as square_diagonal
