"""Operations that belong to no type: copies, views, shapes, and Python functions."""

import importlib
import pickle

import numpy as np
from pytensor.compile.debug.debugmode import OutputGuard
from pytensor.gradient import DisconnectedType
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.type import Type
from pytensor.tensor.basic import as_tensor_variable, get_scalar_constant_value
from pytensor.tensor.exceptions import NotScalarConstantError
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.type import DenseTensorType

from ..gof.op import Op

_output_guard = OutputGuard()
_shape = Shape()
expandable_types = ()


def shape_i_op(i):
    """Return the operation that gives the length of axis `i`."""
    return Shape_i(i)


def load_back(mod, name):
    """Return an object by its module and name."""
    return getattr(importlib.import_module(mod), name)


class SpecifyShape(Op):
    """Check the shape of a tensor, and let rewrites take it for granted.

    PyTensor's operation takes the lengths one by one, gives its result a static shape, and refuses
    a wrong number of them by a ValueError.
    """

    view_map = {0: [0]}
    __props__ = ()

    def make_node(self, x, shape):
        """Take a tensor, and its shape as a vector or what can be made one."""
        x = x if isinstance(x, Variable) else as_tensor_variable(x)
        shape = as_tensor_variable(shape)
        assert shape.ndim == 1, f"a shape is a vector, and not of {shape.ndim} dimensions"
        assert np.issubdtype(shape.dtype, np.integer), f"a shape of {shape.dtype}"
        if isinstance(shape, Constant):
            self._check_rank(shape.data, x.ndim)
        return Apply(self, [x, shape], [x.type()])

    def _check_rank(self, shape, ndim):
        if len(shape) != ndim:
            raise AssertionError(
                f"SpecifyShape: vector of shape has {len(shape)} elements, but the input has "
                f"{ndim} dimensions."
            )

    def perform(self, node, inputs, outputs):
        """Check the shape and pass the tensor on."""
        x, shape = inputs
        self._check_rank(shape, x.ndim)
        if not np.array_equal(x.shape, shape):
            raise AssertionError(
                f"SpecifyShape: Got shape {x.shape}, expected {tuple(shape.tolist())}."
            )
        outputs[0][0] = x

    def c_code(self, node, name, inputs, outputs, sub):
        """Check the shape and pass the tensor on."""
        if not isinstance(node.inputs[0].type, DenseTensorType):
            raise NotImplementedError("C code for dense tensors only")
        (x, shape), (out,) = inputs, outputs
        return f"""
            if (PyArray_DIMS({shape})[0] != PyArray_NDIM({x})) {{
                PyErr_Format(PyExc_AssertionError, "SpecifyShape: vector of shape has %lld"
                    " elements, but the input has %d dimensions.",
                    (long long)PyArray_DIMS({shape})[0], PyArray_NDIM({x}));
                {sub["fail"]}
            }}
            for (int i = 0; i < PyArray_NDIM({x}); i++) {{
                long long length = *(dtype_{shape}*)PyArray_GETPTR1({shape}, i);
                if (PyArray_DIMS({x})[i] != length) {{
                    PyErr_Format(PyExc_AssertionError,
                        "SpecifyShape: dim %d of input has shape %lld, expected %lld.",
                        i, (long long)PyArray_DIMS({x})[i], length);
                    {sub["fail"]}
                }}
            }}
            Py_XDECREF({out});
            {out} = {x};
            Py_INCREF({out});
        """

    def c_code_cache_version(self):
        """Return the version of the C code."""
        return (1,)

    def infer_shape(self, *args):
        """Return the shape that is specified."""
        node = args[-2]  # PyTensor 3.0 passes the graph before it.
        lengths = [node.inputs[1][i] for i in range(node.inputs[0].ndim)]
        for i, length in enumerate(lengths):
            try:
                lengths[i] = as_tensor_variable(get_scalar_constant_value(length))
            except NotScalarConstantError:
                continue
        return [lengths]

    def connection_pattern(self, node):
        """Tell that the shape has no gradient."""
        return [[True], [False]]

    def pullback(self, inputs, outputs, cotangents):
        """Return the gradient as it is."""
        return [cotangents[0], DisconnectedType()()]

    def pushforward(self, inputs, outputs, tangents):
        """Specify the shape of the tangent, too."""
        if isinstance(tangents[0].type, DisconnectedType):
            return [tangents[0]]
        return [self(tangents[0], inputs[1])]


specify_shape = SpecifyShape()


class FromFunctionOp(Op):
    """An operation that calls a Python function."""

    def __init__(self, fn, itypes, otypes, infer_shape):
        self._fn = fn
        self.itypes = itypes
        self.otypes = otypes
        if infer_shape is not None:
            self._infer_shape = infer_shape
            self.infer_shape = self._call_infer_shape

    def __eq__(self, other):
        return type(self) is type(other) and self._fn == other._fn

    def __hash__(self):
        return hash((type(self), self._fn))

    def __str__(self):
        return f"FromFunctionOp{{{self._fn.__name__}}}"

    def perform(self, node, inputs, outputs):
        results = self._fn(*inputs)
        if not isinstance(results, list | tuple):
            results = (results,)
        for storage, result in zip(outputs, results, strict=True):
            storage[0] = result

    def _call_infer_shape(self, *args):
        # PyTensor 3.0 passes the graph before these two.
        node, input_shapes = args[-2:]
        return self._infer_shape(node, input_shapes)

    def __reduce__(self):
        module, name = self._fn.__module__, self._fn.__name__
        try:
            found = load_back(module, name)
        except (ImportError, KeyError, AttributeError):
            raise pickle.PicklingError(
                f"Can't pickle as_op(), not found as {module}.{name}"
            ) from None
        if found is not self:
            raise pickle.PicklingError(f"Can't pickle as_op(), not the object at {module}.{name}")
        return load_back, (module, name)


def as_op(itypes, otypes, infer_shape=None):
    """Make an operation from a Python function.

    Parameters
    ----------
    itypes, otypes : Type or list of Type
        Of its inputs and outputs.
    infer_shape : callable, optional
        ``infer_shape(node, input_shapes)`` returns the shapes of the outputs.

    Raises
    ------
    TypeError
        If an argument is not a type.
    """
    types = []
    for name, given in (("itypes", itypes), ("otypes", otypes)):
        given = list(given) if isinstance(given, list | tuple) else [given]
        if not all(isinstance(t, Type) for t in given):
            raise TypeError(f"{name} has to be a list of Theano types")
        types.append(given)
    if infer_shape is not None and not callable(infer_shape):
        raise TypeError("infer_shape needs to be a callable")

    def make_op(fn):
        return FromFunctionOp(fn, *types, infer_shape)

    return make_op
