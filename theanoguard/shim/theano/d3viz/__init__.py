"""Pages that show graphs."""

from . import formatting as formatting
from .d3viz import d3viz as d3viz
from .d3viz import d3write as d3write
