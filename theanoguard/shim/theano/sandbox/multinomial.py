"""Outcomes of multinomial distributions from samples of the uniform distribution."""

import warnings

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply
from pytensor.link.c.op import COp
from pytensor.scalar.basic import as_scalar
from pytensor.tensor.type import TensorType, discrete_dtypes

_C_CHECKS = """
    if (PyArray_DIM({unis}, 0) != PyArray_DIM({pvals}, 0) * (npy_intp){n}) {{
        PyErr_SetString(PyExc_ValueError, "unis.shape[0] != pvals.shape[0] * n");
        {fail}
    }}
"""

_C_ALLOCATE = """
    if ({z} == NULL || PyArray_DIM({z}, 0) != PyArray_DIM({pvals}, 0)
            || PyArray_DIM({z}, 1) != {columns}) {{
        npy_intp dims[2] = {{PyArray_DIM({pvals}, 0), {columns}}};
        Py_XDECREF({z});
        {z} = (PyArrayObject*)PyArray_SimpleNew(2, dims, {typenum});
        if ({z} == NULL) {{ {fail} }}
    }}
"""

# The sums are of doubles whatever the dtype, as in `_first_above`.
_C_COUNT = """
    {{
        const npy_intp rows = PyArray_DIM({pvals}, 0), outcomes = PyArray_DIM({pvals}, 1);
        for (npy_intp row = 0; row < rows; ++row)
            for (npy_intp m = 0; m < outcomes; ++m)
                *(dtype_{z}*)PyArray_GETPTR2({z}, row, m) = 0;
        for (npy_intp c = 0; c < (npy_intp){n}; ++c)
            for (npy_intp row = 0; row < rows; ++row) {{
                const double u = *(dtype_{unis}*)PyArray_GETPTR1({unis}, c * rows + row);
                double sum = 0.;
                for (npy_intp m = 0; m < outcomes; ++m) {{
                    sum += *(dtype_{pvals}*)PyArray_GETPTR2({pvals}, row, m);
                    if (sum > u) {{
                        *(dtype_{z}*)PyArray_GETPTR2({z}, row, m) += 1;
                        break;
                    }}
                }}
            }}
    }}
"""

_C_CHOOSE = """
    if ((npy_intp){n} > PyArray_DIM({pvals}, 1)) {{
        PyErr_SetString(PyExc_ValueError, "Cannot sample without replacement n samples "
                        "bigger than the size of the distribution.");
        {fail}
    }}
    {{
        const npy_intp rows = PyArray_DIM({pvals}, 0), outcomes = PyArray_DIM({pvals}, 1);
        dtype_{pvals}* left = (dtype_{pvals}*)malloc((outcomes + 1) * sizeof(dtype_{pvals}));
        if (left == NULL) {{
            PyErr_NoMemory();
            {fail}
        }}
        for (npy_intp row = 0; row < rows; ++row) {{
            for (npy_intp m = 0; m < outcomes; ++m)
                left[m] = *(dtype_{pvals}*)PyArray_GETPTR2({pvals}, row, m);
            for (npy_intp c = 0; c < (npy_intp){n}; ++c) {{
                const double u = *(dtype_{unis}*)PyArray_GETPTR1({unis}, c * rows + row);
                dtype_{z}* chosen = (dtype_{z}*)PyArray_GETPTR2({z}, row, c);
                double sum = 0.;
                *chosen = -1;
                for (npy_intp m = 0; m < outcomes; ++m) {{
                    sum += left[m];
                    if (sum > u) {{
                        *chosen = m;
                        if (!{replace}) {{
                            dtype_{pvals} rest = sum - left[m];
                            left[m] = 0;
                            for (npy_intp k = m; k < outcomes; ++k) rest += left[k];
                            for (npy_intp k = 0; k < outcomes; ++k) left[k] /= rest;
                        }}
                        break;
                    }}
                }}
            }}
        }}
        free(left);
    }}
"""


def _first_above(pvals, unis):
    """Return the rows in which the summed probability exceeds `unis`, and where it first does."""
    above = np.cumsum(pvals, axis=1, dtype="float64") > unis[:, None]
    rows = np.flatnonzero(above.any(axis=1))
    return rows, above[rows].argmax(axis=1)


def _taken_out(left, outcome):
    """Set the probability of `outcome` to zero and scale the others up, in the C code's order."""
    before = np.cumsum(left[: outcome + 1], dtype="float64")[-1] - left[outcome]
    left[outcome] = 0
    left /= np.cumsum([left.dtype.type(before), *left[outcome:]], dtype=left.dtype)[-1]


