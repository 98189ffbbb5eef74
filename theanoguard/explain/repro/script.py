"""Write a standalone script that computes a bad value again from its sound operands.

The script needs only PyTensor and its data file.  The operation is written as an expression if that
is possible; otherwise it is pickled into the data file.  On request, the script contains the whole
function as the user built it.  It then shows whether a rewrite causes the fault.
"""

import os
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import singledispatch
from pathlib import Path
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.op import Op
from pytensor.graph.traversal import toposort
from pytensor.scalar.basic import ScalarOp
from pytensor.tensor.blas import Dot22
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.math import Dot, Max, Min, Prod, Sum

from theanoguard._evaluate.culprit import Made, Origin, Place, dense, fused_operands
from theanoguard._evaluate.replay import Replay, copy_value
from theanoguard._evaluate.scalars import ScalarStep
from theanoguard._event import Trip
from theanoguard._files import replacing, write_atomically
from theanoguard._naming import apply_text
from theanoguard._provenance import tracker_of
from theanoguard._text import number_text
from theanoguard.explain.repro.excerpt import pickle_with_source
from theanoguard.operations.names import INFIX, op_name, shown_op


@dataclass(frozen=True)
class Repro:
    """The contents of a standalone script; plain data."""

    #: The sound operands, by the name of their variable in the script.
    arrays: dict[str, np.ndarray] = field(repr=False)
    names: dict[str, str]  # the user's names for them
    expression: str | None = None  # the operation as an expression; None if it is pickled
    #: The operation, and for each input its type or its value.
    pickled: bytes | None = field(default=None, repr=False)
    #: The code of the user's own classes and functions that are pickled.
    source: str = field(default="", repr=False)
    trouble: str = ""  # if there is neither an expression nor a pickle, the reason
    #: The whole function.  It is not included when this object is pickled.
    call: "FailingCall | None" = field(default=None, repr=False)


MAX_BYTES = 1 << 26
"""Bytes of the inputs of a call that are copied for a reproduction of the whole function."""


class FailingCall:
    """The function of a failing call as the user built it, with the values of the call."""

    def __init__(self, trip: Trip) -> None:
        self._graph = trip.fgraph
        self._variable = trip.variable
        self._node = trip.frames[0].node if trip.frames else trip.variable.owner
        # Copy the values, because a later call may overwrite them.
        size = sum(getattr(v, "nbytes", 0) for v in trip.inputs.values())
        fits = size <= MAX_BYTES
        self._values = {v: copy_value(x) for v, x in trip.inputs.items()} if fits else None

    def __reduce__(
        self,
    ) -> tuple[Any, ...]:  # (a pickle leaves out the function and the values of its inputs)
        return _nothing, ()

    def operands(self) -> tuple[Apply, list[Any]] | None:
        """Return the node of the function's graph that failed, and the values of its inputs."""
        if self._node is None or self._values is None:
            return None
        replay = Replay(self._graph, self._values)
        return self._node, [replay.value(variable) for variable in self._node.inputs]

    def pickled(self) -> tuple[bytes, str]:
        """Return the graph with its values as bytes, and the source of the user's own code.

        The graph is pickled as a list, because pickle follows linked variables recursively.

        Raises ``ValueError``: if the graph as built is not known, or an operation or a value cannot
        be pickled.
        """
        tracker, values = tracker_of(self._graph), self._values
        if values is None:
            raise ValueError(
                f"the inputs of the call are too large to be kept: more than {MAX_BYTES} bytes.\n"
                "Save the failing operation alone: save_repro(path)."
            )
        if tracker is None:
            raise ValueError(
                "the function as it was built is not known.\nCompile it with GuardMode, or save"
                " the failing operation alone: save_repro(path)."
            )
        outputs, copies = tracker.before()
        equal = [v for v in tracker.equals(self._variable) if v.owner is not None]
        shown = [copies[v.owner].outputs[v.index] for v in equal] + outputs
        leaves, steps = [], []
        position: dict[Variable, tuple[Any, int]] = {}

        def position_of(variable: Variable) -> tuple[Any, int]:
            if variable not in position:
                is_constant = isinstance(variable, Constant)
                value = variable.data if is_constant else values.get(variable)
                if value is None and not is_constant:
                    value = variable.get_value()
                leaves.append((variable.type, variable.name, value, is_constant))
                position[variable] = ("leaf", len(leaves) - 1)
            return position[variable]

        for i, node in enumerate(toposort(shown)):
            read = [position_of(v) for v in node.inputs]
            steps.append((node.op, read, [(v.type, v.name) for v in node.outputs]))
            position.update({v: (i, j) for j, v in enumerate(node.outputs)})
        wanted = list(dict.fromkeys(position_of(v) for v in shown))
        try:
            return pickle_with_source((leaves, steps, wanted))
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise ValueError(f"the function cannot be pickled: {error}") from error


