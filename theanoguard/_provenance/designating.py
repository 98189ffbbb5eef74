"""The names of the variables of the user's graph, and the lines that built them."""

import re
from collections.abc import Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType

from pytensor.compile.ops import TypeCastingOp
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.op import Op
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.math import Dot
from pytensor.tensor.subtensor import Subtensor

from theanoguard._context import setting
from theanoguard._provenance.backward import Original, gradient_frame
from theanoguard._provenance.expressions import (
    Entry,
    Expression,
    binding_of,
    expression_at,
    loop_of,
)
from theanoguard._provenance.source import (
    MAX_FRAMES,
    SourceLine,
    direct_entries,
    source_place,
    stack_traces,
    user_entries,
)
from theanoguard._pytensor.files import is_between
from theanoguard.operations.names import is_written, operation_of

IMPLICIT = (DimShuffle, TypeCastingOp)
"""Operations that a line may apply to its operands without saying so, for example to broadcast."""

# Functions that return a variable without an owner node.
_CONSTRUCTORS = re.compile(
    r"([bwilfdcz]?(scalar|vector|matrix|matrice|row|col|tensor\d?)s?)|shared\w*|type|Data|\w*xtensor\w*"
)
_IDENTIFIER = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
_ENTRY = re.compile(rf"{_IDENTIFIER.pattern}(\[(\d+|'[^'\"]*'|\"[^'\"]*\")\])?")
_STEP_NAME = re.compile(r".*\[t([+-]\d+)?\]")  # names that `scan` gives to the inputs of its step


def applies(written: str | None, op: Op) -> bool:
    """Return whether `written`, the name in the user's code, means this op.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> x = pt.dvector()
    >>> applies("digamma", pt.digamma(x).owner.op), applies("mean", x.sum().owner.op)
    (True, False)
    """
    return written is not None and is_written(written, operation_of(op))


def made_by_grad(node: Apply) -> bool:
    """Return whether ``grad`` made a node."""
    return gradient_frame(stack_traces(node.outputs[0])) is not None


@dataclass(frozen=True)
class Designation:
    """The name and the expression of a variable of the user's graph."""

    #: The variable's own name, or the name that the user's code assigns it to.
    name: str | None = None
    expression: str | None = None  # the expression that gives its value
    operands: tuple[str, ...] = ()
    ndim: int | None = None  # how many dimensions the variable has


_BY_PYTENSOR = re.compile(r"mean|var|std|\(d.*/d.*\)")
"""Names that PyTensor's own functions, and its ``grad``, give to their results."""

_CHECK = re.compile(r" ([<>]=?|=) ")
"""PyMC names a value by the check that it has passed, such as ``sigma > 0``."""


def given_name(variable: Variable) -> str | None:
    """Return the name that the user has given to a variable, or None.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> x = pt.dvector("x")
    >>> x.mean().name, given_name(x.mean()), given_name(x)
    ('mean', None, 'x')
    """
    name = _meant.get().get(variable.name, variable.name)
    if not name or _CHECK.search(name):
        return None
    return None if variable.owner is not None and _BY_PYTENSOR.fullmatch(name) else name


_meant: ContextVar[Mapping[str, str | None]] = ContextVar(
    "theanoguard_meant_names", default=MappingProxyType({})
)


def meant_names() -> Mapping[str, str | None]:
    """Return the names of the innermost :func:`meaning`."""
    return _meant.get()


def meaning(names: Mapping[str, str | None]) -> AbstractContextManager[None]:
    """Say which names of the user's a library means by its own; None for those that mean none.

    It holds for the graphs that are rewritten in the block.
    """
    return setting(_meant, names)


