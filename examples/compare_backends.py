"""Does my model give the same numbers on another backend, or in float32?

``compare`` runs one graph in several modes and names the first operation whose results differ.  In
this model an exponential overflows in float32.  If JAX is not installed, it is left out.
"""

import numpy as np
import pytensor
import pytensor.tensor as pt

from theanoguard import compare

x = pt.dvector("x")
w = pytensor.shared(np.array([1.0, 10.0, 90.0]), name="w")
p = 1 / (1 + pt.exp(-x * w))
loss = -pt.log(p).sum()
loss.name = "loss"
gradient = pytensor.grad(loss, w)
gradient.name = "gradient"

found = compare([loss, gradient], {x: np.array([-1.0, 0.5, -1.0])}, modes=["c", "jax", "float32"])
print(found)

print("\nThe loss in each mode:")
print(f"  py       {found.reference[0]}")
for name, result in found.modes.items():
    if result.not_run is None:
        print(f"  {name:8} {result.values[0]}")
