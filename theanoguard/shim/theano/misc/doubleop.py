"""The operation that Theano's documentation writes as its first."""

import numpy as np

from .. import gof, tensor


class DoubleOp(gof.Op):
    """Twice its input."""

    __props__ = ()

    def make_node(self, x):
        x = tensor.as_tensor_variable(x)
        return gof.Apply(self, [x], [x.type()])

    def perform(self, node, inputs, output_storage):
        output_storage[0][0] = np.multiply(inputs[0], 2, dtype=inputs[0].dtype)

    def infer_shape(self, node, i0_shapes):
        return i0_shapes

    def grad(self, inputs, output_grads):
        return [output_grads[0] * 2]

    def R_op(self, inputs, eval_points):
        if eval_points[0] is None:
            return eval_points
        return self.grad(inputs, eval_points)
