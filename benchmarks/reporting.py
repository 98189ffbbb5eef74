"""What the benchmarks share in telling what they measured."""

import json
import os
import tempfile

import numpy as np


def geometric_mean(values):
    return float(np.exp(np.mean(np.log(list(values)))))


def write_json(path, data):
    """Write atomically, so that a reader never sees half a file."""
    folder = os.path.dirname(os.path.abspath(path))
    with tempfile.NamedTemporaryFile("w", dir=folder, delete=False, suffix=".json") as file:
        json.dump(data, file, indent=1)
    os.replace(file.name, path)
