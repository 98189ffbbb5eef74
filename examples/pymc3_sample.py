"""Sample a PyMC3 model with NUTS, under the shim.

Run it with ``theanoguard run --numpy-compat --python-compat examples/pymc3_sample.py``.
The page "PyMC3" of the documentation lists the packages that it needs.
"""

import numpy as np
import pymc3 as pm

rng = np.random.default_rng(0)
x = rng.normal(size=50)
y = 1.0 + 2.0 * x + rng.normal(scale=0.5, size=50)

with pm.Model():
    intercept = pm.Normal("intercept", 0.0, 10.0)
    slope = pm.Normal("slope", 0.0, 10.0)
    sigma = pm.HalfNormal("sigma", 1.0)
    pm.Normal("y", intercept + slope * x, sigma, observed=y)
    trace = pm.sample(
        200,
        tune=200,
        chains=1,
        cores=1,
        random_seed=1,
        progressbar=False,
        return_inferencedata=False,
        compute_convergence_checks=False,
    )

for name in ("intercept", "slope", "sigma"):
    print(f"{name}: {trace[name].mean():.1f}")
