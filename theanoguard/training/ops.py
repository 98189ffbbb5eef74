"""Operations on many arrays at once that pass over each of them once, at memory speed."""

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from threading import Lock
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor import config
from pytensor.compile.mode import Mode, optdb
from pytensor.gradient import DisconnectedType, disconnected_type
from pytensor.graph.basic import Apply, Variable
from pytensor.link.c.op import COp
from pytensor.tensor.type import TensorType

from theanoguard._pytensor import input_shapes
from theanoguard._pytensor.on_demand import LoadModule

FLOATS = ("float32", "float64")


# Functions of their own: of many loops in one, compilers vectorise none.  Sums and maxima go in
# lanes: with one, each addition would wait for the last.
_KERNELS = """
#include <float.h>
#include <math.h>

template <int power> static inline double tg_power(double x) { return power == 2 ? x * x : x; }

template <int power, typename T> static __attribute__((noinline))
double tg_sum(const T *p, npy_intp n) {
    double sums[LANES] = {0};
    npy_intp i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) sums[j] += tg_power<power>(p[i + j]);
    for (; i < n; i++) sums[0] += tg_power<power>(p[i]);
    for (int j = 1; j < LANES; j++) sums[0] += sums[j];
    return sums[0];
}

// Blocks, since a loop that may leave at any element cannot be vectorised.
template <typename T> static __attribute__((noinline))
bool tg_all_within(const T *p, npy_intp n, double limit) {
    for (npy_intp start = 0; start < n; start += 4096) {
        const npy_intp end = start + 4096 < n ? start + 4096 : n;
        int bad = 0;
        for (npy_intp i = start; i < end; i++) bad |= !(fabs((double)p[i]) <= limit);
        if (bad) return false;
    }
    return true;
}

template <typename T> static __attribute__((noinline))
void tg_range(const T *p, npy_intp n, T *lowest, T *highest) {
    T low[LANES], high[LANES];
    for (int j = 0; j < LANES; j++) { low[j] = *lowest; high[j] = *highest; }
    npy_intp i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) {
            low[j] = p[i + j] < low[j] ? p[i + j] : low[j];
            high[j] = p[i + j] > high[j] ? p[i + j] : high[j];
        }
    for (; i < n; i++) {
        low[0] = p[i] < low[0] ? p[i] : low[0];
        high[0] = p[i] > high[0] ? p[i] : high[0];
    }
    for (int j = 0; j < LANES; j++) {
        *lowest = low[j] < *lowest ? low[j] : *lowest;
        *highest = high[j] > *highest ? high[j] : *highest;
    }
}

template <typename T> static
double tg_largest(const T *p, npy_intp n) {
    T low = 0, high = 0;
    // By blocks that the cache holds, as all is read twice.
    for (npy_intp start = 0; start < n; start += 4096) {
        const npy_intp size = start + 4096 < n ? 4096 : n - start;
        if (!tg_all_within(p + start, size, NPY_MAX_OF(T))) return NPY_NAN;
        tg_range(p + start, size, &low, &high);
    }
    return -low > high ? -low : high;
}

template <typename T> static __attribute__((noinline))
npy_intp tg_zeros(const T *p, npy_intp n) {
    int zeros = 0;
    for (npy_intp i = 0; i < n; i++) zeros += p[i] == 0;
    return zeros;
}

template <typename T> static
void tg_summarise(const T *p, npy_intp n, double *row) {
    T low = (T)NPY_INFINITY, high = (T)-NPY_INFINITY, good[4096];
    double sum = 0, squares = 0;
    npy_intp zeros = 0, nan = 0, infinite = 0;
    for (npy_intp start = 0; start < n; start += 4096) {
        const T *q = p + start;
        npy_intp size = start + 4096 < n ? 4096 : n - start;
        zeros += tg_zeros(q, size);
        if (!tg_all_within(q, size, NPY_MAX_OF(T))) {  // only its finite elements count
            npy_intp kept = 0;
            for (npy_intp i = 0; i < size; i++) {
                nan += q[i] != q[i];
                infinite += q[i] == (T)NPY_INFINITY || q[i] == (T)-NPY_INFINITY;
                if (fabs((double)q[i]) <= NPY_MAX_OF(T)) good[kept++] = q[i];
            }
            q = good;
            size = kept;
        }
        tg_range(q, size, &low, &high);
        sum += tg_sum<1>(q, size);
        squares += tg_sum<2>(q, size);
    }
    const double all[8] = {(double)n, (double)low, (double)high, sum, squares,
                           (double)zeros, (double)nan, (double)infinite};
    for (int i = 0; i < 8; i++) row[i] = all[i];
}

template <typename T> static __attribute__((noinline))
void tg_scale(T *p, npy_intp n, T factor) {
    if (factor == 0)
        for (npy_intp i = 0; i < n; i++) p[i] = 0;
    else
        for (npy_intp i = 0; i < n; i++) p[i] *= factor;
}
""".replace("LANES", "32").replace("NPY_MAX_OF(T)", "(sizeof(T) == 4 ? FLT_MAX : DBL_MAX)")


