"""Can a wrong shape raise at my line, and not only when the function runs?

With test values, every operation is computed on example values as soon as you build it.
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
    print("hidden has its value as soon as it is built:", hidden.tag.test_value.shape)
    try:
        hidden @ weights  # weights.T was meant
    except ValueError as error:
        print("stopped at the line that is wrong:")
        print(error)

print("\nthe value of any variable:", get_test_value(hidden.sum()))

x = pt.dvector("x")
y = pt.log(x)
y.name = "y"
print("\nevery named value of the graph:")
for variable, value in eval_intermediate_values(y.sum(), {x: np.array([1.0, 2.0])}).items():
    if variable.name:
        print(" ", variable.name, "=", value)