class Designations:
    """The names and expressions of the variables of one graph.

    - `original`: the nodes of the graph with their inputs.
    - `inputs`: the inputs of the graph.
    """

    def __init__(self, original: Original, inputs: Sequence[Variable] = ()) -> None:
        self.original = original
        self.inputs = list(inputs)
        self._clients: dict[Variable, list[tuple[Apply, int]]] = {}
        for node, inputs in original.items():
            for position, v in enumerate(inputs):
                self._clients.setdefault(v, []).append((node, position))
        self._found: dict[Variable, Designation] = {}
        self._places: dict[Variable, SourceLine | None] = {}

    def clients(self, variable: Variable) -> Sequence[tuple[Apply, int]]:
        """Return the nodes that read a variable, each with the position of that input."""
        return self._clients.get(variable, ())

    def of(self, variable: Variable) -> Designation:
        """Return the :class:`Designation` of a variable of the graph."""
        found = self._found.get(variable)
        if found is None:
            work_out = self._of_leaf if variable.owner is None else self._of_node
            found = self._found[variable] = replace(work_out(variable), ndim=self._ndim(variable))
        return found

    def _ndim(self, variable: Variable) -> int | None:
        """Return the number of dimensions of a variable when its call returns it."""
        ndim, entries = getattr(variable.type, "ndim", None), user_entries(variable)[:1]
        for node, _ in self.clients(variable):
            kept = node.outputs[0].type.ndim if isinstance(node.op, DimShuffle) else ndim
            if (
                kept is not None
                and ndim is not None
                and kept < ndim
                and user_entries(node.outputs[0])[:1] == entries
            ):
                return kept
        return ndim

    def _of_leaf(self, variable: Variable) -> Designation:
        if isinstance(variable, Constant):
            return Designation(variable.name or self._as_operand(variable, _IDENTIFIER))
        if variable.name is not None and not _STEP_NAME.fullmatch(variable.name):
            return Designation(variable.name)
        entries = direct_entries(variable)
        made = expression_at(entries[0]) if entries else None
        is_made_there = made is not None and _CONSTRUCTORS.fullmatch(made.op or "")
        bound = binding_of(entries) if is_made_there else None
        name = bound.name if bound is not None else None
        if bound is not None and bound.targets:
            name = self._of_several(variable, bound.targets, entries[0])
        return Designation(name or self._as_operand(variable, _ENTRY) or variable.name)

    def _of_several(self, variable: Variable, targets: Sequence[str], entry: Entry) -> str | None:
        """Return which of several assignment targets a leaf is, if all are in the graph."""
        made = {
            v
            for v in self._clients
            if v.owner is None and (own := user_entries(v)) and own[0] is entry
        }
        ordered = sorted(made, key=_serial)
        return targets[ordered.index(variable)] if len(ordered) == len(targets) else None

    def _as_operand(self, variable: Variable, pattern: re.Pattern[str]) -> str | None:
        """Return how the source of an operation that reads a leaf writes it."""
        for node, position in self.clients(variable):
            entries = user_entries(node.outputs[0])
            found = expression_at(entries[0]) if entries else None
            if found is None or not found.operands:
                continue
            if not applies(found.op, node.op):
                # (the DimShuffle that makes an operand broadcast was built by the same line)
                if isinstance(node.op, IMPLICIT) and _is_implicit(node, found):
                    text = self._as_operand(node.outputs[0], pattern)
                    if text is not None:
                        return text
                continue
            if len(found.operands) == len(self.original[node]) or position == 0:
                swapped = self._is_swapped(node, found.operands)
                text = found.operands[1 - position if swapped else position]
                if pattern.fullmatch(text):
                    return text
        return None

    def _is_swapped(self, node: Apply, written: Sequence[str]) -> bool:
        """Return whether a node computes ``v @ m`` as ``m.T @ v``, for a vector v."""
        if not (isinstance(node.op, Blockwise) and isinstance(node.op.core_op, Dot)):
            return False
        left, entries = self.original[node][0], user_entries(node.outputs[0])
        if isinstance(left, Constant) and entries:  # (a transposed constant is another constant)
            mine = [text in _arguments(entries[0]) for text in written]
            return mine == [True, False]
        if left in self.inputs and entries:  # (a loop transposes it before its first step)
            return self._in_other_order(node, written, _arguments(entries[0]))
        transposed = left.owner is not None and isinstance(left.owner.op, DimShuffle)
        own = user_entries(left)  # (by the same call: the user may have written `m.T @ v` as well)
        return transposed and bool(entries and own) and own[0] is entries[0]

    def _in_other_order(
        self, node: Apply, written: Sequence[str], arguments: Sequence[str]
    ) -> bool:
        """Return whether a step of a loop has the operands of a node in the other order."""
        leaves = [self.behind(v) for v in self.original[node]]
        if not (set(written) <= set(arguments) and all(v in self.inputs for v in leaves)):
            return False
        one, other = map(arguments.index, written)
        left, right = map(self.inputs.index, leaves)
        return (one < other) != (left < right)

    def operand_text(self, node: Apply, variable: Variable) -> str | None:
        """Return how the source of a node writes one of its inputs, or None."""
        inputs, written = self.original[node], self.of(node.outputs[0]).operands
        position = list(inputs).index(variable)
        if isinstance(node.op, Subtensor) and len(written) == 1 and position == 0:
            return written[0]
        if len(written) != len(inputs):
            return None
        return written[1 - position if self._is_swapped(node, written) else position]

    def _of_node(self, variable: Variable) -> Designation:
        entries, given = direct_entries(variable), given_name(variable)
        found = expression_at(entries[0]) if entries else None
        if found is None or not self.is_result(variable, found, entries[0]):
            return Designation(given)
        bound = binding_of(entries, variable.index, len(variable.owner.outputs))
        if bound is not None and bound.targets:
            return Designation(given)
        name = bound.name if bound is not None else None
        return Designation(given or name, found.text, found.operands)

    def is_result(self, variable: Variable, found: Expression, entry: Entry) -> bool:
        """Return whether a variable is the value of an expression, not an intermediate step."""
        if applies(found.op, variable.owner.op):
            return True
        if variable.owner not in self.original:
            return False  # an internal step of an operation, for example of softmax
        if any(is_between(e[0]) for t in stack_traces(variable) for e in t):
            return False  # (the line that calls a function of PyMC does not describe its steps)
        # (a reader without a stack trace may be part of the same call)
        readers = [user_entries(node.outputs[0]) for node, _ in self.clients(variable)]
        return all(own and own[0] is not entry for own in readers)

    def function_around(self, variable: Variable) -> str | None:
        """Return the function that the user calls, if the operation of a variable is a step of it.

        That is ``std`` for the ``sqrt`` in ``x.std()``; else None.
        """
        entries = direct_entries(variable)
        found = expression_at(entries[0]) if entries else None
        if found is None or not found.op or applies(found.op, variable.owner.op):
            return None
        return found.op

    def behind(self, variable: Variable) -> Variable:
        """Return the variable that was reshaped into this one for a broadcast."""
        while (node := variable.owner) is not None and isinstance(node.op, IMPLICIT):
            entries = user_entries(variable)
            found = expression_at(entries[0]) if entries else None
            if found is None or not _is_implicit(node, found):
                break
            read = self.original.get(node, node.inputs)[0]
            own = user_entries(read)
            if own and own[0] is entries[0]:  # made by the same call, as by `sum(keepdims=True)`
                break
            variable = read
        return variable

    def place(self, variable: Variable) -> SourceLine | None:
        """Return the line that built a variable, with the iteration of the loop around it."""
        if variable not in self._places:
            self._places[variable] = self._place(variable)
        return self._places[variable]

    def _place(self, variable: Variable) -> SourceLine | None:
        line = source_place(variable)
        if line is None or variable.owner is None or gradient_frame(stack_traces(variable)):
            return line
        # (a loop is reported by line number only, so it has to be in the same file)
        entries = [e for e in user_entries(variable)[:MAX_FRAMES] if e[0] == line.file]
        loop = next((at for e in entries if (at := loop_of(e)) is not None), None)
        if loop is None:
            return line
        passes = self._passes.get(_group(variable), {})
        if len(passes) < 2 or variable not in passes:
            return line
        return replace(line, loop=(passes[variable], len(passes), loop))

    @cached_property
    def _passes(self) -> dict[Hashable, dict[Variable, int]]:
        """By operation and line: in which pass of its loop each variable was built, from 1."""
        groups: dict[Hashable, list[Variable]] = {}
        for node in self.original:
            groups.setdefault(_group(node.outputs[0]), []).append(node.outputs[0])
        return {
            group: {v: number for number, v in enumerate(sorted(made, key=_serial), start=1)}
            for group, made in groups.items()
        }


def _arguments(entry: Entry) -> tuple[str, ...]:
    """Return the names of the arguments of the function that an entry of a stack trace is in."""
    code = getattr(entry, "code", None)
    return () if code is None else code.co_varnames[: code.co_argcount]


def _is_implicit(node: Apply, found: Expression) -> bool:
    return not applies(found.op, node.op) and found.op not in ("flatten", "reshape", "swapaxes")


def _serial(variable: Variable) -> int:
    return next((getattr(trace, "serial", 0) for trace in stack_traces(variable)), 0)


def _group(variable: Variable) -> Hashable:
    return operation_of(variable.owner.op), tuple(map(id, user_entries(variable)[:3]))
