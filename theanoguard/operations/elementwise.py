"""Operations that compute each element by itself: scalar operations, and ``Elemwise`` of them."""

from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any

import numpy as np
import pytensor.scalar as ps
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.scalar import math as psm
from pytensor.scalar.basic import ScalarOp
from pytensor.tensor.elemwise import Elemwise

from theanoguard._pytensor import scalar_classes
from theanoguard._values import arrays_in
from theanoguard.operations.facts import (
    COMPLEX,
    EVERYWHERE,
    SCALARS,
    Domain,
    Kind,
    Scalar,
    chosen_kinds,
    facts_of,
    holds_nonfinite,
    is_float,
    register,
    scalar_facts,
    widens,
)
from theanoguard.operations.regions import (
    Arrays,
    Dependence,
    Dims,
    Index,
    Region,
    Values,
    broadcast_index,
    filled,
    union,
)

NONE, NAN, INF, BOTH = Kind.NONE, Kind.NAN, Kind.INF, Kind.BOTH

# Measured on all combinations of special values, alone and in vectors; ``tests/fuzz`` repeats it.
# Most special functions raise no flag, since they return NaN and Inf as literals.

POSITIVE = Domain(above=0.0)
ALWAYS, SIGNED = "always", "with its sign"
DIVISOR = Domain(nonzero=True, operand=1)


def _selecting(first: int, stop: int, **facts: Any) -> Scalar:
    chosen = slice(first, stop)
    return Scalar(makes=NONE, makes_nan=False, signals=EVERYWHERE, selects=chosen, **facts)


def _keeping(*carries: Kind, **facts: Any) -> Scalar:
    """An operation that makes nothing bad of any number."""
    return Scalar(carries=carries, makes=NONE, makes_nan=False, signals=EVERYWHERE, **facts)


def _growing(*carries: Kind, **facts: Any) -> Scalar:
    """An operation that may overflow, and makes no NaN."""
    return Scalar(carries=carries, makes_nan=False, signals=EVERYWHERE, **facts)


def _computing(*carries: Kind, **facts: Any) -> Scalar:
    return Scalar(carries=carries, signals=EVERYWHERE, **facts)


