"""Theano's ``theano.tensor.blas``."""

import numpy as np
from pytensor.graph import Apply, Op
from pytensor.tensor import as_tensor_variable
from pytensor.tensor.blas import BatchedDot

batched_dot = BatchedDot()
have_fblas = True


class Ger(Op):
    """Compute ``A + alpha * outer(x, y)``, as BLAS's ``ger`` does.

    No rewrite makes it: PyTensor computes an outer product by other operations.
    """

    __props__ = ("destructive",)

    def __init__(self, destructive):
        self.destructive = destructive
        if destructive:
            self.destroy_map = {0: [0]}

    def __str__(self):
        kind = "destructive" if self.destructive else "non-destructive"
        return f"{type(self).__name__}{{{kind}}}"

    def make_node(self, A, alpha, x, y):
        operands = [as_tensor_variable(operand) for operand in (A, alpha, x, y)]
        dtypes = tuple(operand.dtype for operand in operands)
        if len({*dtypes}) > 1:
            raise TypeError("ger requires matching dtypes", dtypes)
        for operand, ndim, wanted in zip(
            operands,
            (2, 0, 1, 1),
            ("matrix for A", "scalar alpha", "vector for x", "vector for y"),
            strict=True,
        ):
            if operand.ndim != ndim:
                raise TypeError(f"ger requires {wanted}", operand.type)
        if dtypes[0] not in ("float32", "float64", "complex64", "complex128"):
            raise TypeError("only float and complex types supported", dtypes[0])
        return Apply(self, operands, [operands[0].type()])

    def perform(self, node, inputs, output_storage):
        A, alpha, x, y = inputs
        A = A if self.destructive else A.copy()
        A += alpha * np.outer(x, y)
        output_storage[0][0] = A

    def infer_shape(self, *args):
        return [args[-1][0]]


ger = Ger(destructive=False)
ger_destructive = Ger(destructive=True)
