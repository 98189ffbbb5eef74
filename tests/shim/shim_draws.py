"""Random draws of Theano 1.0.5, which the shim has to repeat.

Run by Python 3.7 with Theano 1.0.5 installed, this writes them to ``shim_draws.json``::

    python3.7 tests/shim/shim_draws.py

The tests import `CASES` and draw the same from the shim.
"""

import json
import os

import numpy as np

PVALS = np.array([[0.2, 0.3, 0.5], [0.6, 0.1, 0.3]])


def mrg(name, *args, **kwargs):
    """Return a function that makes the samples of a distribution of ``MRG_RandomStreams``."""
    seed = kwargs.pop("seed", 12345)

    def make(theano):
        from theano.sandbox.rng_mrg import MRG_RandomStreams

        return getattr(MRG_RandomStreams(seed), name)(*args, **kwargs), None

    return make


def numpys(name, *args, **kwargs):
    """Return a function that makes the samples of a distribution of ``RandomStreams``."""

    def make(theano):
        from theano.tensor.shared_randomstreams import RandomStreams

        return getattr(RandomStreams(234), name)(*args, **kwargs), None

    return make


def third_variable(theano):
    """The streams of later variables begin elsewhere."""
    from theano.sandbox.rng_mrg import MRG_RandomStreams

    streams = MRG_RandomStreams(7)
    streams.uniform((2,)), streams.normal((2,))
    return streams.uniform((5,)), None


def walk(streams, passed):
    """Return a function that makes a random walk, with its updates or without."""

    def make(theano):
        from theano.sandbox.rng_mrg import MRG_RandomStreams
        from theano.tensor.shared_randomstreams import RandomStreams

        rng = {"mrg": MRG_RandomStreams, "numpy": RandomStreams}[streams](7)

        def step(x):
            return x + rng.uniform((3,), dtype="float64")

        start = theano.tensor.zeros((3,), dtype="float64")
        positions, updates = theano.scan(step, outputs_info=start, n_steps=3)
        return positions, updates if passed else None

    return make


# What is drawn by the generator alone, or by sums and products.
CASES = {
    "mrg uniform, 2 streams": mrg("uniform", (13,), nstreams=2, dtype="float64"),
    "mrg uniform float64": mrg("uniform", (4, 5), dtype="float64"),
    "mrg uniform float32": mrg("uniform", (4, 5), dtype="float32"),
    "mrg uniform float16": mrg("uniform", (4, 5), dtype="float16"),
    "mrg uniform scalar": mrg("uniform", (), dtype="float64"),
    "mrg uniform low": mrg("uniform", (9,), low=2.0, high=6.0, dtype="float64"),
    "mrg uniform of six seeds": mrg("uniform", (9,), seed=[1, 2, 3, 4, 5, 6], dtype="float32"),
    "mrg uniform, third variable": third_variable,
    "mrg binomial": mrg("binomial", (4, 5), p=0.3),
    "mrg multinomial": mrg("multinomial", pvals=PVALS),
    "mrg multinomial, 20 draws": mrg("multinomial", n=20, pvals=PVALS, dtype="int32"),
    "mrg choice": mrg("choice", size=2, p=PVALS, replace=False),
    "mrg choice float32": mrg("choice", size=3, p=PVALS.astype("float32"), replace=False),
    "mrg walk": walk("mrg", False),
    "mrg walk, updates passed": walk("mrg", True),
    "numpy uniform": numpys("uniform", (4, 3), dtype="float64"),
    "numpy uniform float32": numpys("uniform", (4, 3), low=-1.0, dtype="float32"),
    "numpy binomial": numpys("binomial", (8,), n=10, p=0.3),
    "numpy random_integers": numpys("random_integers", (12,), low=-3, high=40),
    "numpy random_integers of vectors": numpys(
        "random_integers", (5, 3), low=np.array([0, 5, 7]), high=np.array([1000, 5, 9])
    ),
    "numpy choice": numpys("choice", (3, 4), a=10),
    "numpy choice of a vector": numpys(
        "choice", (3,), a=np.array([4, 8, 15, 16]), replace=False, p=[0.1, 0.2, 0.3, 0.4]
    ),
    "numpy poisson": numpys("poisson", (9,), lam=4.5),
    "numpy permutation": numpys("permutation", (2,), n=6),
    "numpy multinomial": numpys("multinomial", (2, 2), n=20, pvals=PVALS),
    "numpy multinomial float32": numpys("multinomial", n=7, pvals=PVALS.astype("float32")),
    "numpy shuffle_row_elements": numpys("shuffle_row_elements", np.arange(12.0).reshape(2, 6)),
    "numpy walk": walk("numpy", False),
    "numpy walk, updates passed": walk("numpy", True),
}

# What goes through a logarithm, whose last bit depends on the C library.
ROUNDED_CASES = {
    "mrg normal float64": mrg("normal", (3, 3), dtype="float64"),
    "mrg normal float32": mrg("normal", (3, 3), avg=1.0, std=2.0, dtype="float32"),
    "mrg normal, 2 streams": mrg("normal", (7,), nstreams=2, dtype="float64"),
    "mrg truncated normal": mrg("truncated_normal", (12,), dtype="float64"),
    "numpy normal": numpys("normal", (5,), avg=1.0, std=2.0, dtype="float64"),
}


def draw(theano, make):
    """Return what two calls draw."""
    out, updates = make(theano)
    call = theano.function([], out, updates=updates)
    return [call(), call()]


def main():
    import theano

    draws = {}
    for name, make in sorted(list(CASES.items()) + list(ROUNDED_CASES.items())):
        values = draw(theano, make)
        draws[name] = {"dtype": str(values[0].dtype), "calls": [v.tolist() for v in values]}
    with open(os.path.splitext(os.path.abspath(__file__))[0] + ".json", "w") as file:
        lines = [json.dumps(name) + ": " + json.dumps(draws[name]) for name in sorted(draws)]
        file.write("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
