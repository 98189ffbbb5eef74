"""Print a value while the graph runs, in the way of rewrites or beside it.

An ordinary :class:`Print` is a node between a value and its users, as in Theano: what it
prints is what the compiled graph computes there, and no rewrite sees through it.  A
*transparent* one is taken out before any rewrite has run and leaves two nodes behind:

* :class:`PrintBeside` reads the value, prints it, and gives a token;
* :class:`After` is the identity on something that will surely be computed, an output of the
  function, and takes the token as a second input.

So the value's users are rewritten as if nothing had been printed; the value itself stays in
the graph as an input of ``PrintBeside`` and is computed on its own where its users no longer
need it.  Where all users lie in branches of an ``ifelse``, the branches take the token: it
prints when one of them runs.
"""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import pytensor.printing
import pytensor.tensor as pt
from pytensor.compile.mode import optdb
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.graph.rewriting.basic import GraphRewriter
from pytensor.tensor.type import DenseTensorType

from theanoguard._arguments import checked
from theanoguard._pytensor import IfElse, Output, input_shapes
from theanoguard._pytensor.on_demand import LoadModule


def print_attributes(op: "Print", value: Any) -> None:
    """Print the attributes of `value` that `op` names, one line for each of ``op.attrs``."""
    for attr in op.attrs:
        if callable(attr):
            name, result = getattr(attr, "__name__", str(attr)), attr(value)
        else:
            name, result = attr, getattr(value, attr)
            if callable(result):
                result = result()
        print(op.message, name, "=", result)


class Print(pytensor.printing.Print):
    """Print a value when the graph runs, and return it.

    ``Print(message)(x)`` returns `x`.  Use the returned variable: otherwise nothing is printed.

    Parameters
    ----------
    message : str
        The beginning of each line.
    attrs : sequence of str or callable
        What to print: attributes of the value, methods without arguments, or functions of the
        value.
    global_fn : callable
        ``global_fn(op, value)`` does the printing.  By default it prints one line for each of
        `attrs`.
    transparent : bool
        If True, rewrites ignore the operation: ``log(Print(transparent=True)(1 + x))`` becomes
        ``log1p(x)``.  The value is printed once per call, if an output that depends on it is
        computed.  If nothing else needs the value, it is computed only for printing.

    Raises
    ------
    AttributeError
        When applied to a tensor, if an array has no attribute of that name.

    Notes
    -----
    A transparent ``Print`` becomes an ordinary one if ``optimizer=None``, or if a rewrite moves it
    out of the body of a ``Scan``.  Two ordinary ones with the same arguments and input are merged
    into one, as in Theano.  A rewrite that needs to be the only user of the value, for example into
    one ``Gemm``, may not apply.

    Examples
    --------
    >>> from theanoguard.ops import Print
    >>> import numpy as np, pytensor, pytensor.tensor as pt
    >>> x = pt.vector("x")
    >>> f = pytensor.function([x], Print("x", attrs=("shape", np.sum))(x) * 2, mode="CVM")
    >>> y = f([1.0, 2.0])
    x shape = (2,)
    x sum = 3.0
    """

    __props__ = ("message", "attrs", "global_fn", "transparent")

    @checked
    def __init__(
        self,
        message: str = "",
        attrs: Sequence[str | Callable] = ("__str__",),
        global_fn: Callable = print_attributes,
        transparent: bool = False,
    ) -> None:
        super().__init__(message, attrs, global_fn)
        self.transparent = bool(transparent)

    def __repr__(self) -> str:
        return f"Print{{{self.message!r}}}"  # (PyTensor's shows the address of the function)

    __str__ = __repr__

    def make_node(self, x: Any) -> Apply:
        if not isinstance(x, Variable):
            x = pt.as_tensor_variable(x)
        if isinstance(x.type, DenseTensorType):
            for attr in self.attrs:
                if not callable(attr) and not hasattr(np.ndarray, attr):
                    raise AttributeError(
                        f"Print: an array has no attribute {attr!r}.\n"
                        "Name an attribute or a method of numpy.ndarray, or pass a function."
                    )
        return Apply(self, [x], [x.type()])


class PrintBeside(Op):
    """Print a value and give a token that says so; see the module's docstring.

    `print_op`: what is printed, and how.
    """

    __props__ = ("print_op",)

    def __init__(self, print_op: Print) -> None:
        self.print_op = print_op

    def make_node(self, x: Any) -> Apply:
        return Apply(self, [x], [pt.TensorType("bool", ())()])

    def perform(self, node: Apply, inputs: list, output_storage: list[list]) -> None:
        self.print_op.global_fn(self.print_op, inputs[0])
        output_storage[0][0] = np.array(True)

    def do_constant_folding(self, fgraph: FunctionGraph, node: Apply) -> bool:
        return False


class After(Op):
    """Let the first input through once the tokens, the other inputs, are there."""

    __props__ = ()
    view_map: ClassVar = {0: [0]}

    def make_node(self, x: Variable, *tokens: Variable) -> Apply:
        return Apply(self, [x, *tokens], [x.type()])

    def perform(self, node: Apply, inputs: list, output_storage: list[list]) -> None:
        output_storage[0][0] = inputs[0]

    def infer_shape(self, *args: Any) -> list:
        return input_shapes(args)[:1]

    def do_constant_folding(self, fgraph: FunctionGraph, node: Apply) -> bool:
        return False


def _frontier(fgraph: FunctionGraph, variable: Variable) -> list[tuple[Apply, int]]:
    """Return the edges (client, index) where everything that needs `variable` ends.

    These are outputs of the graph and branches of an ``ifelse``.
    """
    edges, seen, todo = [], set(), [variable]
    while todo:
        current = todo.pop()
        for client, i in fgraph.clients[current]:
            lazy = isinstance(client.op, IfElse) and i > 0
            if lazy or isinstance(client.op, Output):
                edges.append((client, i))
            elif client not in seen:
                seen.add(client)
                todo.extend(client.outputs)
    return edges


class SetPrintsBeside(GraphRewriter):
    """Replace each transparent :class:`Print` by :class:`PrintBeside` and :class:`After`."""

    def add_requirements(self, fgraph: FunctionGraph) -> None:
        pass

    def apply(self, fgraph: FunctionGraph) -> None:
        for node in fgraph.toposort():
            if isinstance(node.op, Print) and node.op.transparent:
                self.set_beside(fgraph, node)

    def set_beside(self, fgraph: FunctionGraph, node: Apply) -> None:
        edges = _frontier(fgraph, node.outputs[0])
        outputs = [edge for edge in edges if isinstance(edge[0].op, Output)]
        (token,) = PrintBeside(node.op).make_node(node.inputs[0]).outputs
        # One output is always computed; of several branches, we do not know which.
        for client, i in outputs[:1] or edges:
            (held,) = After().make_node(client.inputs[i], token).outputs
            held.name = client.inputs[i].name
            fgraph.change_node_input(client, i, held, reason="print_beside", check=False)
        fgraph.replace(node.outputs[0], node.inputs[0], reason="print_beside", import_missing=True)


# Before anything else has looked at the graph, Scan's own rewrites (0.05) included.
optdb.register(
    "theanoguard_print_beside",
    SetPrintsBeside(),
    "fast_run",
    "fast_compile",
    "minimum_compile",
    position=0.01,
)
# For this package's ops, Assert among them.  Numba's linker always asks for the tag.
optdb.register(
    "theanoguard_load_numba_ops", LoadModule("theanoguard.ops.numba"), "numba", position=0.0
)
