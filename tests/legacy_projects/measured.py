"""Run a program and print how much processor time its Theano functions took, to make and to call.

``compare.py`` starts it, with Python 3.7 and Theano 1.0.5 or under the shim::

    python measured.py PROGRAM [ARGUMENT ...]

A line ``result: NAME NUMBER ...`` of the program is a result to compare.  `report` prints one.
"""

import functools
import json
import os
import runpy
import sys
import time

import numpy as np


def seconds():
    """Processor time of this process and of its children, which compile."""
    times = os.times()  # in hundredths of a second, longer than many calls take
    return time.process_time() + times.children_user + times.children_system


class Clock:
    """Adds up the processor time of calls; a call inside of another counts once.

    Parameters
    ----------
    function : callable
    """

    def __init__(self):
        self.total, self.calls, self.running = 0.0, 0, False

    def around(self, function):
        """Return `function`, with the time of its calls added."""

        @functools.wraps(function)
        def timed(*args, **kwargs):
            if self.running:
                return function(*args, **kwargs)
            self.running, begin = True, seconds()
            self.calls += 1
            try:
                return function(*args, **kwargs)
            finally:
                self.total += seconds() - begin
                self.running = False

        return timed


def report(name, *values):
    """Print numbers as a result to compare, those of an array as three of its sums."""
    numbers = []
    for value in values:
        array = np.asarray(value, dtype="float64")
        if array.size <= 8:
            numbers += array.ravel().tolist()
        else:
            numbers += [array.sum(), np.abs(array).sum(), array.ravel()[::7].sum()]
    print("result:", name, *map(repr, map(float, numbers)), flush=True)


def main():
    """Run the program that is named on the command line."""
    sys.argv[:] = sys.argv[1:]
    begin = seconds()
    import theano

    imported = seconds() - begin
    made, called, known = Clock(), Clock(), set()
    make = made.around(theano.function)

    @functools.wraps(theano.function)
    def function(*args, **kwargs):
        result = make(*args, **kwargs)
        kind = type(result)
        if kind not in known:
            known.add(kind)
            kind.__call__ = called.around(kind.__call__)
        return result

    theano.function = function
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    sys.modules["measured"] = sys.modules["__main__"]
    runpy.run_path(sys.argv[0], run_name="__main__")
    times = {
        "import": imported,
        "compile": made.total,
        "run": called.total,
        "all": seconds() - begin,
        "functions": made.calls,
        "calls": called.calls,
    }
    print("times:", json.dumps(times), flush=True)


if __name__ == "__main__":
    main()
