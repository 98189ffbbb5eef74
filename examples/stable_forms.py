"""My loss or its gradient is NaN at zeros or at large scores.  What can I write instead?

``theanoguard.stable`` has functions whose value and gradient stay finite.  ``stabilize`` finds the
formulas of a graph that need them.
"""

import numpy as np
import pytensor
import pytensor.tensor as pt

from theanoguard import stabilize, stable

scores = pt.dmatrix("scores")
labels = pt.lvector("labels")
data = [np.array([[0.0, 1000.0], [1.0, 2.0]]), np.array([0, 1])]


def show(name, loss):
    f = pytensor.function(
        [scores, labels], [loss, pytensor.grad(loss, scores)], mode="FAST_COMPILE"
    )
    value, gradient = f(*data)
    print(f"{name:10} loss {value:8.3f}, gradient {gradient.round(3).tolist()}")


e = pt.exp(scores)
p = e / e.sum(axis=1, keepdims=True)
plain = -pt.log(p[pt.arange(labels.shape[0]), labels]).mean()
show("plain", plain)

show("stable", stable.categorical_crossentropy(scores, labels, from_logits=True).mean())

found = stabilize(plain)
print(found)
(repaired,) = found.apply()
show("stabilized", repaired)
