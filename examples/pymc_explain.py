"""The log-density of my PyMC model is NaN or -inf.  Which term is bad, and why?

``theanoguard.pymc.explain`` takes a model and a point.  It evaluates each term of the log-density
and of its gradient.  Install PyMC first: ``pip install "pymc>=6"``.
"""

import numpy as np
import pymc as pm
import pytensor.tensor as pt

import theanoguard

dose = np.array([0.0, 1.0, 2.0, 4.0])
response = np.array([0.1, 0.9, 1.4, 2.1])

with pm.Model() as model:
    slope = pm.Normal("slope", 1.0, 1.0)
    power = pm.Normal("power", 0.5, 0.2)
    sigma = pm.HalfNormal("sigma", 1.0)
    mean = slope * pt.pow(dose, power)
    pm.Normal("response", mean, sigma, observed=response)

print("At the initial point:")
print(theanoguard.pymc.explain(model))

print("\nWith power = -0.1:")
found = theanoguard.pymc.explain(model, {"power": -0.1})
print(found)

print("\nThe terms:")
print(found.table())