SCALARS |= {
    # choose an operand, or its magnitude
    ps.Identity: _selecting(0, 1, carries=(BOTH,)),
    ps.Neg: _selecting(0, 1, carries=(BOTH,)),
    ps.Abs: _selecting(0, 1, carries=(BOTH,)),
    ps.ScalarMaximum: _selecting(0, 2),
    ps.ScalarMinimum: _selecting(0, 2),
    ps.Second: _selecting(1, 2, carries=(NONE, BOTH)),
    # The branch of a switch that is not chosen is no error.
    ps.Switch: _selecting(1, 3, hides=(0,)),
    ps.Clip: _selecting(0, 3, hides=(1, 2)),
    # round and convert
    ps.Ceil: _keeping(BOTH, increasing=ALWAYS),
    ps.Floor: _keeping(BOTH, increasing=ALWAYS),
    ps.Trunc: _keeping(BOTH, increasing=ALWAYS),
    ps.RoundHalfToEven: _keeping(BOTH, increasing=ALWAYS),
    ps.RoundHalfAwayFromZero: _computing(increasing=ALWAYS),
    ps.Sign: _keeping(range=(-1.0, 1.0), increasing=SIGNED),
    ps.Cast: _growing(BOTH),  # between floats: `scalar_carries` looks at the dtypes
    # calculate
    ps.Add: _computing(BOTH),
    ps.Sub: _computing(BOTH),
    ps.Mul: _computing(BOTH),
    ps.Sqr: _growing(BOTH),
    ps.TrueDiv: _computing(BOTH, NAN, estimated=True, domain=DIVISOR),  # x / inf is 0
    ps.Reciprocal: _growing(NAN, estimated=True, domain=Domain(nonzero=True)),
    ps.IntDiv: _computing(estimated=True, domain=DIVISOR),
    ps.Mod: _computing(estimated=True, domain=DIVISOR),
    ps.Pow: _computing(estimated=True, hides=(0, 1)),
    ps.Sqrt: _computing(BOTH, estimated=True, domain=Domain(at_least=0.0), increasing=SIGNED),
    # exponential functions and logarithms
    ps.Exp: _growing(NAN, increasing=ALWAYS),  # exp(-inf) is 0
    ps.Exp2: _growing(NAN, increasing=ALWAYS),
    ps.Expm1: _growing(NAN, increasing=SIGNED),
    ps.Log: _computing(BOTH, bound=800.0, domain=POSITIVE, increasing=ALWAYS),
    ps.Log2: _computing(BOTH, bound=1100.0, domain=POSITIVE, increasing=ALWAYS),
    ps.Log10: _computing(BOTH, bound=400.0, domain=POSITIVE, increasing=ALWAYS),
    ps.Log1p: _computing(BOTH, bound=800.0, domain=Domain(above=-1.0), increasing=SIGNED),
    psm.Softplus: _growing(NAN, increasing=ALWAYS),  # softplus(-inf) is 0
    psm.Sigmoid: _keeping(NAN, range=(0.0, 1.0), increasing=ALWAYS),
    psm.Log1mexp: _computing(domain=Domain(below=0.0)),
    # circular and hyperbolic functions; sin(inf) is NaN
    ps.Sin: Scalar(carries=(BOTH,), makes=NONE, signals=EVERYWHERE, range=(-1.0, 1.0)),
    ps.Cos: Scalar(carries=(BOTH,), makes=NONE, signals=EVERYWHERE, range=(-1.0, 1.0)),
    ps.Tan: _computing(BOTH),
    ps.ArcSin: _computing(
        BOTH, bound=2.0, domain=Domain(at_least=-1.0, at_most=1.0), increasing=SIGNED
    ),
    ps.ArcCos: _computing(BOTH, bound=4.0, domain=Domain(at_least=-1.0, at_most=1.0)),
    ps.ArcTan: _keeping(NAN, range=(-1.6, 1.6), increasing=SIGNED),
    ps.ArcTan2: _computing(bound=4.0),
    ps.Sinh: _growing(BOTH, increasing=SIGNED),
    ps.Cosh: _growing(BOTH),
    ps.Tanh: _keeping(NAN, range=(-1.0, 1.0), increasing=SIGNED),
    ps.ArcSinh: _keeping(BOTH, increasing=SIGNED),
    ps.ArcCosh: _computing(BOTH, domain=Domain(at_least=1.0), increasing=ALWAYS),
    ps.ArcTanh: _computing(BOTH, domain=Domain(above=-1.0, below=1.0), increasing=SIGNED),
    # compare
    ps.IsNan: Scalar(name="isnan"),
    ps.IsInf: Scalar(name="isinf"),
    # special functions
    psm.Erf: _keeping(NAN, range=(-1.0, 1.0), increasing=SIGNED),
    psm.Erfc: _keeping(NAN, range=(0.0, 2.0)),
    psm.Erfinv: Scalar(domain=Domain(above=-1.0, below=1.0), increasing=SIGNED),
    psm.Erfcinv: Scalar(domain=Domain(above=0.0, below=2.0)),
    psm.Gamma: Scalar(signals=("c",)),
    psm.GammaLn: Scalar(signals=("c",)),
}
SCALARS |= {
    kind: Scalar(domain=Domain(below=0.0)) for kind in scalar_classes(["NdtriExp"]).values()
}


class Elementwise(Dependence):
    """Each element depends on one element of each of the first operands, which are broadcast."""

    def __init__(self, operands: int | None = None) -> None:
        self.operands = operands

    def regions(self, node: Apply, inputs: Values, output: int, index: Index) -> list[Region]:
        read = enumerate(inputs[: self.operands])
        return [Region(i, broadcast_index(index, np.shape(value))) for i, value in read]

    def reached(
        self, arrays: Arrays, node: Apply, inputs: Values, masks: Values, output: int, shape: Dims
    ) -> Any:
        masks = list(masks[: self.operands])
        if isinstance(getattr(node.op, "scalar_op", node.op), ps.Switch):
            is_first = arrays.xp.asarray(inputs[0]) != 0
            branches = filled(arrays, masks[1:], inputs[1:])
            masks = [arrays.xp.where(is_first, *branches)]
        return union(arrays, masks, shape)


