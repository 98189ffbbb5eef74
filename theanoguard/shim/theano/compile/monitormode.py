"""The mode that calls functions of the user's around every node."""

import numpy as np

from theanoguard.view.debugprint import debugprint


def detect_nan(i, node, fn):
    """Print a node that has computed NaN, with its inputs and outputs."""
    for output in fn.outputs:
        value = output[0]
        if isinstance(value, np.ndarray | np.generic) and np.isnan(value).any():
            print("*** NaN detected ***")
            debugprint(node)
            print(f"Inputs : {[cell[0] for cell in fn.inputs]}")
            print(f"Outputs: {[cell[0] for cell in fn.outputs]}")
            break
