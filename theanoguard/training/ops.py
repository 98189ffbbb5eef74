"""Operations on many arrays at once that pass over each of them once, at memory speed."""

import copy

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import disconnected_type
from pytensor.graph.basic import Apply
from pytensor.link.c.op import COp
from pytensor.tensor.type import TensorType

FLOATS = ("float32", "float64")


def _look(variable, name, fail, body):
    """C code that runs `body` on the `n` numbers `p` of an array."""
    ctype = f"npy_{variable.type.dtype}"
    return f"""
    {{
        PyArrayObject *a = PyArray_GETCONTIGUOUS({name});
        if (a == NULL) {{ {fail} }}
        const {ctype} *p = (const {ctype} *)PyArray_DATA(a);
        npy_intp n = PyArray_SIZE(a);
        {body}
        Py_DECREF(a);
    }}
    """


class _OverArrays(COp):
    """What the operations below have in common: any number of dense arrays of floats."""

    __props__ = ()

    def as_floats(self, arrays):
        """Return the arrays as variables of float32 or float64."""
        arrays = [pt.as_tensor_variable(a) for a in arrays]
        for a in arrays:
            if a.type.dtype not in FLOATS:
                raise TypeError(
                    f"{a} has dtype {a.type.dtype}.\nGive arrays of {' or '.join(FLOATS)}."
                )
        return arrays

    def c_support_code(self, **kwargs):
        return "#include <float.h>\n#include <math.h>"


class SquaredNorms(_OverArrays):
    """The sum of squares of each input, added up in float64.

    The output is a float64 vector with an entry for each input.
    """

    def make_node(self, *arrays):
        return Apply(self, self.as_floats(arrays), [pt.dvector()])

    def perform(self, node, inputs, output_storage):
        sums = [np.square(a, dtype="float64").sum() for a in inputs]
        output_storage[0][0] = np.array(sums, dtype="float64")

    def c_code(self, node, name, inputs, outputs, sub):
        (z,) = outputs
        # Eight sums: one would make each addition wait for the last.
        body = f"""
        double sums[8] = {{0}};
        npy_intp i = 0;
        for (; i + 8 <= n; i += 8)
            for (int j = 0; j < 8; j++) sums[j] += (double)p[i + j] * (double)p[i + j];
        for (; i < n; i++) sums[0] += (double)p[i] * (double)p[i];
        for (int j = 1; j < 8; j++) sums[0] += sums[j];
        *(npy_float64 *)PyArray_GETPTR1({z}, NUMBER) = sums[0];
        """
        make = f"""
        Py_XDECREF({z});
        npy_intp shape = {len(inputs)};
        {z} = (PyArrayObject *)PyArray_EMPTY(1, &shape, NPY_FLOAT64, 0);
        if ({z} == NULL) {{ {sub["fail"]} }}
        """
        looks = (
            _look(variable, array, sub["fail"], body.replace("NUMBER", str(i)))
            for i, (array, variable) in enumerate(zip(inputs, node.inputs, strict=True))
        )
        return f"{{ {make} {' '.join(looks)} }}"

    def grad(self, inputs, output_gradients):
        (g,) = output_gradients
        return [pt.cast(2 * g[i] * x, x.type.dtype) for i, x in enumerate(inputs)]

    def c_code_cache_version(self):
        return (1,)


class FirstBad(_OverArrays):
    """The number of the first input with a NaN, an Inf or too large a value; -1 if there is none.

    Parameters
    ----------
    limit : float or None
        The largest good magnitude; None allows every finite value.
    """

    __props__ = ("limit",)

    def __init__(self, limit=None):
        self.limit = limit

    def make_node(self, *arrays):
        return Apply(self, self.as_floats(arrays), [pt.lscalar()])

    def _largest(self, dtype):
        largest = np.finfo(dtype).max
        return largest if self.limit is None else min(self.limit, largest)

    def perform(self, node, inputs, output_storage):
        bad = (
            i
            for i, a in enumerate(inputs)
            # (a NaN is not below the limit)
            if not (np.abs(a) <= self._largest(a.dtype)).all()
        )
        output_storage[0][0] = np.array(next(bad, -1), dtype="int64")

    def c_code(self, node, name, inputs, outputs, sub):
        looks = []
        for i, (array, variable) in enumerate(zip(inputs, node.inputs, strict=True)):
            # Blocks, since a loop that may leave at any element cannot be vectorised.
            body = f"""
            const double limit = {float(self._largest(variable.type.dtype))!r};
            for (npy_intp start = 0; start < n && first < 0; start += 4096) {{
                npy_intp end = start + 4096 < n ? start + 4096 : n;
                int bad = 0;
                for (npy_intp i = start; i < end; i++) bad |= !(fabs((double)p[i]) <= limit);
                if (bad) first = {i};
            }}
            """
            looks.append(f"if (first < 0) {_look(variable, array, sub['fail'], body)}")
        looks = "\n".join(looks)
        return f"""
        npy_int64 first = -1;
        {looks}
        Py_XDECREF({outputs[0]});
        {outputs[0]} = (PyArrayObject *)PyArray_EMPTY(0, NULL, NPY_INT64, 0);
        if ({outputs[0]} == NULL) {{ {sub["fail"]} }}
        *(npy_int64 *)PyArray_DATA({outputs[0]}) = first;
        """

    def connection_pattern(self, node):
        return [[False]] * len(node.inputs)

    def grad(self, inputs, output_gradients):
        return [disconnected_type() for _ in inputs]

    def c_code_cache_version(self):
        return (1,)


class Keep(COp):
    """The new value where a condition holds, otherwise a copy of the old one.

    Neither is copied in the good case.
    """

    __props__ = ()
    view_map = {0: [1]}  # noqa: RUF012

    def make_node(self, ok, new, old):
        return Apply(self, [ok, new, old], [new.type()])

    def perform(self, node, inputs, output_storage):
        ok, new, old = inputs
        # (the copy is neither of the two values that the graph goes on using)
        output_storage[0][0] = new if ok else copy.deepcopy(old)

    def c_code(self, node, name, inputs, outputs, sub):
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

    def c_code_cache_version(self):
        return (1,)


squared_norms = SquaredNorms()
keep = Keep()
