"""Faulty Theano programs: the printed line runs in the user's module, whose PyTensor is ``T``."""

from pathlib import Path

import numpy as np
import pytest
from models import load
from test_gallery_kinds import with_change

import theanoguard
from theanoguard import GuardError, GuardMode

pytestmark = pytest.mark.on_33

PATH = Path(__file__).parents[1] / "gallery" / "theano" / "programs.py"
NAMES = ("softmax_by_hand", "bessel", "tail", "geometric", "tanh", "entropy", "scale")


@pytest.mark.parametrize("name", NAMES)
def test_a_theano_program_gets_lines_that_run_in_it(shim, name, c_backend):
    module = load(PATH)
    kind, grade, arguments = module.CASES[name]
    inputs, [output] = getattr(module, name)()
    function = shim.function(inputs, [output], mode=GuardMode(True, True, False))
    with pytest.raises(GuardError) as caught:
        function(*arguments)
    found = caught.value.explanation
    assert (found.meaning.kind, found.advice.grade) == (kind, grade)
    assert "pt." not in found.advice.text
    if found.advice.change:
        printed = {"__name__": "printed"}
        exec(compile(with_change(PATH, name, found.advice.change), str(PATH), "exec"), printed)
        new_inputs, outputs = printed[name]()
        [value] = shim.function(new_inputs, outputs)(*arguments)
        assert np.isfinite(value).all()
        if grade == "same":
            given = dict(zip(inputs, arguments, strict=True))
            np.testing.assert_allclose(value, theanoguard.exact(output, given).mid, rtol=1e-9)


def test_all_programs_are_run():
    text = PATH.read_text(encoding="utf-8")
    assert all(f"def {name}():" in text for name in NAMES)
    assert text.count("\ndef ") == len(NAMES)