register(ScalarOp, Elemwise, depends=Elementwise(), steady=True, counts=True)
register(ScalarOp, keeps_flags=("numba",))
register(Elemwise, keeps_flags=EVERYWHERE)


# ---------------------------------------------------------------- what it carries, makes, signals


def scalar_carries(
    op: ScalarOp, inputs: list[Variable], outputs: list[Variable], operand: int
) -> dict[int, Kind]:
    """Return what a scalar operation carries from one operand, by output.

    Returns: outputs that nothing is carried to are missing.
    """
    if isinstance(op, ps.Composite):
        return carried_through(op.fgraph, operand, _scalar_node_carries)
    if not all(map(is_float, (inputs[operand], *outputs))):
        return {}
    kind = scalar_facts(op).carries_from(operand)
    return {0: kind} if kind else {}


def _scalar_node_carries(node: Apply, operand: int) -> dict[int, Kind]:
    return scalar_carries(node.op, node.inputs, node.outputs, operand)


def carried_through(
    fgraph: Any, operand: int, carries: Callable[[Apply, int], Mapping[int, Kind]]
) -> dict[int, Kind]:
    """Return what a graph carries from one of its inputs to its outputs.

    - `operand`: position among ``fgraph.inputs``.
    - `carries`: ``carries(node, operand)`` returns what a node of the graph carries, by output.
    - Returns: outputs that nothing is carried to are missing.
    """
    reached = {fgraph.inputs[operand]: {NAN: NAN, INF: INF}}
    for node in fgraph.toposort():
        for i, variable in enumerate(node.inputs):
            arriving = reached.get(variable, {})
            for o, kind in carries(node, i).items() if arriving else ():
                leaving = reached.setdefault(node.outputs[o], {})
                for start, now in arriving.items():
                    if now in kind:
                        leaving[start] = NAN if now == NAN else BOTH
    found = {}
    for i, output in enumerate(fgraph.outputs):
        kinds = NONE
        for start in reached.get(output, {}):
            kinds |= start
        if kinds:
            found[i] = kinds
    return found


def scalar_makes(
    op: ScalarOp, inputs: list[Variable], outputs: list[Variable], literals: Kind = BOTH
) -> Kind:
    """Return the kinds that a scalar operation can make from finite operands.

    `literals` are the kinds of constants that count as made where they are chosen.
    """
    if not any(map(holds_nonfinite, outputs)):
        return NONE
    if isinstance(op, ps.Composite):
        kinds = NONE
        for node in op.fgraph.apply_nodes:
            kinds |= scalar_makes(node.op, node.inputs, node.outputs, literals)
        return kinds
    if not scalar_facts(op).makes and all(map(is_float, outputs)):
        return chosen_kinds(inputs, literals)
    if isinstance(op, ps.Cast) and widens(inputs[0].type.dtype, outputs[0].type.dtype):
        return NONE
    return BOTH


def scalar_makes_nan(op: Any, outputs: list[Variable]) -> bool:
    """Return whether a scalar operation may make a NaN from operands that are finite or infinite.

    Examples
    --------
    >>> x = ps.float64("x")
    >>> scalar_makes_nan(ps.sub, [x]), scalar_makes_nan(ps.exp, [x])
    (True, False)
    """
    if not any(map(holds_nonfinite, outputs)):
        return False
    return scalar_facts(op).makes_nan or not all(map(is_float, outputs))