def _look(variable: Variable, name: str, fail: str, body: str) -> str:
    """C code that runs `body` on the `n` numbers `p` of an array, in the order of its memory."""
    ctype = f"npy_{variable.type.dtype}"
    return f"""
    {{
        PyArrayObject *a = {name};
        if (PyArray_IS_C_CONTIGUOUS(a) || PyArray_IS_F_CONTIGUOUS(a)) Py_INCREF(a);
        else a = PyArray_GETCONTIGUOUS(a);
        if (a == NULL) {{ {fail} }}
        const {ctype} *p = (const {ctype} *)PyArray_DATA(a);
        const npy_intp n = PyArray_SIZE(a);
        {body}
        Py_DECREF(a);
    }}
    """


def scalar_output(output: str, dtype: str, value: str, fail: str) -> str:
    """C code that makes an output without dimensions."""
    return f"""
    Py_XDECREF({output});
    {output} = (PyArrayObject *)PyArray_EMPTY(0, NULL, NPY_{dtype.upper()}, 0);
    if ({output} == NULL) {{ {fail} }}
    *(npy_{dtype} *)PyArray_DATA({output}) = {value};
    """


class OverArrays(COp):
    """Base class of the operations below: any number of dense arrays of floats."""

    __props__: tuple[str, ...] = ()

    def as_floats(self, arrays: Sequence[Any]) -> list[Variable]:
        """Return the arrays as variables of float32 or float64."""
        arrays = [pt.as_tensor_variable(a) for a in arrays]
        for a in arrays:
            if a.type.dtype not in FLOATS:
                raise TypeError(
                    f"{a} has dtype {a.type.dtype}.\nGive arrays of {' or '.join(FLOATS)}."
                )
        return arrays

    def c_code_cache_version(self) -> tuple:
        return (6,)

    def c_support_code(self, **kwargs: Any) -> str:
        return _KERNELS


class _OfEach(OverArrays):
    """Numbers of each input: an entry of a float64 vector, or a row of a matrix."""

    width: int | None = None
    body: str
    """C code that fills ``row``, as for :func:`_look`."""

    def make_node(self, *arrays: Any) -> Apply:
        numbers = pt.dvector() if self.width is None else pt.dmatrix()
        # A square may be infinite where the norm is not; arrays are checked where they come from.
        numbers.tag.nan_guard_mode_check = False
        return Apply(self, self.as_floats(arrays), [numbers])

    def perform(self, node: Apply, inputs: list, output_storage: list[list]) -> None:
        output_storage[0][0] = np.array([self.of(a) for a in inputs], dtype="float64")

    def of(self, a: np.ndarray) -> Any:
        """Return the number or the row of an array, as the C code does."""
        raise NotImplementedError

    def c_code(
        self, node: Apply, name: str, inputs: list, outputs: list, sub: dict[str, str]
    ) -> str:
        (output,), fail, width = outputs, sub["fail"], self.width or 1
        looks = []
        for i, (array, variable) in enumerate(zip(inputs, node.inputs, strict=True)):
            row = f"npy_float64 *row = (npy_float64 *)PyArray_DATA({output}) + {i * width};"
            looks.append(_look(variable, array, fail, f"{row}{self.body}"))
        return f"""
        Py_XDECREF({output});
        npy_intp shape[2] = {{{len(inputs)}, {width}}};
        {output} = (PyArrayObject *)PyArray_EMPTY({node.outputs[0].ndim}, shape, NPY_FLOAT64, 0);
        if ({output} == NULL) {{ {fail} }}
        {" ".join(looks)}
        """


