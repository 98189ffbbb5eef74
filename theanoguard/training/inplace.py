"""Guarded updates that a BLAS call makes in place, where it can be shown beforehand to be good.

`guarded_updates` keeps the old value until the new one has been looked at, so that PyTensor cannot
let ``Gemm`` add a gradient to the weights in place: the weights are copied at each step.  But
what ``b z + a x y`` can be at most follows from the largest magnitudes in ``z``, ``x`` and ``y``.
Where that bound is finite there is nothing to look at, and the call is made in place once all
other values are known to be good; it is the very same call, so the bits are the same.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.compile.mode import optdb
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import GraphRewriter
from pytensor.graph.utils import InconsistencyError
from pytensor.link.c.op import COp
from pytensor.tensor.blas import Gemm

from theanoguard._pytensor import generic
from theanoguard.training.ops import FLOATS, FirstBad, Keep, Largest, scalar_output

#: For the rounding in sums of products.
MARGIN = 1.01


class FirstBadOrProved(COp):
    """What `FirstBad` says of values, some of which are only going to be computed.

    Inputs are what `FirstBad` says of the values that are there; the largest magnitudes in ``z``,
    ``x`` and ``y`` of each ``Gemm``; and the operands ``z, a, x, y, b`` of each.

    `computed`, `gemms`: the numbers of the values that are there, and of those that a ``Gemm``
    would compute.
    """

    __props__ = ("computed", "gemms")
    params_type = generic

    def __init__(self, computed: tuple[int, ...], gemms: tuple[int, ...]) -> None:
        self.computed = computed
        self.gemms = gemms

    def make_node(self, first_computed: Variable, largest: Variable, *operands: Variable) -> Apply:
        return Apply(self, [first_computed, largest, *operands], [pt.lscalar()])

    def decide(self, first: np.ndarray, largest: np.ndarray, *operands: np.ndarray) -> int:
        """Return the number of the first bad value, or -1; compute what cannot be proved."""
        bad = [self.computed[int(first)]] if first >= 0 else []
        for i, number in enumerate(self.gemms):
            z, a, x, y, b = operands[5 * i : 5 * i + 5]
            top_z, top_x, top_y = largest[3 * i : 3 * i + 3].tolist()
            products = x.shape[1] * top_x * top_y
            bound = max(products, abs(float(b)) * top_z + abs(float(a)) * products)
            # (a NaN is not below the limit)
            if not bound * MARGIN <= float(np.finfo(z.dtype).max):
                with np.errstate(all="ignore"):
                    cell = [None]
                    Gemm(inplace=False).perform(None, [z, a, x, y, b], [cell])
                if not np.isfinite(cell[0]).all():
                    bad.append(number)
        return min(bad, default=-1)

    def perform(
        self, node: Apply, inputs: list, output_storage: list[list], params: Any = None
    ) -> None:
        output_storage[0][0] = np.array(self.decide(*inputs), dtype="int64")

    def get_params(self, node: Apply) -> Any:
        return self.decide

    def c_code(
        self, node: Apply, name: str, inputs: list[str], outputs: list[str], sub: dict[str, str]
    ) -> str:
        first, largest, *operands = inputs
        proofs = []
        for i in range(len(self.gemms)):
            z, a, x, y, b = operands[5 * i : 5 * i + 5]
            dtype = node.inputs[2 + 5 * i].type.dtype
            proofs.append(f"""
            {{
                const double *top = (npy_float64 *)PyArray_DATA({largest}) + {3 * i};
                const double a = fabs((double)*(npy_{dtype} *)PyArray_DATA({a}));
                const double b = fabs((double)*(npy_{dtype} *)PyArray_DATA({b}));
                const double products = PyArray_DIMS({x})[1] * top[1] * top[2];
                const double limit = {float(np.finfo(dtype).max) / MARGIN!r};
                proved = proved && products <= limit && b * top[0] + a * products <= limit;
            }}""")
        arguments = "".join(f"(PyObject *){v}, " for v in inputs)
        return f"""
        bool proved = *(npy_int64 *)PyArray_DATA({first}) < 0;
        {"".join(proofs)}
        npy_int64 bad = -1;
        if (!proved) {{
            PyObject *number = PyObject_CallFunctionObjArgs({sub["params"]}, {arguments}NULL);
            if (number == NULL) {{ {sub["fail"]} }}
            bad = PyLong_AsLongLong(number);
            Py_DECREF(number);
        }}
        {scalar_output(outputs[0], "int64", "bad", sub["fail"])}
        """

    def c_support_code(self, **kwargs: Any) -> str:
        return "#include <math.h>"

    def c_code_cache_version(self) -> tuple:
        return (1,)


class GatedGemm(COp):
    """``Gemm`` in place where a condition holds; otherwise nothing is done."""

    __props__ = ()
    destroy_map = {0: [1]}  # noqa: RUF012
    params_type = Gemm.params_type
    check_input = False
    inplace = True
    _gemm = Gemm(inplace=True)

    def make_node(self, ok: Variable, *operands: Variable) -> Apply:
        return Apply(self, [ok, *operands], [operands[0].type()])

    def perform(self, node: Apply, inputs: list, output_storage: list[list]) -> None:
        ok, *operands = inputs
        if ok:
            self._gemm.perform(None, operands, output_storage)
        else:
            output_storage[0][0] = operands[0]

    def c_code(
        self, node: Apply, name: str, inputs: list[str], outputs: list[str], sub: dict[str, str]
    ) -> str:
        ok, *operands = inputs
        inner = self._gemm.make_node(*node.inputs[1:])
        return f"""
        if (*(npy_bool *)PyArray_DATA({ok})) {{
            {self._gemm.c_code(inner, name, operands, outputs, sub)}
        }} else {{
            Py_INCREF({operands[0]});
            Py_XDECREF({outputs[0]});
            {outputs[0]} = {operands[0]};
        }}
        """

    def c_code_cache_version(self) -> tuple:
        return (1, self._gemm.c_code_cache_version())


def _as_gemm(method: str) -> Callable:
    return lambda self, **kwargs: getattr(self._gemm, method)(**kwargs)


# What the compiler needs for the C code of a `Gemm`.
for _method in "support_code headers header_dirs libraries lib_dirs compile_args".split():
    setattr(GatedGemm, f"c_{_method}", _as_gemm(f"c_{_method}"))


class UpdateInPlace(GraphRewriter):
    """Let guarded updates be made in place by BLAS, all of a function or none."""

    def apply(self, fgraph: FunctionGraph) -> None:
        for node in [n for n in fgraph.apply_nodes if isinstance(n.op, FirstBad)]:
            # (with a smaller limit a bound would rarely do)
            if node.op.limit is None:
                self._rewrite(fgraph, node)

    def _rewrite(self, fgraph: FunctionGraph, node: Apply) -> None:
        keeps = {
            i: keep
            for i, v in enumerate(node.inputs)
            if (keep := self._keep_of(fgraph, node, v)) is not None
        }
        if not keeps:
            return
        operands = [v for i in keeps for v in node.inputs[i].owner.inputs]
        computed = tuple(i for i in range(len(node.inputs)) if i not in keeps)
        first = FirstBad()(*(node.inputs[i] for i in computed)) if computed else pt.constant(-1)
        largest = Largest()(
            *(operands[i + j] for i in range(0, len(operands), 5) for j in (0, 2, 3))
        )
        proved = FirstBadOrProved(computed, tuple(keeps))(first, largest, *operands)
        changes = [(node.outputs[0], proved)]
        for keep in keeps.values():
            ok, new, _old = keep.inputs
            changes.append((keep.outputs[0], GatedGemm()(ok, *new.owner.inputs)))
        try:
            fgraph.replace_all_validate(changes, reason="update_in_place", import_missing=True)
        except InconsistencyError:
            return  # something still needs what would be overwritten, or is overwritten before

    @staticmethod
    def _keep_of(fgraph: FunctionGraph, first_bad: Apply, value: Variable) -> Apply | None:
        """Return the `Keep` of an update that could be made in place, or None."""
        gemm = value.owner
        if gemm is None or not isinstance(gemm.op, Gemm) or gemm.op.inplace:
            return None
        if value.type.dtype not in FLOATS or gemm.inputs[0] not in fgraph.inputs:
            return None
        clients = [client for client, _ in fgraph.clients[value] if client is not first_bad]
        if len(clients) != 1 or not isinstance(clients[0].op, Keep):
            return None
        (keep,) = clients
        same = keep.inputs[1] is value and keep.inputs[2] is gemm.inputs[0]
        return keep if same else None


# After the rewrites that let operations work in place, before those that must come last.
optdb.register("theanoguard_update_in_place", UpdateInPlace(), "fast_run", "inplace", position=99.5)
