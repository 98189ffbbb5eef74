"""Faulty Theano programs: the printed line runs in the user's module, whose PyTensor is ``T``."""

import ast
import json
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytensor.tensor as pt
import pytest
import theano_lines
from models import load, with_change

import theanoguard
from theanoguard import GuardError, GuardMode, stable
from theanoguard.explain.advice import hints
from theanoguard.explain.advice.written import (
    CALLS_IN_THEANO,
    CHOICES,
    in_theano,
    in_users_words,
)

pytestmark = pytest.mark.in_python

PATH = Path(__file__).parents[1] / "gallery" / "legacy" / "programs.py"
NAMES = (
    "softmax_by_hand",
    "bessel",
    "tail",
    "geometric",
    "tanh",
    "entropy",
    "scale",
    "growth",
    "softmax_row",
    *("spread", "distance", "unit", "hypotenuse", "mixture", "one_more"),
)
NOT_THEANO = re.compile(
    r"(?<![\w.])(?:pt\.|(?i:pytensor)|theanoguard\.|stable\.|softplus|log_softmax|logsumexp|logaddexp|xlogx|xlogy|log1mexp|ive\()"
)


def explained(name):
    """The explanation of a program's failing call, its inputs and its output."""
    module = load(PATH)
    inputs, [output] = getattr(module, name)()
    function = module.theano.function(inputs, [output], mode=GuardMode(True, True, False))
    with pytest.raises(GuardError) as caught:
        function(*module.CASES[name][2])
    return caught.value.explanation, inputs, output


def printed(name):
    """The source of a program with the lines that its report prints; None if it prints none."""
    change = explained(name)[0].advice.change
    if not change:
        return None
    source = with_change(PATH, name, change)
    found = (n for n in ast.parse(source).body if getattr(n, "name", None) == name)
    return ast.get_source_segment(source, next(found))


@pytest.mark.parametrize("name", NAMES)
def test_a_theano_program_gets_lines_that_run_in_it(shim, name, c_backend):
    kind, grade, arguments = load(PATH).CASES[name]
    found, inputs, output = explained(name)
    assert (found.meaning.kind, found.advice.grade) == (kind, grade)
    assert not NOT_THEANO.search(found.advice.text)
    if found.advice.change:
        printed = {"__name__": "printed"}
        exec(compile(with_change(PATH, name, found.advice.change), str(PATH), "exec"), printed)
        new_inputs, outputs = printed[name]()
        [value] = shim.function(new_inputs, outputs)(*arguments)
        assert np.isfinite(value).all()
        assert "theanoguard" not in "".join(found.advice.change)
        recorded = theano_lines.RECORDED.read_text(encoding="utf-8")
        np.testing.assert_allclose(value, json.loads(recorded)["results"][name], 1e-9, 1e-12)
        if kind == "lost":
            given = dict(zip(inputs, arguments, strict=True))
            np.testing.assert_allclose(value, theanoguard.exact(output, given).mid, 1e-9, 1e-12)


def test_all_programs_are_run():
    text = PATH.read_text(encoding="utf-8")
    assert all(f"def {name}():" in text for name in NAMES)
    assert text.count("\ndef ") == len(NAMES)


def _dotted(text):
    """The names of a text that begin with a module of Theano or of this package."""
    return re.findall(r"(?<![\w.])(?:T|theano|theanoguard)(?:\.[A-Za-z_]\w*)+", text)


ADVICE = [
    *(
        (f"{op}-{rule.key}", f"{rule.fact} {rule.advice}")
        for op, rules in hints._rules.items()
        for rule in rules
    ),
    *((hint.key, hint.text) for hint in hints.CAME_IN.values()),
    *hints.GENERAL.items(),
    ("own gradient", " ".join(hints._OF_OWN_GRADIENT)),
]


@pytest.mark.parametrize("text", dict(ADVICE).values(), ids=dict(ADVICE))
def test_advice_in_a_theano_program_names_only_what_theano_has(text, shim):
    load(PATH)
    said = in_users_words(text, str(PATH), "return [k], [T.log(T.i0(k))]")
    assert not NOT_THEANO.search(said)
    assert len(said) >= len(text) - 60
    for name in _dotted(said):
        assert theano_lines.value_of(name) is not None


