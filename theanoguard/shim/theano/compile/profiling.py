"""Profiles of compiled functions."""

from pytensor.compile.debug.profiling import ProfileStats as ProfileStats
from pytensor.compile.debug.profiling import print_global_stats as print_global_stats
from pytensor.compile.debug.profiling import register_profiler_printer as register_profiler_printer
