"""Interval programs: how bounds go through an operation, as instructions on bounds.

The arithmetic is that of Moore, *Interval Analysis* (1966).  ``bounds.py`` has what each
instruction does; here stands which instructions an operation is made of.
"""

from functools import singledispatch

import numpy as np
import pytensor.scalar as ps
from pytensor.graph.basic import Constant
from pytensor.scalar import math as psm
from pytensor.tensor import blas
from pytensor.tensor.basic import Alloc, Join, MakeVector
from pytensor.tensor.elemwise import CAReduce, Elemwise
from pytensor.tensor.math import Dot
from pytensor.tensor.special import Softmax
from pytensor.tensor.subtensor import IncSubtensor

from theanoguard._pytensor import advanced_increment_ops, ger_ops
from theanoguard.operations.facts import SCALARS


class NoProgram(Exception):
    """The operation has no interval rule, or not for these types."""


class Program:
    """Writes the program of one node.  Its subclass runs each instruction at once.

    A register holds the bounds of a value; the first ones are those of the node's inputs.
    """

    def emit(self, opcode, a=-1, b=-1, c=-1, k=0.0, k2=0.0):
        """Run one instruction; return the register of its result."""
        raise NotImplementedError

    def constant(self, value):
        """Emit a register that holds one number."""
        return self.emit("CONST", k=float(value), k2=float(value))

    def fold(self, opcode, registers):
        """Emit `opcode` between all `registers`, from the left."""
        result, *rest = registers
        for register in rest:
            result = self.emit(opcode, result, register)
        return result


# ---------------------------------------------------------------- scalar operations

# opcode for operations of one and of two (or, folded, of more) operands
UNARY = {
    ps.Neg: "NEG",
    ps.Abs: "ABS",
    ps.Sqr: "SQR",
    ps.Sqrt: "SQRT",
    ps.Exp: "EXP",
    ps.Expm1: "EXPM1",
    ps.Log: "LOG",
    ps.Log1p: "LOG1P",
    psm.Softplus: "SOFTPLUS",
}
FOLDED = {
    ps.Add: "ADD",
    ps.Mul: "MUL",
    ps.Sub: "SUB",
    ps.TrueDiv: "DIV",
    ps.ScalarMaximum: "MAX",
    ps.ScalarMinimum: "MIN",
}
# operations that give their operand
COPIES = {ps.Identity: 0, ps.Second: 1}


def _is_float(variable):
    return variable.type.dtype in ("float32", "float64")


def scalar_registers(program, op, operands, inputs, outputs):
    """Emit the rule of one scalar operation; return the registers of its results.

    Parameters
    ----------
    program : Program
    op : ScalarOp
    operands : list of int
        Registers of the operands.
    inputs, outputs : list of Variable
        Scalars or tensors, for their types.
    """
    kind = type(op)
    if isinstance(op, ps.Composite):
        return _composite_registers(program, op, operands)
    if len(outputs) != 1:
        raise NoProgram
    if outputs[0].type.dtype == "bool":
        return [program.emit("CONST", k=0.0, k2=1.0)]
    if not _is_float(outputs[0]):
        raise NoProgram
    if kind is ps.Cast and inputs[0].type.dtype == "bool":
        return [program.emit("CONST", k=0.0, k2=1.0)]
    if kind is ps.Switch:
        return [program.emit("UNION", operands[1], operands[2])]
    if kind is ps.Clip:
        return [program.emit("MIN", program.emit("MAX", operands[0], operands[1]), operands[2])]
    operands = list(operands)
    for i, variable in enumerate(inputs):
        if variable.type.dtype == "bool":
            operands[i] = program.emit("CONST", k=0.0, k2=1.0)
        elif not (_is_float(variable) or isinstance(variable, Constant)):
            raise NoProgram
    if kind is ps.Cast:
        return [operands[0]]
    if kind in COPIES:
        return [operands[COPIES[kind]]]
    if kind in UNARY:
        return [program.emit(UNARY[kind], operands[0])]
    if kind in FOLDED:
        return [program.fold(FOLDED[kind], operands)]
    if (known := SCALARS.get(kind)) and known.range:
        lo, hi = known.range
        return [program.emit("RANGE", operands[0], k=lo, k2=hi)]
    if kind is ps.Reciprocal:
        return [program.emit("DIV", program.constant(1.0), operands[0])]
    raise NoProgram


