"""Can a wrong shape be an error at my line, instead of when the function runs?

With test values every operation is computed on example values at the moment when it is built.
"""

import numpy as np
import pytensor.tensor as pt

from theanoguard.testvalue import eval_intermediate_values, get_test_value, test_values

with test_values("raise"):
    images = pt.dmatrix("images")
    images.tag.test_value = np.ones((5, 64))
    weights = pt.dmatrix("weights")
    weights.tag.test_value = np.full((64, 10), 0.1)
    hidden = images @ weights
    print("hidden is computed while it is built:", hidden.tag.test_value.shape)
    try:
        hidden @ weights  # weights.T was meant
    except ValueError as error:
        print("stopped at the line that is wrong:")
        print(error)

print("\nthe value of anything, on request:", get_test_value(hidden.sum()))

x = pt.dvector("x")
y = pt.log(x)
y.name = "y"
print("\nevery value on the way to an output:")
for variable, value in eval_intermediate_values(y.sum(), {x: np.array([1.0, 2.0])}).items():
    if variable.name:
        print(" ", variable.name, "=", value)