class MultinomialFromUniform(COp):
    """How often each outcome comes up.

    Parameters
    ----------
    odtype : str
        The dtype of the counts; ``"auto"`` takes that of the probabilities.
    """

    __props__ = ("odtype",)

    def __init__(self, odtype):
        self.odtype = odtype

    def __setstate__(self, state):
        self.__dict__.update({"odtype": "auto"} | state)

    def __str__(self):
        return f"{type(self).__name__}{{{self.odtype}}}"

    def _output_dtype(self, pvals):
        return pvals.dtype if self.odtype == "auto" else self.odtype

    def make_node(self, pvals, unis, n=1):
        pvals, unis = pt.as_tensor_variable(pvals), pt.as_tensor_variable(unis)
        if pvals.ndim != 2:
            raise NotImplementedError("pvals ndim should be 2", pvals.ndim)
        if unis.ndim != 1:
            raise NotImplementedError("unis ndim should be 1", unis.ndim)
        ones = [1 if one else None for one in pvals.type.broadcastable]
        out = TensorType(self._output_dtype(pvals), shape=ones)()
        return Apply(self, [pvals, unis, as_scalar(n)], [out])

    def pullback(self, inputs, outputs, cotangents):
        return [
            pt.zeros_like(x, dtype="floatX" if x.dtype in discrete_dtypes else None) for x in inputs
        ]

    def perform(self, node, inputs, outputs):
        pvals, unis, n = _three(inputs)
        n = int(n)  # a constant is of int8, in which the lengths below are too long
        rows = len(pvals)
        _check_lengths(pvals, unis, n)
        counts = np.zeros(pvals.shape, dtype=node.outputs[0].dtype)
        for c in range(n):
            counts[_first_above(pvals, unis[c * rows : (c + 1) * rows])] += 1
        outputs[0][0] = counts

    def c_code(self, node, name, inputs, outputs, sub):
        pvals, unis, n = _three(inputs)
        code = _C_CHECKS + _C_ALLOCATE + _C_COUNT
        return code.format(
            pvals=pvals,
            unis=unis,
            n=n,
            z=outputs[0],
            columns=f"PyArray_DIM({pvals}, 1)",
            typenum=f"NPY_{node.outputs[0].dtype.upper()}",
            fail=sub["fail"],
        )

    def c_code_cache_version(self):
        return (1,)


def _three(inputs):
    """Return the inputs of a node; graphs pickled by early versions have no number of draws."""
    return inputs if len(inputs) == 3 else [*inputs, 1]


def _check_lengths(pvals, unis, n):
    if len(unis) != len(pvals) * n:
        raise ValueError("unis.shape[0] != pvals.shape[0] * n", len(unis), len(pvals), n)


class ChoiceFromUniform(MultinomialFromUniform):
    """Which outcomes are drawn, one to a column.

    Parameters
    ----------
    odtype : str
        The dtype of the outcomes; ``"auto"`` is int64.
    replace : bool
        Whether an outcome may be drawn twice.
    """

    __props__ = ("odtype", "replace")

    def __init__(self, odtype, replace=False):
        super().__init__(odtype)
        self.replace = replace

    def __setstate__(self, state):
        super().__setstate__({"replace": False} | state)

    def _output_dtype(self, pvals):
        return "int64" if self.odtype == "auto" else self.odtype

    def perform(self, node, inputs, outputs):
        pvals, unis, n = inputs
        n = int(n)
        rows, columns = pvals.shape
        if n > columns:
            raise ValueError(
                "Cannot sample without replacement n samples "
                "bigger than the size of the distribution."
            )
        _check_lengths(pvals, unis, n)
        left = pvals.copy()
        chosen = np.full((rows, n), -1, dtype=node.outputs[0].dtype)
        for c in range(n):
            found, outcomes = _first_above(left, unis[c * rows : (c + 1) * rows])
            chosen[found, c] = outcomes
            if not self.replace:
                for row, outcome in zip(found, outcomes, strict=True):
                    _taken_out(left[row], outcome)
        outputs[0][0] = chosen

    def c_code(self, node, name, inputs, outputs, sub):
        pvals, unis, n = inputs
        code = _C_CHECKS + _C_ALLOCATE + _C_CHOOSE
        return code.format(
            pvals=pvals,
            unis=unis,
            n=n,
            z=outputs[0],
            columns=f"(npy_intp){n}",
            typenum=f"NPY_{node.outputs[0].dtype.upper()}",
            replace=int(self.replace),
            fail=sub["fail"],
        )


class MultinomialWOReplacementFromUniform(ChoiceFromUniform):
    """`ChoiceFromUniform` under its former name."""

    def __init__(self, *args, **kwargs):
        warnings.warn(
            "MultinomialWOReplacementFromUniform is deprecated, use ChoiceFromUniform instead.",
            DeprecationWarning,
            stacklevel=2,
        )
        super().__init__(*args, **kwargs)
