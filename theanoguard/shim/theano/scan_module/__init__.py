"""Loops: ``scan``, and ``map``, ``reduce``, ``foldl`` and ``foldr`` on top of it."""

from . import scan_op as scan_op
from . import scan_opt as scan_opt
from . import scan_utils as scan_utils
from .scan import scan as scan
from .scan_checkpoints import scan_checkpoints as scan_checkpoints
from .scan_utils import clone as clone
from .scan_utils import until as until
from .scan_views import foldl as foldl
from .scan_views import foldr as foldr
from .scan_views import map as map
from .scan_views import reduce as reduce
