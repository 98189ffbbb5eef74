"""What does each operation of my function compute?

``MonitorMode`` calls your function after each node, in the order in which the nodes run.  This one
keeps the largest magnitude of each node.  The second one, ``DetectNan``, reports nodes with NaN.
"""

import numpy as np
import pytensor
import pytensor.tensor as pt

from theanoguard.monitor import DetectNan, MonitorMode

largest = {}


def note_largest(fgraph, i, node, fn):
    """Keep the largest magnitude of each node's first output."""
    value = np.asarray(fn.outputs[0][0])
    if value.dtype.kind == "f" and value.size:
        largest[f"{i} {node.op}"] = float(np.abs(value).max())


x = pt.dvector("x")
y = pt.exp(x) + x**2
mode = MonitorMode(post_func=note_largest).excluding("fusion")
f = pytensor.function([x], y.sum(), mode=mode)
f(np.array([1.0, 2.0, 10.0]))
print("the largest magnitude of each node:")
for name, magnitude in largest.items():
    print(f"  {name}: {magnitude:.6g}")

g = pytensor.function([x], pt.log(x).sum(), mode=MonitorMode(post_func=DetectNan()))
print(g(np.array([1.0, -1.0])))
