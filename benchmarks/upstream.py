"""Reports for PyTensor's tracker: graphs whose result its rewrites change, one file each.

    python -m benchmarks.upstream docs/upstream

Each file has a program that runs with PyTensor alone, its output, the right result, and the
rewrites to exclude.
"""

import argparse
import io
import platform
import re
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytensor
from pytensor.compile.mode import Mode

from theanoguard import compare

PROGRAM = """\
import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.compile.mode import Mode

{code}

def run(rewrites):
    f = pytensor.function(list(values), graph, mode=Mode("py", rewrites), on_unused_input="ignore")
    try:
        return f(*values.values())
    except Exception as error:
        return f"{{type(error).__name__}}: {{str(error).strip().splitlines()[0]}}"


with np.errstate(all="ignore"):
    print("as written:", run(None))
    print("rewritten: ", run("fast_run"))
"""

PAGE = """\
# {title}

```python
{program}```

It prints:

```
{printed}```

The result should be {right}.

{avoided}

PyTensor {release}, NumPy {numpy}, Python {python}.
"""


@dataclass(frozen=True)
class Report:
    """A graph that rewriting changes.

    Parameters
    ----------
    title : str
    code : str
        Makes ``graph`` and ``values``.
    right : str
        The right result, in words.
    """

    title: str
    code: str
    right: str

    @property
    def program(self) -> str:
        """The program of the report."""
        return PROGRAM.format(code=self.code)

    @property
    def file(self) -> str:
        """The name of the file."""
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-") + ".md"

    def case(self) -> tuple[Any, dict[Any, Any]]:
        """Return the graph and the values of its inputs."""
        names: dict[str, Any] = {"np": np, "pytensor": pytensor, "pt": pytensor.tensor}
        exec(self.code, names)
        return names["graph"], names["values"]

    def page(self) -> str:
        """Return the text of the file."""
        found = compare(*self.case(), Mode("py", "fast_run"), reference="as written")["Mode"]
        [excluding] = {change.excluding for change in found.changes or ()} or {None}
        return PAGE.format(
            title=self.title,
            program=self.program,
            printed=printed(self.program),
            right=self.right,
            avoided=f"`{excluding}` avoids it.",
            release=pytensor.__version__,
            numpy=np.__version__,
            python=platform.python_version(),
        )


def printed(program: str) -> str:
    """Return what a program prints."""
    out = io.StringIO()
    with redirect_stdout(out):
        exec(compile(program, "<report>", "exec"), {})
    return out.getvalue()


READ = """\
A, B, i = pt.dmatrix("A"), pt.dmatrix("B"), pt.lvector("i")
graph = A[i].set(B)[i]
values = {{A: np.zeros((3, 2)), i: np.array([1, {last}]), B: np.array([[1.0, 2.0], [3.0, 4.0]])}}"""