def _composite_registers(program, op, operands):
    graph = op.fgraph
    registers = dict(zip(graph.inputs, operands, strict=True))

    def register_of(variable):
        if variable not in registers:
            if not isinstance(variable, Constant):
                raise NoProgram
            registers[variable] = program.constant(variable.data)
        return registers[variable]

    for node in graph.toposort():
        operands = [register_of(v) for v in node.inputs]
        results = scalar_registers(program, node.op, operands, node.inputs, node.outputs)
        registers.update(zip(node.outputs, results, strict=True))
    return [register_of(v) for v in graph.outputs]


# ---------------------------------------------------------------- operations on tensors


@singledispatch
def registers_of(op, node, program):
    """Emit the rule of a node; return the registers of its outputs."""
    raise NoProgram


@registers_of.register(Elemwise)
def _(op, node, program):
    operands = list(range(len(node.inputs)))
    return scalar_registers(program, op.scalar_op, operands, node.inputs, node.outputs)


@registers_of.register(CAReduce)
def _(op, node, program):
    if isinstance(op.scalar_op, ps.ScalarMaximum | ps.ScalarMinimum):
        return [program.emit("UNION", 0, 0)]
    if not isinstance(op.scalar_op, ps.Add):
        raise NoProgram
    axes = range(node.inputs[0].type.ndim) if op.axis is None else op.axis
    result = 0
    for axis in axes:
        result = program.emit("MULDIM", result, 0, axis)
    return [program.emit("UNION", result, result)]


def _product(program, a, b, axis):
    """Sums of products along `axis` of input number `a`."""
    return program.emit("MULDIM", program.emit("MUL", a, b), a, axis)


@registers_of.register(Dot)
@registers_of.register(blas.Dot22)
def _(op, node, program):
    return [_product(program, 0, 1, node.inputs[0].type.ndim - 1)]


@registers_of.register(blas.BatchedDot)
def _(op, node, program):
    return [_product(program, 0, 1, 2)]


@registers_of.register(blas.Dot22Scalar)
def _(op, node, program):
    program.emit("MUL", 2, 0)  # BLAS may scale either operand first
    program.emit("MUL", 2, 1)
    return [program.emit("MUL", 2, _product(program, 0, 1, 1))]


@registers_of.register(blas.Gemm)
@registers_of.register(blas.Gemv)
def _(op, node, program):
    """``beta * z + alpha * dot(x, y)``; inputs are z, alpha, x, y, beta."""
    program.emit("MUL", 1, 2)
    program.emit("MUL", 1, 3)
    added = program.emit("MUL", 1, _product(program, 2, 3, 1))
    beta = node.inputs[4]
    if isinstance(beta, Constant) and not np.any(beta.data):
        return [added]  # z is not read: it may be uninitialised
    return [program.emit("ADD", program.emit("MUL", 4, 0), added)]


def _ger(op, node, program):
    """``A + alpha * outer(x, y)``; inputs are A, alpha, x, y."""
    program.emit("MUL", 1, 3)
    scaled = program.emit("MUL", 1, 2)
    return [program.emit("ADD", 0, program.emit("MUL", scaled, 3))]


for _class in ger_ops:
    registers_of.register(_class, _ger)


@registers_of.register(Softmax)
def _(op, node, program):
    return [program.emit("RANGE", 0, k=0.0, k2=1.0)]


@registers_of.register(Alloc)
def _(op, node, program):
    return [program.emit("UNION", 0, 0)]


@registers_of.register(Join)
def _(op, node, program):
    # in 3.0 the axis is an input, too
    dtype = node.outputs[0].type.dtype
    joined = [i for i, v in enumerate(node.inputs) if v.type.dtype == dtype]
    return [program.fold("UNION", [joined[0], *joined])]


@registers_of.register(MakeVector)
def _(op, node, program):
    if not node.inputs:
        raise NoProgram
    return [program.fold("UNION", [0, *range(len(node.inputs))])]


@registers_of.register(IncSubtensor)
def _(op, node, program):
    return [program.emit("UNION" if op.set_instead_of_inc else "ADD", 0, 1)]


def _advanced_increment(op, node, program):
    """An element may be hit as often as the longest index has entries."""
    if op.set_instead_of_inc:
        return [program.emit("UNION", 0, 1)]
    indices = [i for i, v in enumerate(node.inputs) if i >= 2 and hasattr(v.type, "ndim")]
    if len(indices) != 1:
        raise NoProgram
    return [program.emit("ADD", 0, program.emit("MULSIZE", 1, indices[0]))]


for _class in advanced_increment_ops:
    registers_of.register(_class, _advanced_increment)