def _nothing() -> None:
    return None


def repro_of(origin: Origin, display_name: Callable[[Place], str]) -> Repro:
    """Return the :class:`Repro` of an :class:`~theanoguard._evaluate.culprit.Origin`.

    `display_name`: returns the name under which the variable of a place is shown.
    """
    place, made = origin.place, origin.made
    node = place.variable.owner
    if node is None:
        return Repro({"x0": np.asarray(place.array)}, {"x0": display_name(place)}, "x0")
    if made is not None and (found := _last_step(place, made, display_name)) is not None:
        return found
    if made is not None and (expression := _step_text(made.step)) is not None:
        used = sorted(_positions(made.step))
        places = {f"x{i}": made.sources[i] for i in used}
        return Repro(
            {name: np.asarray(p.array) for name, p in places.items()},
            {name: display_name(p) for name, p in places.items()},
            expression,
        )
    return _whole_node(place, display_name)


def _last_step(place: Place, made: Made, display_name: Callable[[Place], str]) -> Repro | None:
    """Return the Repro of one operation of a fused node, with its operands as arrays.

    None if the node is not fused, or if the operations before it cannot be run on arrays.
    """
    arrays = fused_operands(place, made) if made.step.node is not None else None
    if arrays is None:
        return None

    def name(origin: ScalarStep | int, depth: int = 2) -> str:
        if not isinstance(origin, ScalarStep):
            return display_name(made.sources[origin])
        parts = zip(origin.origins, origin.operands, strict=True)
        texts = [number_text(v) if o is None else name(o, depth - 1) for o, v in parts]
        return apply_text(origin.op, texts) if depth else "..."

    ndim = max(np.ndim(array) for array in arrays)
    given, names, texts = {}, {}, []
    for i, (array, origin) in enumerate(zip(arrays, made.step.origins, strict=True)):
        if origin is None:
            texts.append(_constant_text(made.step.operands[i]))
            continue
        texts.append(f"x{i}")
        given[f"x{i}"] = np.reshape(array, (1,) * (ndim - np.ndim(array)) + np.shape(array))
        names[f"x{i}"] = name(origin)
    expression = scalar_text(made.step.op, texts)
    return None if expression is None or not given else Repro(given, names, expression)


def _whole_node(place: Place, display_name: Callable[[Place], str]) -> Repro:
    node = place.variable.owner
    replay = place.scope.replay
    arrays, names, kept = {}, {}, []
    for i, variable in enumerate(node.inputs):
        value = dense(replay.value(variable))
        if isinstance(variable, Constant) or not isinstance(value, (np.ndarray, np.generic)):
            kept.append((variable.type, value))
            continue
        arrays[f"x{i}"] = np.asarray(value)
        names[f"x{i}"] = display_name(type(place)(place.scope, variable))
        kept.append((variable.type, None))
    expression = node_text(node.op, list(arrays)) if len(arrays) == len(node.inputs) else None
    if expression is not None:
        return Repro(arrays, names, expression)
    try:
        pickled, source = pickle_with_source((node.op, kept, node.outputs.index(place.variable)))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        return Repro({}, {}, trouble=f"{node.op} cannot be pickled: {error}")
    return Repro(arrays, names, pickled=pickled, source=source)


# Operations as expressions


@singledispatch
def node_text(op: Op, operands: Sequence[str]) -> str | None:
    """Return the Python expression of a node, or None if it has none."""
    return None


@node_text.register(Dot)
@node_text.register(Dot22)
def _dot_text(op: Op, operands: Sequence[str]) -> str:
    return f"pt.dot({', '.join(operands)})"


@node_text.register(Sum)
@node_text.register(Prod)
def _sum_text(op: Op, operands: Sequence[str]) -> str:
    name = op_name(op)
    kinds = f"dtype={op.dtype!r}, acc_dtype={op.acc_dtype!r}"
    return f"pt.{name}({operands[0]}, axis={op.axis!r}, {kinds})"


@node_text.register(Max)
@node_text.register(Min)
def _extreme_text(op: Op, operands: Sequence[str]) -> str:
    return f"pt.{op_name(op)}({operands[0]}, axis={op.axis!r})"


@node_text.register
def _elementwise_text(op: Elemwise, operands: Sequence[str]) -> str | None:
    return scalar_text(op.scalar_op, operands)