def scalar_unsignalled(
    op: ScalarOp,
    inputs: list[Variable],
    outputs: list[Variable],
    backend: str,
    literals: Kind = BOTH,
    constants: Container[Variable] = (),
) -> Kind:
    """Return the kinds that a scalar operation may make from finite operands without a flag.

    Half precision is converted by NumPy's own code, and complex arithmetic repairs its results, so
    neither is relied upon.  What is computed from `constants` may be computed by the compiler.
    """
    if not any(map(holds_nonfinite, outputs)):
        return NONE
    if isinstance(op, ps.Composite):
        return unsignalled_inside(op.fgraph, scalar_node_unsignalled, backend, literals)
    dtypes = {v.type.dtype for v in (*inputs, *outputs)}
    known = scalar_facts(op)
    is_estimated = known.estimated and backend == "numba" and "float32" in dtypes
    is_constant = any(v in constants for v in outputs)
    if (
        backend in known.signals
        and dtypes.isdisjoint(("float16", *COMPLEX))
        and not (is_estimated or is_constant)
    ):
        return chosen_kinds(inputs, literals)
    of_inf = NAN if scalar_makes_nan(op, outputs) else NONE
    return scalar_makes(op, inputs, outputs, literals) | of_inf


def scalar_node_unsignalled(node: Apply, *settings: Any) -> Kind:
    """As :func:`scalar_unsignalled`, for a node."""
    return scalar_unsignalled(node.op, node.inputs, node.outputs, *settings)


def unsignalled_inside(fgraph: Any, unsignalled: Callable[..., Kind], *settings: Any) -> Kind:
    """Return the kinds that the nodes of a graph may make without a flag."""
    order, kinds = fgraph.toposort(), NONE
    constants = from_constants(order)
    for node in order:
        kinds |= unsignalled(node, *settings, constants)
    return kinds


def from_constants(order: Iterable[Apply]) -> set[Variable]:
    """Return what a graph computes from constants alone, perhaps when it is compiled."""
    found: set[Variable] = set()
    for node in order:
        if all(isinstance(v, Constant) or v in found for v in node.inputs):
            found.update(node.outputs)
    return found


# ---------------------------------------------------------------- magnitudes


def scalar_keeps_size(
    op: ScalarOp, inputs: list[Variable], outputs: list[Variable], limit: float
) -> bool:
    """Whether a scalar operation makes nothing above `limit` from operands below it."""
    if isinstance(op, ps.Composite):
        return all(
            scalar_keeps_size(node.op, node.inputs, node.outputs, limit)
            for node in op.fgraph.apply_nodes
        )
    if all(v.type.dtype == "bool" for v in outputs):
        return limit >= 1
    if len(outputs) != 1 or not is_float(outputs[0]):
        return False
    [output] = outputs
    if any(isinstance(v, Constant) and not fits(v, limit) for v in inputs):
        return False
    known = scalar_facts(op)
    if known.selects is not None or isinstance(op, ps.Cast):
        return all(_keeps_type(v, output, limit) for v in inputs[known.selects or slice(1)])
    if known.bound is not None:
        return all(map(is_float, inputs)) and limit >= known.bound
    if isinstance(op, ps.Sqrt):
        return _keeps_type(inputs[0], output, limit) and limit >= 1
    if isinstance(op, ps.Mul):
        large = [v for v in inputs if not is_unit(v)]
        return len(large) <= 1 and all(_keeps_type(v, output, limit) for v in large)
    return False


def _keeps_type(source: Variable, target: Variable, limit: float) -> bool:
    """Whether values keep their magnitude when they are read as the other type."""
    if source.type.dtype in ("bool", "int8", "uint8"):
        return limit >= 255
    order = ("float16", "float32", "float64")
    dtypes = source.type.dtype, target.type.dtype
    return all(d in order for d in dtypes) and order.index(dtypes[0]) <= order.index(dtypes[1])


def fits(constant: Constant, limit: float) -> bool:
    """Whether no magnitude in a constant is above `limit`, and none is NaN."""
    return all(bool(np.all(np.abs(a).astype("float64") <= limit)) for a in arrays_in(constant.data))


def is_unit(variable: Variable) -> bool:
    """Whether no magnitude in a value exceeds 1, unless it is NaN."""
    if variable.type.dtype == "bool":
        return True
    if isinstance(variable, Constant):
        return fits(variable, 1)
    if variable.owner is None:
        return False
    op = variable.owner.op
    if facts_of(op).bound <= 1.0:
        return True
    bound = scalar_facts(getattr(op, "scalar_op", op)).bound or np.inf
    return bound <= 1.0 and all(map(is_float, variable.owner.inputs))
