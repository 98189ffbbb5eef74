"""How do I show a NaN to somebody else without my model and my data?

``save_repro`` writes a script with the failing operation and the values of its operands.  It needs
only PyTensor, and exits with status 1 while the fault exists.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytensor
import pytensor.tensor as pt

from theanoguard import GuardError, GuardMode

x = pt.dmatrix("x")
w = pytensor.shared(np.array([[1.0, 2.0], [3.0, -4.0]]), name="w")
f = pytensor.function([x], pt.log(pt.exp(x @ w) - 1).sum(), mode=GuardMode())

with tempfile.TemporaryDirectory() as folder:
    script = Path(folder) / "fault.py"
    try:
        f(np.array([[1.0, 0.25], [2.0, 3.0]]))
    except GuardError as error:
        print(str(error).splitlines()[0])
        error.save_repro(script)

    print("files:", *sorted(path.name for path in Path(folder).iterdir()))
    print("-" * 20, "fault.py")
    print(script.read_text())
    print("-" * 20, "python fault.py")
    run = subprocess.run([sys.executable, script], capture_output=True, text=True)
    print(run.stdout.strip())
    print("status", run.returncode)
