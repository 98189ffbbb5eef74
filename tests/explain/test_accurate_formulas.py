"""Formulas that the identities find: a report prints the line, and the pasted line is right."""

import itertools

import pytest
from pasted import CONTEXTS, Formula, Program, outcome

pytestmark = pytest.mark.on_30

ROOT = "np.sqrt(2)"
FORMULAS = {
    "normal_tail": Formula(f"1 + pt.erf({{v}} / {ROOT})", "pt.log(0.5 * ({e}))", [1.0, -40.0]),
    "mills_ratio": Formula("pt.exp(-({v} ** 2))", "pt.erfc({v}) / {e}", [1.0, 40.0]),
    "complement_of_tanh": Formula("1 - pt.tanh({v})", "pt.log({e})", [1.0, 40.0]),
    "versine": Formula("1 - pt.cos({v})", "pt.log({e})", [1.0, 1e-9]),
    "bessel_ratio": Formula("pt.i0({v})", "pt.i1({v}) / {e}", [1.0, 900.0]),
    "inverse_difference": Formula(
        "pt.sqrt({v} + 1) - pt.sqrt({v})", "1 / ({e})", [1.0, 1e17], (3.0, 1.7)
    ),
    "exponential_by_cosh": Formula("pt.cosh({v})", "pt.exp({v}) / {e}", [1.0, 900.0]),
}
# (tests/explain/test_pasted.py has each place of a formula in a program.)
PROGRAMS = [
    Program(f"{context}-{name}", CONTEXTS[context](formula), formula)
    for (name, formula), context in zip(
        FORMULAS.items(), itertools.cycle(["module", "two_lines", "method"]), strict=False
    )
]


@pytest.mark.parametrize("program", PROGRAMS, ids=[p.name for p in PROGRAMS])
def test_the_pasted_line_gives_the_exact_value(program, tmp_path):
    found = outcome(program, tmp_path)
    assert found.kind == "mended", found.detail
