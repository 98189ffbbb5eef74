"""Types and values of every operation on every broadcast pattern, compared with Theano 1.0.5."""

import json
from pathlib import Path

import pytest
import shim_rules

pytestmark = pytest.mark.on_30

RECORDED = json.loads(Path(shim_rules.__file__).with_suffix(".json").read_text(encoding="utf-8"))

# By the form, why an answer is another one than Theano's.
DIFFERENT = {
    "{}[[0], None]": "the dimension of an index of one number is broadcastable as well",
    "T.extra_ops.diff({})": "what is left of a dimension of length 1 is no longer broadcastable",
    "{0}[{0} > 2]": "NumPy's masks: a number has none here, and a vector of length 1 has one",
    "T.argsort({}, axis=0)": "a number has no axis 0",
}
# Forms of which Theano refuses what the shim computes.
WIDER = {
    "{0}[{0} > 2]": "masks of broadcastable dimensions",
    "theano.ifelse.ifelse(n > 1, {}, {})": "branches of different patterns",
    "T.patternbroadcast({}, [0, 0])": "0 and 1 as truth values",
    "T.inc_subtensor({}[:, [0]], {})": "values of fewer dimensions",
}


def difference(form, expected, got, error):
    """How an answer differs from the recorded one, or None."""
    if error is None:
        same = got == expected or (form in WIDER and expected.startswith(("built:", "run:")))
    else:
        same = expected.startswith(("built:", "run:"))
    return None if same or form in DIFFERENT else f"{got}\n  in Theano: {expected}"


@pytest.mark.parametrize("form", shim_rules.forms())
def test_rule(form, shim):
    cases = shim_rules.cases(form)
    raising = [case for case in cases if RECORDED[case].startswith("run:")]
    found = shim_rules.answers(cases, *shim_rules.namespace(), alone=raising)
    differences = {case: difference(form, RECORDED[case], *found[case]) for case in cases}
    differences = {case: text for case, text in differences.items() if text}
    assert not differences, "\n".join(map(" gives ".join, differences.items()))
