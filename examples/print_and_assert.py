"""How do I print or check a value inside my graph?

``Print`` prints a value when the graph runs.  ``Assert`` and the functions in ``theanoguard.ops``
stop the call if a condition does not hold, and show the elements that violate it.
"""

import numpy as np
import pytensor
import pytensor.tensor as pt

from theanoguard.ops import Assert, Print, assert_in_range, assert_shape

x = pt.dmatrix("x")
x = assert_shape(x, (None, 2))
shares = x / x.sum(axis=1, keepdims=True)
shares.name = "shares"
shares = assert_in_range(shares, 0, 1)
shares = Print("shares", attrs=("shape", np.max))(shares)
f = pytensor.function([x], pt.sqrt(shares), mode="CVM")

print(f(np.array([[1.0, 3.0], [1.0, 1.0]])))

try:
    f(np.array([[1.0, 3.0], [-1.0, 2.0]]))
except AssertionError as error:
    print("\nstopped:", error)

scale = pt.dscalar("scale")
checked = Assert("the scale must be positive")(scale, scale > 0)
g = pytensor.function([scale], pt.log(checked), mode="CVM")
try:
    g(-2.0)
except AssertionError as error:
    print("\nstopped:", error)