class SquaredNorms(_OfEach):
    """The sum of squares of each input, added up in float64."""

    body = "*row = tg_sum<2>(p, n);"

    def of(self, a: np.ndarray) -> Any:
        return np.square(a, dtype="float64").sum()

    def grad(self, inputs: list, output_gradients: list[Variable]) -> list[Variable]:
        (g,) = output_gradients
        return [pt.cast(2 * g[i] * x, x.type.dtype) for i, x in enumerate(inputs)]


class FirstBad(OverArrays):
    """The number of the first input with a NaN, an Inf or too large a value; -1 if there is none.

    `limit`: the largest good magnitude; None allows every finite value.
    """

    __props__ = ("limit",)

    def __init__(self, limit: float | None = None) -> None:
        self.limit = limit

    def make_node(self, *arrays: Any) -> Apply:
        return Apply(self, self.as_floats(arrays), [pt.lscalar()])

    def _largest(self, dtype: Any) -> float:
        largest = np.finfo(dtype).max
        return largest if self.limit is None else min(self.limit, largest)

    def perform(self, node: Apply, inputs: list, output_storage: list[list]) -> None:
        # (a NaN is not below the limit)
        bad = (i for i, a in enumerate(inputs) if not (np.abs(a) <= self._largest(a.dtype)).all())
        output_storage[0][0] = np.array(next(bad, -1), dtype="int64")

    def c_code(
        self, node: Apply, name: str, inputs: list, outputs: list, sub: dict[str, str]
    ) -> str:
        looks = []
        for i, (array, variable) in enumerate(zip(inputs, node.inputs, strict=True)):
            limit = float(self._largest(variable.type.dtype))
            body = f"if (!tg_all_within(p, n, {limit!r})) first = {i};"
            looks.append(f"if (first < 0) {_look(variable, array, sub['fail'], body)}")
        return f"""
        npy_int64 first = -1;
        {" ".join(looks)}
        {scalar_output(outputs[0], "int64", "first", sub["fail"])}
        """

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        return [[False]] * len(node.inputs)

    def grad(self, inputs: list, output_gradients: list[Variable]) -> list[Variable]:
        return [disconnected_type() for _ in inputs]


class Largest(_OfEach):
    """The largest magnitude in each input; NaN where not all is finite."""

    body = "*row = tg_largest(p, n);"

    def of(self, a: np.ndarray) -> Any:
        return np.abs(a).max(initial=0) if np.isfinite(a).all() else np.nan


class Keep(COp):
    """The new value where a condition holds, otherwise a copy of the old one.

    Neither is copied in the good case.
    """

    __props__ = ()
    view_map = {0: [1]}  # noqa: RUF012

    def make_node(self, ok: Variable, new: Variable, old: Variable) -> Apply:
        return Apply(self, [ok, new, old], [new.type()])

    def perform(self, node: Apply, inputs: list, output_storage: list[list]) -> None:
        ok, new, old = inputs
        # (the copy is neither of the two values that the graph goes on using)
        output_storage[0][0] = new if ok else copy.deepcopy(old)

    def c_code(
        self, node: Apply, name: str, inputs: list, outputs: list, sub: dict[str, str]
    ) -> str:
        if not isinstance(node.outputs[0].type, TensorType):
            raise NotImplementedError("only arrays have C code")
        ok, new, old = inputs
        return f"""
        Py_XDECREF({outputs[0]});
        if (*(npy_bool *)PyArray_DATA({ok})) {{
            {outputs[0]} = {new};
            Py_INCREF({outputs[0]});
        }} else {{
            {outputs[0]} = (PyArrayObject *)PyArray_NewCopy({old}, NPY_KEEPORDER);
            if ({outputs[0]} == NULL) {{ {sub["fail"]} }}
        }}
        """

    def c_code_cache_version(self) -> tuple:
        return (1,)


