"""A few batches are broken.  Can the training skip them and keep weights and momentum?

``guarded_updates`` adds a test to the compiled function.  If the cost or a new value is not finite,
every shared variable keeps its old value.
"""

import numpy as np
import pytensor
import pytensor.tensor as pt

from theanoguard.training import guarded_updates

rng = np.random.default_rng(2)
x, y = pt.dmatrix("x"), pt.dvector("y")
weights = pytensor.shared(np.zeros(3), name="weights")
velocity = pytensor.shared(np.zeros(3), name="velocity")
rate = pytensor.shared(np.array(0.05), name="rate")
cost = pt.sqr(pt.dot(x, weights) - y).mean()
cost.name = "cost"
new_velocity = 0.8 * velocity - rate * pytensor.grad(cost, weights)

updates = guarded_updates(
    {velocity: new_velocity, weights: weights + new_velocity},
    watch=[cost],
    action="backoff",  # skip the step, and halve the learning rate
    learning_rate=rate,
)
step = pytensor.function([x, y], cost, updates=updates, mode="CVM")

for batch in range(1, 101):
    inputs = rng.normal(size=(8, 3))
    if batch in (30, 70):
        inputs[2, 0] = np.inf
    loss = step(inputs, inputs @ [1.0, 2.0, 3.0])
    if not np.isfinite(loss):
        bad, now = updates.last_bad, rate.get_value()
        print(f"batch {batch} skipped, because {bad} is bad; the learning rate is now {now}")

print(f"{updates.skipped} of 100 steps skipped; weights", weights.get_value().round(3))
