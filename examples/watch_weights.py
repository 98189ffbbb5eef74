"""How do my weights change during training, and at which batch and epoch did they go bad?

``watching`` observes each call of the compiled step.  The loop itself does not change.  Every tenth
step it computes statistics of weights, gradients and updates.  A NaN is reported with its epoch and
batch.
"""

import numpy as np
import pytensor
import pytensor.tensor as pt

from theanoguard.training import watching

rng = np.random.default_rng(1)
x, y = pt.dmatrix("x"), pt.dvector("y")
weights = pytensor.shared(rng.normal(size=3), name="weights")
bias = pytensor.shared(np.zeros(1), name="bias")
cost = pt.sqr(pt.dot(x, weights) + bias[0] - y).mean()
cost.name = "cost"
grads = pytensor.grad(cost, [weights, bias])
updates = {p: p - 0.1 * g for p, g in zip([weights, bias], grads, strict=True)}
train = pytensor.function([x, y], cost, updates=updates, mode="CVM")

with watching(train, [weights, bias], grads=grads, every=10, batches_per_epoch=25) as watch:
    for batch in range(60):
        inputs = rng.normal(size=(8, 3))
        if batch == 57:
            inputs[5, 1] = np.nan  # a missing entry in the data
        train(inputs, inputs @ [1.0, 0.0, -2.0] + 0.5)

print(watch.table(), "\n")
for event in watch.events:
    what = f"{event.kind} in {event.role} {event.variable}"
    print(f"{what}: epoch {event.epoch}, batch {event.batch}")

steps, norms = watch.series("weights", "gradient")
print("\nnorm of the gradient:", *(f"{s}: {n:.3f} " for s, n in zip(steps, norms, strict=True)))
# (pandas.DataFrame(rows).to_csv("weights.csv") writes them as a table)
rows = [record.row() for record in watch.records]
print("\n" + ", ".join(f"{name} {value}" for name, value in rows[0].items()))
since = watch.recording.since()
print("\nNothing stands out." if since is None else f"\n{since}")