def names_in_advice():
    """The names of Theano in advice, and those in templates of lines which the shim has."""
    load(PATH)
    said = " ".join(
        in_users_words(text, str(PATH), "return [k], [T.log(T.i0(k))]") for _, text in ADVICE
    )
    templates = "".join(
        path.read_text("utf-8") for path in Path(hints.__file__).parent.glob("*.py")
    )
    lines = {f"T.{name}" for name in re.findall(r"\{pt\}\.([a-z_]\w*(?:\.[a-z_]\w*)*)", templates)}
    found = {*_dotted(said), *filter(theano_lines.value_of, lines)}
    return sorted(found)


def formulas():
    """Calls of functions that Theano does not have, and each formula for them in Theano."""
    of_groups = ("softmax", "logsumexp", "norm")
    calls = [
        f"{function}(x, {arguments})"
        if function.endswith(of_groups)
        else f"{function}(x, y)"
        if function.endswith(("logaddexp", "hypot"))
        else f"{function}(x)"
        for function in CALLS_IN_THEANO
        for arguments in ("axis=1", "axis=1, keepdims=True")
        if "softmax" not in function or "keepdims" not in arguments
    ]
    return {call: {in_theano(call, i) for i in range(CHOICES)} for call in calls}


def test_formulas_in_theano_are_the_functions(shim):
    recorded = json.loads(theano_lines.RECORDED.read_text(encoding="utf-8"))["formulas"]
    names = {"theanoguard": SimpleNamespace(stable=stable)}
    x, y = (shim.shared(np.array(values)) for values in (theano_lines.X, theano_lines.Y))
    pairs = [(call, text) for call, texts in formulas().items() for text in texts]
    calls = [eval(call, {"x": x, "y": y, "pt": pt, **names}) for call, _ in pairs]
    texts = [eval(text, {"x": x, "y": y, "pt": shim.tensor}) for _, text in pairs]
    values = iter(shim.function([], calls + texts, mode=shim.Mode("py", None))())
    expected = [next(values) for _ in calls]
    for (_, text), found, one in zip(pairs, values, expected, strict=True):
        np.testing.assert_allclose(found, one, 1e-12, 2e-19, err_msg=text)
        np.testing.assert_allclose(found, recorded[text], 1e-12, err_msg=text)
    assert set().union(*formulas().values()) == recorded.keys()


IN_WORDS = """
import theano, theano.tensor as T
def log(t, k): return T.log(t * k)
x, y = T.dvectors("x", "y")
p = T.exp(-x)
p *= T.exp(-y)
[q] = [1 - v for v in [p]]
total = log(q, 3.0) + log(q, 1.0)
"""


def test_a_formula_in_words_names_only_what_theano_has(shim, tmp_path):
    path = tmp_path / "in_words.py"
    path.write_text(IN_WORDS)
    module = load(path)
    function = shim.function([module.x, module.y], module.total, mode=GuardMode())
    with pytest.raises(GuardError) as caught:
        function(np.array([1e-20]), np.array([1e-21]))
    found = caught.value.explanation.advice
    assert "keep the value: T." in found.text and not found.change
    assert all(theano_lines.value_of(name) is not None for name in _dotted(found.text))
    assert "log1mexp" not in found.text


def test_theano_itself_has_the_names_and_ran_the_lines(shim, c_backend):
    recorded = json.loads(theano_lines.RECORDED.read_text(encoding="utf-8"))
    assert recorded["names"] == names_in_advice() and not recorded["missing"]
    assert {n: s for n in NAMES if (s := printed(n))} == recorded["programs"]
    assert recorded["results"].keys() == recorded["programs"].keys()
    with_lines = {n for n in NAMES if load(PATH).CASES[n][1] in ("same", "changes")}
    assert recorded["programs"].keys() == with_lines


def test_advice_of_a_program_of_pytensor_stays():
    for _, text in ADVICE:
        assert in_users_words(text, __file__, "pt.exp(x)") == text
