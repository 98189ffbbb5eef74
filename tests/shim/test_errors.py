"""Which calls with wrong indices and shapes raise, compared with Theano 1.0.5."""

import json
import math
from pathlib import Path

import pytest
import shim_errors

pytestmark = pytest.mark.on_33

RECORDED = json.loads(Path(shim_errors.__file__).with_suffix(".json").read_text(encoding="utf-8"))

# By the reason, answers that are other ones than Theano's.
REASONS = {
    "Theano leaves out an operation that would have raised": """
        (x * u)[0]
        (x + u)[:1]
        (x + u)[0]
        T.exp(x + u)[0]
        T.sqrt(x * u)[0]
        T.alloc(x, 4).sum()
        T.alloc(x, 4)[0]
        T.alloc(x, 4) * 0
        T.alloc(T.zeros_like(x), 4)
        T.set_subtensor(m[q], w)[q]
        x.reshape((2, 2)).reshape((3,))
    """,
    "ones of the wrong shape are left out, as Theano does where it fills": "x ** 0 + u",
    "a filter that is larger than the image raises, and gives an empty image in Theano": """
        T.nnet.conv2d(m.dimshuffle('x', 'x', 0, 1), w.dimshuffle('x', 'x', 0, 1))
    """,
    "an empty sequence gives an empty result": "theano.scan(lambda a: a * 2, x[:k])[0]",
}
DIFFERENT = {line.strip() for lines in REASONS.values() for line in lines.strip().splitlines()}


def difference(case, optimizer, theano):
    """How an answer differs from the recorded one, or None."""
    recorded = RECORDED[case]
    if isinstance(recorded, list):
        recorded = recorded[shim_errors.MODES.index(optimizer)]
    found, error = shim_errors.answer(theano, case, optimizer)
    raised = not recorded.startswith("[")
    if raised or error:
        same = raised and error is not None
    else:
        same = found.partition("]")[0] == recorded.partition("]")[0] and all(
            math.isclose(float(a), float(b), rel_tol=1e-3) or a == b
            for a, b in zip(found.split("] ")[1:], recorded.split("] ")[1:], strict=True)
            for a, b in zip(a.split(), b.split(), strict=True)
        )
    return None if same else f"{case} [{optimizer}]: {found}\n   in Theano: {recorded}"


@pytest.mark.parametrize(
    "optimizer",
    ["fast_run", *(pytest.param(name, marks=pytest.mark.deep) for name in shim_errors.MODES[1:])],
)
def test_errors(optimizer, shim):
    found = [
        difference(case, optimizer, shim) for case in shim_errors.cases() if case not in DIFFERENT
    ]
    found = list(filter(None, found))
    assert not found, "\n".join([f"{len(found)} differ", *found])
