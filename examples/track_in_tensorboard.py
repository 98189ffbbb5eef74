"""Can I see the norms of my parameters in TensorBoard, and since when they went wrong?

The record of a function's calls sends every tenth call to a folder of events.  Look at it with
``tensorboard --logdir runs``.  Needs ``pip install tensorboardX``.
"""

import numpy as np
import pytensor
import pytensor.tensor as pt

from theanoguard import GuardError, GuardMode
from theanoguard.log import TensorBoard
from theanoguard.training import recording_of

rng = np.random.default_rng(0)
x, y = pt.dmatrix("x"), pt.dvector("y")
w = pytensor.shared(np.zeros(3), name="w")
cost = pt.sqr(pt.dot(x, w) - y).mean()
cost.name = "cost"
updates = {w: w - 0.1 * pytensor.grad(cost, w)}
train = pytensor.function([x, y], cost, updates=updates, mode=GuardMode(history=True))
recording_of(train).send_to(TensorBoard("runs/1"), every=10)

try:
    for step in range(1, 101):
        inputs = rng.normal(size=(16, 3))
        targets = inputs @ [1.0, 0.0, -2.0]
        if step == 95:
            targets[4] = 1e30  # a code for "missing"
        train(inputs, targets)
except GuardError as error:
    print(error.explanation.since)
    print("runs/1 has the norms of each tenth call and this sentence.")
