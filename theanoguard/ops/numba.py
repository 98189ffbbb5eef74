"""Numba code for the operations of this package.

Loaded when a graph is compiled for Numba: importing Numba's side of PyTensor takes longer, and
more memory, than all the rest.
"""

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from pytensor.graph.basic import Apply

from theanoguard._pytensor.numba import numba_funcify, numba_njit
from theanoguard.ops.asserts import Assert
from theanoguard.ops.print import After, Print, PrintBeside


@numba_funcify.register(Assert)
def numba_funcify_assert(op: Assert, node: Apply, **kwargs: Any) -> Callable:
    n = len(op.conditions)
    report = op.report

    def report_all(inputs: tuple) -> None:
        report(*inputs)

    @numba_njit
    def check(value: Any, *rest: Any) -> Any:
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
def numba_funcify_print(op: Print, node: Apply, **kwargs: Any) -> Callable:
    def show(x: Any) -> None:
        op.global_fn(op, x)

    @numba_njit
    def print_value(x: Any) -> Any:
        with numba.objmode():
            show(x)
        return x

    return print_value


@numba_funcify.register(PrintBeside)
def numba_funcify_print_beside(op: PrintBeside, node: Apply, **kwargs: Any) -> Callable:
    print_op = op.print_op

    def show(x: Any) -> None:
        print_op.global_fn(print_op, x)

    @numba_njit
    def print_value(x: Any) -> Any:
        with numba.objmode():
            show(x)
        return np.array(True)

    return print_value


@numba_funcify.register(After)
def numba_funcify_after(op: After, node: Apply, **kwargs: Any) -> Callable:
    @numba_njit
    def after(x: Any, *tokens: Any) -> Any:
        return x

    return after