def scalar_text(op: ScalarOp, operands: Sequence[str]) -> str | None:
    """Return the expression of a scalar operation applied elementwise, or None.

    Examples
    --------
    >>> import pytensor.scalar as ps
    >>> scalar_text(ps.log, ["x0"]), scalar_text(ps.sub, ["x0", "x1"])
    ('pt.log(x0)', '(x0 - x1)')
    """
    name = op_name(op)
    if name in INFIX and len(operands) == 2:
        return f"({f' {INFIX[name]} '.join(operands)})"
    if name == "cast":
        return f"pt.cast({operands[0]}, {op.o_type.dtype!r})"
    tensor_op = getattr(getattr(pt, name, None), "scalar_op", None)
    # The function of that name in PyTensor may apply a different operation.
    return f"pt.{name}({', '.join(operands)})" if tensor_op == op else None


def _step_text(step: ScalarStep) -> str | None:
    operands = []
    for value, origin in zip(step.operands, step.origins, strict=True):
        if isinstance(origin, ScalarStep):
            text = _step_text(origin)
        elif origin is None:
            text = _constant_text(value)
        else:
            text = f"x{origin}"
        if text is None:
            return None
        operands.append(text)
    return scalar_text(step.op, operands)


def _constant_text(value: Any) -> str:
    item = np.asarray(value).item()
    literal = repr(item) if np.isfinite(item) else f"float({str(item)!r})"
    return f"pt.constant({literal}, dtype={np.asarray(value).dtype.name!r})"


def _positions(step: ScalarStep) -> Iterator[int]:
    for origin in step.origins:
        if isinstance(origin, ScalarStep):
            yield from _positions(origin)
        elif origin is not None:
            yield origin


# Writing

SCRIPT = '''"""{title}

{where}Needs PyTensor alone; the values are in {data} beside this file.
Exits with status 1 if the fault shows.
"""

{imports}import sys
from pathlib import Path

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.compile.mode import Mode

data = np.load(Path(__file__).with_name({data!r}), allow_pickle=False)
{build}
mode = Mode("cvm" if pytensor.config.cxx else "py", None)
function = pytensor.function(inputs, output, mode=mode, accept_inplace=True)
value = np.asarray(function(*values))
bad = np.argwhere({test})
if not len(bad):
    print("no bad value:", value)
    sys.exit(0)
index = tuple(int(i) for i in bad[0])
print(f"{{value[index]}} at element {{index}}; {{len(bad)}} of {{value.size}} elements")
sys.exit(1)
'''

EXPRESSION = """{declarations}
output = {expression}
inputs = [{names}]
values = [data[v] for v in ({keys})]"""

PICKLED = """# This operation has no short form in Python: it is pickled in the data file.
op, kept, position = {loads}(data["pickled"].tobytes())
variables = [kind() if value is None else kind.make_constant(value) for kind, value in kept]
overwritten = {{i for read in op.destroy_map.values() for i in read}}
copied = pytensor.compile.ops.deep_copy_op
operands = [copied(v) if i in overwritten else v for i, v in enumerate(variables)]
output = op.make_node(*operands).outputs[position]
inputs = [v for v, (_, value) in zip(variables, kept) if value is None]
given = [data[f"x{{i}}"] for i, (_, value) in enumerate(kept) if value is None]
values = [v.type.filter(value, allow_downcast=True) for v, value in zip(inputs, given)]"""

# The script contains the source of the user's own classes.
WITH_SOURCE = """
{source}


class Unpickler(pickle.Unpickler):
    def find_class(self, module, name):
        return globals().get(name) or super().find_class(module, name)


def loads(pickled):
    return Unpickler(io.BytesIO(pickled)).load()


"""

TESTS = {
    "nan": "np.isnan(value)",
    "inf": "np.isinf(value)",
    "big": "np.abs(value) >= {limit!r}",
}


WHOLE = '''"""{title}

{where}The whole function as the program built it, before any rewrite.  Needs PyTensor alone; the
graph and the values are in {data} beside this file.  Compiles with PyTensor's default mode, or
with the one named on the command line: python {script} CVM
Exits with status 1 if the fault shows.
"""

import io
import pickle
import sys
from pathlib import Path

import numpy as np
import pytensor
from pytensor.graph.basic import Apply

data = np.load(Path(__file__).with_name({data!r}), allow_pickle=False)
{source}leaves, steps, wanted = {loads}(data["pickled"].tobytes())
inputs, values, variables = [], [], {{}}
for i, (kind, name, value, is_constant) in enumerate(leaves):
    variables["leaf", i] = kind.make_constant(value) if is_constant else kind(name)
    if not is_constant:
        inputs.append(variables["leaf", i])
        values.append(value)
for i, (op, read, made) in enumerate(steps):
    outputs = [kind(name) for kind, name in made]
    node = Apply(op, [variables[v] for v in read], outputs)
    variables.update({{(i, j): v for j, v in enumerate(node.outputs)}})

mode = sys.argv[1] if len(sys.argv) > 1 else None
outputs = [variables[v] for v in wanted]
function = pytensor.function(inputs, outputs, mode=mode, on_unused_input="ignore")
status = 0
for position, value in enumerate(function(*values)):
    if np.asarray(value).dtype.kind not in "fc":
        continue
    bad = np.argwhere({test})
    if len(bad):
        status = 1
        index = tuple(int(i) for i in bad[0])
        bad_value = np.asarray(value)[index]
        print(f"output {{position}} ({{outputs[position]}}): {{bad_value}} at element {{index}};"
              f" {{len(bad)}} of {{np.size(value)}} elements")
if not status:
    print("no output is bad; a value inside may be, if the rest of the function masks it")
sys.exit(status)
'''