class ScaleEach(OverArrays):
    """Each array times its factor; the array itself, not copied, where the factor is one.

    A factor of zero makes zeros, of NaN and Inf too.  The factors are a float64 vector with an
    entry for each array, or one for all of them.  As the arrays go through whole, rewrites
    cannot move the factor into what computes them, which would then be computed twice.
    """

    def __init__(self, n: int) -> None:
        self.n = n
        self.view_map = {i: [i + 1] for i in range(n)}

    __props__ = ("n",)

    def make_node(self, factors: Any, *arrays: Any) -> Apply:
        scaled = self.as_floats(arrays)
        factors = pt.as_tensor_variable(factors).astype("float64")
        return Apply(self, [factors, *scaled], [a.type() for a in scaled])

    def perform(self, node: Apply, inputs: list, output_storage: list[list]) -> None:
        factors, *arrays = inputs
        factors = np.broadcast_to(factors, len(arrays))
        for cell, array, factor in zip(output_storage, arrays, factors, strict=True):
            if factor == 1:
                cell[0] = array
            elif factor == 0:
                cell[0] = np.zeros_like(array)
            else:
                cell[0] = np.asarray(array * array.dtype.type(factor))

    def c_code(
        self, node: Apply, name: str, inputs: list, outputs: list, sub: dict[str, str]
    ) -> str:
        factors, *arrays = inputs
        code = ""
        for i, (array, out) in enumerate(zip(arrays, outputs, strict=True)):
            ctype = f"npy_{node.outputs[i].type.dtype}"
            # A new reference to the input before the old output goes: they may be the same.
            code += f"""
        {{
            const double factor = *(npy_float64 *)PyArray_GETPTR1({factors},
                PyArray_SIZE({factors}) > 1 ? {i} : 0);
            PyArrayObject *a = {array};
            if (factor == 1) {{
                Py_INCREF(a);
            }} else {{
                a = (PyArrayObject *)PyArray_NewCopy(a, NPY_KEEPORDER);
                if (a == NULL) {{ {sub["fail"]} }}
                tg_scale(({ctype} *)PyArray_DATA(a), PyArray_SIZE(a), ({ctype})factor);
            }}
            Py_XDECREF({out});
            {out} = a;
        }}
        """
        return code

    def grad(self, inputs: list, output_gradients: list[Variable]) -> list[Variable]:
        factors, *arrays = inputs
        flows = [
            pt.zeros_like(a) if isinstance(g.type, DisconnectedType) else g
            for a, g in zip(arrays, output_gradients, strict=True)
        ]
        each = pt.stack(
            [(g * a).sum().astype("float64") for g, a in zip(flows, arrays, strict=True)]
        )
        for_factors = pt.switch(pt.eq(factors.size, 1), each.sum(), each)[: factors.size]
        return [for_factors, *ScaleEach(self.n)(factors, *flows, return_list=True)]

    def infer_shape(self, *args: Any) -> list:
        return input_shapes(args)[1:]


@dataclass(frozen=True)
class Summary:
    """Statistics of an array.  All but the counts use only its finite elements."""

    size: int  # number of elements
    min: float  # `min`, `max`, `mean`: NaN where there is no finite element
    max: float
    mean: float
    norm: float  # root of the sum of the squares, added up in float64
    zeros: float  # which part of all elements is zero, from 0 to 1
    n_nan: int  # `n_nan`, `n_inf`: how many elements are NaN, and infinite
    n_inf: int


