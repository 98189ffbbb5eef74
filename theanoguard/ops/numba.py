"""What Numba compiles for the operations of this package.

Loaded when a graph is compiled for Numba: importing Numba's side of PyTensor takes longer, and
more memory, than all the rest.
"""

import numba
import numpy as np
from pytensor.link.numba.dispatch import numba_funcify
from pytensor.link.numba.dispatch.basic import numba_njit

from theanoguard.ops.asserts import Assert
from theanoguard.ops.print import After, Print, PrintBeside


@numba_funcify.register(Assert)
def numba_funcify_assert(op, node, **kwargs):
    n = len(op.conditions)
    report = op.report

    def report_all(inputs):
        report(*inputs)

    @numba_njit
    def check(value, *rest):
        holds = True
        for condition in rest[:n]:
            if not condition.item():
                holds = False
        if not holds:
            with numba.objmode():
                report_all(rest)
        return value

    if n == 0:
        return numba_njit(lambda value: value)
    return check


@numba_funcify.register(Print)
def numba_funcify_print(op, node, **kwargs):
    def show(x):
        op.global_fn(op, x)

    @numba_njit
    def print_value(x):
        with numba.objmode():
            show(x)
        return x

    return print_value


@numba_funcify.register(PrintBeside)
def numba_funcify_print_beside(op, node, **kwargs):
    print_op = op.print_op

    def show(x):
        print_op.global_fn(print_op, x)

    @numba_njit
    def print_value(x):
        with numba.objmode():
            show(x)
        return np.array(True)

    return print_value


@numba_funcify.register(After)
def numba_funcify_after(op, node, **kwargs):
    @numba_njit
    def after(x, *tokens):
        return x

    return after
