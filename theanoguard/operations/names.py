"""The names of operations: in PyTensor, in the user's code, and in messages."""

import ast
import re

from pytensor.graph.op import Op
from pytensor.scalar.basic import Composite, ScalarOp
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import CAReduce, Elemwise
from pytensor.tensor.extra_ops import CumOp

from theanoguard.operations.facts import facts_of, scalar_facts, stated_name

OPERATORS = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "true_div", ast.FloorDiv: "int_div",
    ast.Mod: "mod", ast.Pow: "pow", ast.MatMult: "dot", ast.USub: "neg", ast.Invert: "invert",
    ast.BitAnd: "and", ast.BitOr: "or", ast.BitXor: "xor", ast.Eq: "eq", ast.NotEq: "neq",
    ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge",
}  # fmt: skip
"""The operation that an operator of Python applies."""

INFIX = {
    "add": "+", "sub": "-", "mul": "*", "true_div": "/", "int_div": "//", "pow": "**", "mod": "%",
    "eq": "==", "neq": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
    "and": "&", "or": "|", "xor": "^",
}  # fmt: skip
"""The signs of operations that are written between their operands."""

SHOWN = {
    "true_div": "division", "int_div": "floor division", "mul": "product", "add": "sum",
    "sub": "difference", "pow": "power", "sqr": "square", "mod": "remainder", "neg": "negation",
    "eq": "==", "neq": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "invert": "~",
    "psi": "digamma", "tri_gamma": "polygamma", "reciprocal": "division",
    "getitem": "indexing", "inc_subtensor": "indexed update",
    "matrixInverse": "inv", "solveTriangular": "solve_triangular", "logSoftmax": "log_softmax",
    "join": "concatenate", "makeVector": "stack", "alloc": "full", "allocDiag": "diag",
    "extractDiag": "diag", "specifyShape": "specify_shape", "composite": "elementwise formula",
    "setSubtensor": "indexed update", "incSubtensor": "indexed update", "sLogDet": "slogdet",
}  # fmt: skip
"""Names in messages for operations whose PyTensor name a user does not know."""

WRITTEN = {
    "astype": {"cast"},
    "digamma": {"psi"},
    "square": {"sqr"},
    "getitem": {"subtensor", "advancedsubtensor", "advancedsubtensor1", "advancedbooleansubtensor"},
    "dot": {"dot", "matmul", "dot22", "matvec", "vecmat", "vecdot"},
    "matmul": {"dot", "matmul", "matvec", "vecmat", "vecdot"},
    "truediv": {"truediv"},
    "where": {"switch"},
    "concatenate": {"join"},
    "stack": {"join", "makevector"},
    "inv": {"matrixinverse"},
    "t": {"dimshuffle", "matrixtranspose"},
    "transpose": {"dimshuffle", "matrixtranspose"},
    "dimshuffle": {"dimshuffle"},
    "set": {"incsubtensor", "advancedincsubtensor", "advancedincsubtensor1"},
    "inc": {"incsubtensor", "advancedincsubtensor", "advancedincsubtensor1"},
    "asin": {"arcsin"},
    "acos": {"arccos"},
}
"""Functions in the user's code, and the classes or names that PyTensor has for what they apply."""

REDUCTIONS = {"add": "sum", "mul": "prod", "maximum": "max", "minimum": "min"}
CUMULATIONS = {"add": "cumsum", "mul": "cumprod"}

OP_NAMES = {"Matmul": "dot", "MatrixTranspose": "transpose"}
"""Names for texts of operations that are not the name of a class."""


def op_name(op: Op) -> str:
    """Return the short name of an operation or scalar operation, as the user would write it.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> x = pt.dmatrix("x")
    >>> op_name(pt.log(x).owner.op), op_name((x / 2).owner.op), op_name(x.sum().owner.op)
    ('log', 'true_div', 'sum')
    """
    if isinstance(op, Elemwise):
        op = op.scalar_op
    if isinstance(op, Blockwise):
        op = op.core_op
    stated = (scalar_facts(op) if isinstance(op, ScalarOp) else facts_of(op)).name
    if stated is not None:
        return stated
    if type(op) is CAReduce:
        root = op.scalar_op
        if isinstance(root, Composite):  # a fused reduction
            root = root.fgraph.outputs[0].owner.op
        return REDUCTIONS.get(op_name(root), "reduction")
    if isinstance(op, CumOp):
        return CUMULATIONS[op.mode]
    name = type(op).__name__
    own = getattr(op, "name", None)
    if isinstance(op, ScalarOp) and isinstance(own, str) and name not in ("Cast", "Composite"):
        return own.lower()
    if name.lower() in INFIX:  # comparisons: GE, LT
        return name.lower()
    return name[0].lower() + name[1:]


def shown_op(name: str) -> str:
    """Return the name of an operation in messages, from the result of :func:`op_name`.

    Examples
    --------
    >>> shown_op("true_div"), shown_op("psi"), shown_op("log")
    ('division', 'digamma', 'log')
    """
    return SHOWN.get(name, name)


def user_op_name(text: str) -> str:
    """Return the short name of an operation from PyTensor's text for it.

    Examples
    --------
    >>> user_op_name("Softmax{axis=(1,)}"), user_op_name("Blockwise{MatrixInverse, (m,m)->(m,m)}")
    ('softmax', 'matrixInverse')

    Theano's text for it is ``Elemwise{sqrt,no_inplace}``:

    >>> user_op_name("Elemwise{sqrt,no_inplace}"), user_op_name("Sqrt")
    ('sqrt', 'sqrt')
    """
    head, _, inside = text.partition("{")
    if head in ("Blockwise", "Elemwise"):
        return user_op_name(re.split(r"\W", inside, maxsplit=1)[0])
    stated = OP_NAMES.get(head) or stated_name(head) or stated_name(head.removeprefix("C"))
    return stated or (head.lower() if head.isupper() else head[:1].lower() + head[1:])


def _plain(name: str) -> str:
    return name.lower().replace("_", "")


def operation_of(op: Op) -> str:
    """Return the name of the operation that an op applies, without case and underscores."""
    if isinstance(op, Blockwise):
        op = op.core_op
    if isinstance(op, Elemwise):
        op = op.scalar_op
        name = getattr(op, "name", None)
        return _plain(name if isinstance(name, str) else type(op).__name__)
    return _plain(type(op).__name__)


def is_written(written: str, name: str) -> bool:
    """Return whether `written`, the name in the user's code, means the operation `name`.

    Examples
    --------
    >>> is_written("where", "switch"), is_written("softmax", "sub")
    (True, False)
    """
    found, name = _plain(name), _plain(written)
    return found == name or found in WRITTEN.get(name, ())
