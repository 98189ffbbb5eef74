"""My loss was fine, and then it was NaN.  Where did the gradient explode?

A small network is trained on batches.  One batch has a row in other units, so its gradient is much
larger than usual.  ``GradientGuard`` compares the norm with the median of the last norms, and stops
the call before the weights change.
"""

import numpy as np
import pytensor
import pytensor.tensor as pt

from theanoguard.training import GradientError, GradientGuard

rng = np.random.default_rng(0)
x, y = pt.dmatrix("x"), pt.dvector("y")
hidden = pytensor.shared(rng.normal(size=(4, 8)) / 2, name="hidden")
output = pytensor.shared(rng.normal(size=8) / 3, name="output")
params = [hidden, output]

prediction = pt.dot(pt.maximum(pt.dot(x, hidden), 0), output)
cost = pt.sqr(prediction - y).mean()
cost.name = "cost"

guard = GradientGuard(factor=20.0, warmup=5)
grads = guard(pytensor.grad(cost, params), params)
step = pytensor.function(
    [x, y], cost, updates={p: p - 0.02 * g for p, g in zip(params, grads, strict=True)}, mode="CVM"
)

try:
    for batch in range(1, 31):
        inputs = rng.normal(size=(16, 4))
        if batch == 20:
            inputs[3] *= 1000  # one row in other units
        loss = step(inputs, inputs.sum(axis=1))
        if batch % 5 == 0:
            print(f"batch {batch:2d}  cost {loss:.3f}  norm {guard.norms()[-1]:.3f}")
except GradientError as error:
    print(f"batch {batch} changed no weight:")
    print(error.args[0].partition("\nApply node")[0])

event = guard.events[-1]
print(
    f"\nlast norms of {event.largest}:",
    *(f"{norm:.2f}" for norm in guard.norms(event.largest)[-5:]),
)
print("weights are finite:", all(np.isfinite(p.get_value()).all() for p in params))
