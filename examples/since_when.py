"""My training ended with a NaN after hundreds of good steps.  When did it begin, and what began it?

A network learns digits.  Its output layer is meant to decay by 1 % a step from step 300 on, but
the sign is wrong, so that the layer grows by 1 % a step.  For a hundred steps the loss looks better
than before.  The training fails near step 800, in an exponential.  ``GuardMode(history=True)``
keeps a record of the calls, and the report ends with the call, the parameter and its growth.
"""

from pathlib import Path

import numpy as np
import pytensor
import pytensor.tensor as pt

from theanoguard import GuardError, GuardMode

rng = np.random.default_rng(0)
table = rng.permutation(np.loadtxt(Path(__file__).with_name("digits.csv"), delimiter=","))
images, labels = table[:, :-1] / 16, np.eye(10)[table[:, -1].astype(int)]

x, y = pt.dmatrix("images"), pt.dmatrix("labels")
W1 = pytensor.shared(rng.normal(size=(64, 32)) / 8, name="W1")
W2 = pytensor.shared(rng.normal(size=(32, 10)) / 6, name="W2")
step = pytensor.shared(np.int64(0), name="step")
scores = pt.exp(pt.tanh(x @ W1) @ W2)
cost = -pt.log((y * scores).sum(axis=1) / scores.sum(axis=1)).mean()
cost.name = "cost"
updates = {p: p - 0.1 * g for p, g in zip([W1, W2], pytensor.grad(cost, [W1, W2]), strict=True)}
updates[W2] += pt.switch(step < 300, 0.0, 0.01) * W2  # (it should be -=)
updates[step] = step + 1
train = pytensor.function(
    [x, y], cost, updates=updates, mode=GuardMode(big_is_error=False, history=True, snapshots=8)
)

try:
    for number in range(1, 2001):
        rows = rng.integers(len(images), size=64)
        loss = train(images[rows], labels[rows])
        if number % 100 == 0:
            print(f"step {number:4}: loss {loss:.3f}")
except GuardError as error:
    print(f"\n{error}\n")
    start = error.rewind(300)
    print(f"The weights are those from before step {start} again.")