def save_repro(explanation: Any, path: str | os.PathLike[str], as_built: bool = False) -> Path:
    """Write a standalone script that shows a fault, and its data file.

    - `path`: path of the script.  The data file has the same name and the suffix ``.npz``.
    - `as_built`: write the whole function as the user built it, instead of only the failing
      operation.
    - Returns: the script.
    - Raises ``ValueError``: if the replay did not reproduce the bad value, or if the operation can
      be neither written as an expression nor pickled.
    """
    repro = explanation.repro
    if as_built:
        return _save_function(explanation, Path(path))
    if repro is None or repro.trouble:
        why = repro.trouble if repro else "running the call again did not show it"
        raise ValueError(f"no reproduction of this trip can be saved: {why}.")
    path = Path(path)
    text = script_text(explanation, _data_of(path).name)
    return _write(path, text, repro.arrays, repro.pickled)


def _data_of(path: Path) -> Path:
    return path.with_suffix(".npz")


def _write(path: Path, text: str, arrays: Mapping[str, np.ndarray], pickled: bytes | None) -> Path:
    """Write a script and its data file; return the path of the script."""
    if pickled is not None:
        arrays = {**arrays, "pickled": np.frombuffer(pickled, dtype=np.uint8)}
    with replacing(_data_of(path)) as file:
        np.savez(file, **arrays)
    write_atomically(path, text.encode())
    return path


def _save_function(explanation: Any, path: Path) -> Path:
    """Write the script of the whole function, and its data file."""
    call = explanation.repro.call if explanation.repro is not None else None
    if call is None:
        raise ValueError(
            "the function as it was built is at hand only in the process that raised the error,"
            " and only where running the call again showed the fault.\n"
            "Save it there: error.save_repro(path, as_built=True)."
        )
    pickled, source = call.pickled()
    title, where = _heading(explanation.cause)
    text = WHOLE.format(
        title=title,
        where=where,
        data=_data_of(path).name,
        script=path.name,
        source=WITH_SOURCE.format(source=source).lstrip("\n") if source else "",
        loads="loads" if source else "pickle.loads",
        test=_test_of(explanation.cause),
    )
    return _write(path, text, {}, pickled)


def _heading(cause: Any) -> tuple[str, str]:
    """Return the first line of a script, and the line that names the place of the fault."""
    where = f"From {cause.source}\n" if cause.source is not None else ""
    what = shown_op(cause.op) if cause.op else cause.role
    return _harmless(f"{cause.kind} in {what}: {cause.expression}"), _harmless(where)


def _test_of(cause: Any) -> str:
    return TESTS[cause.kind].format(limit=abs(np.asarray(cause.value).item()))


def script_text(explanation: Any, data: str) -> str:
    """Return the text of the script whose data file is called `data`."""
    cause, repro = explanation.cause, explanation.repro
    if repro.expression is not None:
        build = EXPRESSION.format(
            declarations="\n".join(
                _declaration(n, array, repro) for n, array in repro.arrays.items()
            ),
            expression=repro.expression,
            names=", ".join(repro.arrays),
            keys="".join(f"{name!r}, " for name in repro.arrays),
        )
    elif repro.source:
        build = WITH_SOURCE.format(source=repro.source) + PICKLED.format(loads="loads")
    else:
        build = PICKLED.format(loads="pickle.loads")
    title, where = _heading(cause)
    return SCRIPT.format(
        title=title,
        where=where,
        data=data,
        imports="import io\nimport pickle\n" if repro.pickled is not None else "",
        build=build,
        test=_test_of(cause),
    )


def _declaration(name: str, array: np.ndarray, repro: Repro) -> str:
    shape = tuple(1 if n == 1 else None for n in array.shape)
    return (
        f"{name} = pt.TensorType({array.dtype.name!r}, shape={shape!r})"
        f"({_harmless(repro.names[name])!r})"
    )


def _harmless(text: str) -> str:
    """Return text on one line that is safe inside a docstring: it cannot end the docstring."""
    kept = "".join(c if c.isprintable() or c == "\n" else "?" for c in text)
    return kept.replace("\\", "/").replace('"""', "'''")
