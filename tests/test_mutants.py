"""The faults that ``tests/mutants.py`` plants: programs still, and other ones."""

import ast
from pathlib import Path

import pytest
from mutants import NEAR, ROOT, in_c, in_python, near, uncached

TEXT = '''
def f(x: int = 1) -> "1":
    """Not 2."""
    g(x)
    return x < 3 and not x == "é" or x + 1
'''


def test_each_fault_is_another_program():
    found = list(in_python("f.py", TEXT))
    assert {m.applied(TEXT) for m in found}.isdisjoint({TEXT})
    for mutant in found:
        ast.parse(mutant.applied(TEXT))
    told = [str(m).partition(": ")[2] for m in found]
    assert (
        "g(x) -> pass" in told
        and "x < 3 -> (x <= 3)" in told
        and "not x == \"é\" -> (x == 'é')" in told
    )
    assert not any("Not 2" in text or text.startswith('"1"') for text in told)


def test_faults_of_c_code_for_other_processors():
    text = "#if defined(__unheard_of__)\nint a = 1 < 2;\n#else\nint a = 3 < 4;\n#endif\n"
    assert {m.line for m in in_c("f.c", text)} == {4}


def test_faults_of_c_code():
    text = "/* a < b */\nif (a < b && c(d)) return a + 1; // x == y\n#if A == B\n#endif\n"
    found = {m.applied(text).splitlines()[1] for m in in_c("f.c", text)}
    assert found == {
        "if (a <= b && c(d)) return a + 1; // x == y",
        "if (a < b || c(d)) return a + 1; // x == y",
        "if (!(a < b && c(d))) return a + 1; // x == y",
        "if (a < b && c(d)) return a + 2; // x == y",
    }


def test_compiled_code_without_the_fault_is_not_taken():
    for file in (ROOT / "theanoguard").glob("*/*.py"):
        text = file.read_text(encoding="utf-8")
        changed = [line for line in uncached(text).splitlines() if line not in text.splitlines()]
        assert changed == text.count("def c_code_cache_version(") * ["        return ()"], file


@pytest.mark.parametrize("part", [*NEAR, "operations/moving.py"])
def test_the_near_tests_exist(part):
    assert all((ROOT / test).exists() for test in near(part)) and near(part)
    assert (Path(ROOT) / "theanoguard" / part).exists()