class Summarise(_OfEach):
    """Size, minimum, maximum, sum, sum of squares, zeros, NaN and Inf of arrays, in one pass.

    Minimum, maximum and the sums are of the finite elements.
    """

    width = 8
    body = "tg_summarise(p, n, row);"

    def of(self, a: np.ndarray) -> Any:
        good = a[np.isfinite(a)]
        return (
            a.size,
            good.min(initial=np.inf),
            good.max(initial=-np.inf),
            good.sum(dtype="float64"),
            np.square(good, dtype="float64").sum(),
            a.size - np.count_nonzero(a),
            np.count_nonzero(np.isnan(a)),
            np.count_nonzero(np.isinf(a)),
        )


squared_norms = SquaredNorms()
keep = Keep()

optdb.register(
    "theanoguard_load_numba_training",
    LoadModule("theanoguard.training.numba"),
    "numba",
    position=0.0,
)


def scale_each(factors: Any, arrays: Sequence[Variable]) -> list[Variable]:
    """Return the arrays, each times its factor; see :class:`ScaleEach`."""
    return ScaleEach(len(arrays))(factors, *arrays, return_list=True)


_GROUP = 8


@cache
def _compiled(op: OverArrays, dtype: str) -> tuple[Callable, Lock, np.ndarray]:
    """Return a compiled function that applies an operation to a group of flat arrays."""
    arrays = [pt.vector(dtype=dtype) for _ in range(_GROUP)]
    mode = Mode("cvm" if config.cxx else "vm", None)
    fn = pytensor.function(arrays, op(*arrays), mode=mode)
    fn.trust_input = True
    # Its buffers belong to one caller at a time; the array fills up a group.
    return fn, Lock(), np.zeros(0, dtype)


def _apply(op: OverArrays, arrays: Sequence[Any]) -> Iterator[tuple[tuple[int, ...], np.ndarray]]:
    """Yield what an operation makes of groups of arrays, with the positions of the arrays."""
    by_dtype: dict[str, list[tuple[int, np.ndarray]]] = {}
    for i, array in enumerate(arrays):
        array = np.asarray(array)
        if array.dtype.char not in "fd":
            array = array.astype("float64")
        by_dtype.setdefault(array.dtype.char, []).append((i, array.ravel(order="K")))
    for char, members in by_dtype.items():
        fn, lock, nothing = _compiled(op, {"f": "float32", "d": "float64"}[char])
        for start in range(0, len(members), _GROUP):
            positions, flat = zip(*members[start : start + _GROUP], strict=True)
            with lock:
                yield positions, fn(*flat, *[nothing] * (_GROUP - len(flat)))


def summarise(arrays: Sequence[Any]) -> list[Summary]:
    """Return what there is to know of arrays, gathered in compiled code.

    Arrays have any shape; what is neither float32 nor float64 is read as float64.

    Examples
    --------
    >>> import numpy as np
    >>> from theanoguard.training.ops import summarise
    >>> summarise([np.array([0.0, 3.0, -4.5, np.nan])])
    [Summary(size=4, min=-4.5, max=3.0, mean=-0.5, norm=5.40..., zeros=0.25, n_nan=1, n_inf=0)]
    """
    summaries: dict[int, Summary] = {}
    for positions, rows in _apply(Summarise(), arrays):
        for i, row in zip(positions, rows.tolist(), strict=False):
            summaries[i] = _summary(row)
    return [summaries[i] for i in range(len(arrays))]


def _summary(row: Sequence[float]) -> Summary:
    size, low, high, total, squares, zeros, n_nan, n_inf = row
    finite = size - n_nan - n_inf
    nan = float("nan")
    return Summary(
        size=int(size),
        min=low if finite else nan,
        max=high if finite else nan,
        mean=total / finite if finite else nan,
        norm=squares**0.5,
        zeros=zeros / size if size else nan,
        n_nan=int(n_nan),
        n_inf=int(n_inf),
    )


def not_finite(arrays: Sequence[Any]) -> list[int]:
    """Return the positions of the arrays that hold NaN or Inf, looked at in compiled code."""
    return [
        i
        for positions, first in _apply(FirstBad(), arrays)
        if first >= 0
        for i in positions[int(first) :]
        if not np.isfinite(arrays[i]).all()
    ]
