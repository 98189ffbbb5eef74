"""Which of my lines may produce a NaN?

``lint`` looks for inputs at which the compiled function fails.  It reports the line, the input and
what to write instead.  For a whole script, use ``theanoguard lint my_script.py``.
"""

import pytensor.tensor as pt

from theanoguard import lint

x = pt.dmatrix("x")
counts = pt.dvector("counts")

share = pt.special.softmax(x, axis=1)
loss = -pt.log(share).mean()
rate = 1 / counts
spread = pt.sqrt(x.var(axis=0) + 1e-8)  # guarded
known = pt.log(counts)  # theanoguard: ignore[log-of-zero]

for finding in lint([loss, rate.sum(), spread, known], mode="FAST_COMPILE"):
    print(finding, end="\n\n")

better = -pt.special.log_softmax(x, axis=1).mean()
print("after repair:", lint([better, rate.sum()], mode="FAST_COMPILE", bounds={counts: (1, 1e6)}))
