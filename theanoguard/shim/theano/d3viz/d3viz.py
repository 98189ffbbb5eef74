"""Pages that show graphs."""

from pytensor.d3viz.d3viz import d3viz as d3viz
from pytensor.d3viz.d3viz import d3write as d3write
from pytensor.d3viz.d3viz import replace_patterns as replace_patterns
from pytensor.d3viz.d3viz import safe_json as safe_json
