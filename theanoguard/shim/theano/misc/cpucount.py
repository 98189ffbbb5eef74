"""The number of processors."""

import os


def cpuCount():
    """Return how many processors the machine has; -1 where that cannot be found out."""
    return os.cpu_count() or -1
