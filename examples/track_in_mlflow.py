"""Can I see the norms of my parameters in MLflow, and since when they went wrong?

The record of a function's calls sends every tenth call to the active run.  Look at it with
``mlflow ui``.  Needs ``pip install mlflow``.
"""

import mlflow
import numpy as np
import pytensor
import pytensor.tensor as pt

from theanoguard import GuardError, GuardMode
from theanoguard.log import MLflow
from theanoguard.training import recording_of

rng = np.random.default_rng(0)
x, y = pt.dmatrix("x"), pt.dvector("y")
w = pytensor.shared(np.zeros(3), name="w")
cost = pt.sqr(pt.dot(x, w) - y).mean()
cost.name = "cost"
updates = {w: w - 0.1 * pytensor.grad(cost, w)}
train = pytensor.function([x, y], cost, updates=updates, mode=GuardMode(history=True))

with mlflow.start_run() as run:
    recording_of(train).send_to(MLflow(), every=10)
    try:
        for step in range(1, 101):
            inputs = rng.normal(size=(16, 3))
            targets = inputs @ [1.0, 0.0, -2.0]
            if step == 95:
                targets[4] = 1e30  # a code for "missing"
            train(inputs, targets)
    except GuardError:
        data = mlflow.get_run(run.info.run_id).data
        print(data.tags["theanoguard.since"])
        print("norms in the last call that was sent:", data.metrics)