REPORTS = [
    Report(
        "x // 1 becomes x",
        's = pt.dscalar("s")\ngraph = s // 1\nvalues = {s: 1.5}',
        "1.0: floor division rounds down, also by 1",
    ),
    Report(
        "x // 1 becomes x in a loop",
        'x, s = pt.dvector("x"), pt.dscalar("s")\n'
        "graph = pytensor.scan(lambda a, t: (t + a) // 1, [x], [s], return_updates=False)\n"
        "values = {x: np.array([0.5, 0.25, 0.5]), s: 1.0}",
        "[1. 1. 1.]",
    ),
    Report(
        "Rows that are written twice are read as they were given",
        READ.format(last=1),
        "the row that was written last, twice",
    ),
    Report(
        "An index out of bounds is not seen if the written rows are read",
        READ.format(last=7),
        "an IndexError",
    ),
    Report(
        "x[:k][-1] reads behind the slice",
        'x, k = pt.dvector("x"), pt.lscalar("k")\ngraph = x[:k][-1]\n'
        "values = {x: np.arange(3.0), k: 0}",
        "an IndexError: the slice is empty",
    ),
    Report(
        "The product of scaled elements overflows",
        'x, s = pt.dvector("x"), pt.dscalar("s")\ngraph = pt.prod(x * s)\n'
        "values = {x: np.full(400, 1e-3), s: 1e3}",
        "1.0",
    ),
    Report(
        "switch(eq(x, x), x, 0) returns NaN",
        'x = pt.dvector("x")\ngraph = pt.switch(pt.eq(x, x), x, 0)\n'
        "values = {x: np.array([1.0, np.nan])}",
        "[1. 0.]: a NaN does not equal itself",
    ),
    Report(
        "switch(x <= x, x, 0) returns NaN",
        'x = pt.dvector("x")\ngraph = pt.switch(x <= x, x, 0)\n'
        "values = {x: np.array([1.0, np.nan])}",
        "[1. 0.]: a comparison with NaN is false",
    ),
    Report(
        "The sum of an alloc with a negative length has a value",
        's, k = pt.dscalar("s"), pt.lscalar("k")\ngraph = pt.alloc(s, k).sum()\n'
        "values = {s: 1.0, k: -2}",
        "a ValueError: the length is negative",
    ),
    Report(
        "The sum of an alloc without elements is NaN",
        's, k = pt.dscalar("s"), pt.lscalar("k")\ngraph = pt.alloc(s, k, k).sum()\n'
        "values = {s: np.nan, k: 0}",
        "0.0: the sum of no elements",
    ),
    Report(
        "A slice of an alloc with a negative length has a value",
        's, k = pt.dscalar("s"), pt.lscalar("k")\ngraph = pt.alloc(s, k)[-2:]\n'
        "values = {s: 1.0, k: -2}",
        "a ValueError: the length is negative",
    ),
    Report(
        "The inverse of the inverse of a singular matrix",
        'A = pt.dmatrix("A")\ngraph = pt.linalg.inv(pt.linalg.inv(A))\n'
        "values = {A: np.ones((2, 2))}",
        "a LinAlgError: the matrix has no inverse",
    ),
    Report(
        "An index out of bounds is not seen in a product with 0",
        'x, k, j = pt.dvector("x"), pt.lscalar("k"), pt.lscalar("j")\ngraph = x[k:][j] * 0\n'
        "values = {x: np.arange(3.0), k: 1, j: 5}",
        "an IndexError",
    ),
    Report(
        "specify_shape is not checked if the shape is read",
        'x = pt.dvector("x")\ngraph = pt.specify_shape(x, 3).shape\nvalues = {x: np.arange(4.0)}',
        "an AssertionError: the shape is (4,)",
    ),
    Report(
        "log(x / 2) loses digits near 2",
        's = pt.dscalar("s")\ngraph = pt.log(s / 2)\nvalues = {s: 2.000001}',
        "4.99999875e-07: log(x) - log(2) cancels",
    ),
    Report(
        "x**2 * x**b adds the exponents in int8",
        's, b = pt.dscalar("s"), pt.bscalar("b")\ngraph = s**2 * s**b\n'
        "values = {s: 1.001, b: np.int8(127)}",
        "1.001**129 = 1.1376",
    ),
    Report(
        "-(b / 2) negates an int8",
        'b = pt.bscalar("b")\ngraph = abs(-(b / 2))\nvalues = {b: np.int8(-128)}',
        "64.0: -128 has no negative in int8, and 64.0 has one",
    ),
    Report(
        "sqrt(sqr(z)) becomes abs(z) for complex z",
        'z = pt.zscalar("z")\ngraph = pt.sqrt(pt.sqr(z))\nvalues = {z: -1 + 1j}',
        "1 - 1j",
    ),
    Report(
        "log(exp(z)) becomes z for complex z",
        'z = pt.zscalar("z")\ngraph = pt.log(pt.exp(z))\nvalues = {z: 1 + 4j}',
        "1 - 2.2832j: the imaginary part lies between -pi and pi",
    ),
    Report(
        "log(1 - sigmoid(c)) is computed in float16 for a bool",
        'c = pt.scalar("c", dtype="bool")\ngraph = pt.log(1 - pt.sigmoid(c))\n'
        "values = {c: np.bool_(True)}",
        "-1.3132617 in the dtype of the graph as written",
    ),
    Report(
        "n**-1 of an integer",
        'n = pt.lscalar("n")\ngraph = n**-1\nvalues = {n: 0}',
        "a ValueError, as for other negative powers of integers",
    ),
    Report(
        "uint8**2 is squared in uint8",
        'u = pt.scalar("u", dtype="uint8")\ngraph = u**2\nvalues = {u: np.uint8(255)}',
        "-511, the square in int16, which is the dtype of the result",
    ),
    Report(
        "A fused reciprocal is computed in float32 in Python",
        's = pt.dscalar("s")\ngraph = pt.exp(1 / s) * 2\nvalues = {s: 3.0}',
        "2.791224850172179; Reciprocal.impl divides np.float32(1.0) by a Python float, which has "
        "been a float32 since NumPy 2",
    ),
]


def main() -> None:
    """Write the files."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    folder.mkdir(exist_ok=True)
    for report in REPORTS:
        (folder / report.file).write_text(report.page(), encoding="utf-8")
        print(report.file, flush=True)


if __name__ == "__main__":
    main()
