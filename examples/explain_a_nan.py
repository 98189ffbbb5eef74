"""My function returns NaN.  Which operation made it, at which element and line?

The function is compiled under ``GuardMode`` and called with a weight that is too small.  The error
names the cause.  ``error.explanation`` has the same facts for programs.
"""

import numpy as np
import pytensor
import pytensor.tensor as pt

from theanoguard import GuardError, GuardMode

height = pt.dvector("height")
weight = pt.dvector("weight")
index = weight / height**2
deviation = pt.sqrt(index - 18.5)
score = pytensor.function([height, weight], deviation.mean(), mode=GuardMode(), name="score")

print("good data:", score(np.array([1.8, 1.7]), np.array([80.0, 60.0])))
print()
try:
    score(np.array([1.8, 1.7, 1.9]), np.array([80.0, 50.0, 90.0]))
except GuardError as error:
    print(error)
    cause = error.explanation.cause
    print()
    print("as data:", error.event.kind, cause.op, cause.index, cause.hint.key)
