"""A long run went bad.  What happened, how often, and where first?

Two functions write their events to one log and continue (``action="record"``).  The program reads
the log in Python, and with the command ``theanoguard report``.
"""

import tempfile
from pathlib import Path

import numpy as np
import pytensor
import pytensor.tensor as pt

from theanoguard import GuardMode
from theanoguard.cli.main import main
from theanoguard.explain import render_text
from theanoguard.log import read_log

with tempfile.TemporaryDirectory() as folder:
    log = Path(folder) / "events.jsonl"
    mode = GuardMode(action="record", log=log)

    x = pt.dvector("x")
    entropy = pytensor.function([x], -(x * pt.log(x)).sum(), mode=mode, name="entropy")
    norm = pytensor.function([x], x / pt.sqrt((x**2).sum()), mode=mode, name="norm")

    for values in ([0.5, 0.5], [1.0, 0.0], [0.0, 0.0], [0.25, 0.75]):
        entropy(np.array(values))
        norm(np.array(values))

    print("The events, one by one:")
    for entry in read_log(log).entries:
        event = entry.event
        print(f"  {event.function}, call {event.call}: {event.kind} at {event.first_index}")

    print("\n$ theanoguard report events.jsonl --count")
    main(["report", str(log), "--count"])

    print("\nThe explanation of the first:")
    first = next(entry for entry in read_log(log).entries if entry.explanation is not None)
    print(render_text(first.event, first.explanation))
