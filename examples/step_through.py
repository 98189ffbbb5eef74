"""At which node of the compiled function does a value go wrong?

``step_through`` steps through a call in a program.  ``step_in_terminal(f)(...)`` opens a prompt.
The function need not be compiled again.
"""

import numpy as np
import pytensor
import pytensor.tensor as pt

import theanoguard

x = pt.dvector("x")
total = pt.cumsum(x)
y = pt.cumsum(pt.log(total))
y.name = "y"
f = pytensor.function([x], y, mode="CVM", name="f")
values = np.array([1.0, -1.0, 2.0])

with theanoguard.step_through(f, values) as s:
    s.until(bad=True)
    print(s.where())
    print("read ", s.inputs)
    print("wrote", s.outputs)
    s.back()
    print("before it:", s.node.op, s.outputs)
print("result:", s.result)
