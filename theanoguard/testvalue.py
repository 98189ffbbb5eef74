"""Test values: compute with example values while the graph is being built.

With test values switched on, each operation computes its outputs from the test values of its
inputs.  A wrong shape or dtype is then an error at the line that builds the operation.  Inputs have
``x.tag.test_value``.  Constants and shared variables use their own values.

PyTensor inherited test values from Theano and removed them in 3.0.  This module patches PyTensor
while they are switched on, and restores it afterwards.

:func:`eval_intermediate_values` evaluates a graph, or a compiled function, on request.
"""

import copy
import os
import pdb
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Literal

import numpy as np
import pytensor.tensor as pt
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.tensor.random.type import RandomGeneratorType

from theanoguard._arguments import checked
from theanoguard._context import block, setting
from theanoguard._errors import TheanoguardError
from theanoguard._provenance import is_user_file, source_line, user_stacklevel
from theanoguard._pytensor import (
    Function,
    captured_inputs,
    construction_hooks,
    is_constructor_file,
    is_lazy,
    is_nominal,
    python_thunk,
    scan_placeholders,
)
from theanoguard._text import shortened

__all__ = [
    "MissingTestValue",
    "config",
    "eval_intermediate_values",
    "get_test_value",
    "test_values",
]

# The import shim's constructors pass on to PyTensor's.
_OWN = os.path.dirname(os.path.abspath(__file__)) + os.sep

MODES = ("off", "ignore", "warn", "raise", "pdb")


Found = tuple[bool, Any]  # whether a variable has a value without being computed, and the value


class MissingTestValue(TheanoguardError, ValueError, AttributeError):
    """A variable depends on an input that has no test value."""


# The switch
# ----------


@dataclass
class _Settings:
    mode: str = "off"
    seed: int | None = None
    generators: weakref.WeakKeyDictionary = field(default_factory=weakref.WeakKeyDictionary)


# A `with` block holds for its own thread (or task); the switch of `config` for all others.
_block: ContextVar[_Settings | None] = ContextVar("theanoguard_test_values", default=None)
_suspended: ContextVar[bool] = ContextVar("theanoguard_test_values_suspended", default=False)
_everywhere = _Settings()
_lock = threading.RLock()
_n_active = 0
_undo: Callable[[], None] | None = None


def _settings() -> _Settings:
    return _block.get() or _everywhere


def _checked(mode: str) -> str:
    if mode not in MODES:
        raise ValueError(
            f"compute_test_value cannot be {mode!r}.\nChoose one of {', '.join(MODES)}."
        )
    return mode


def _count(change: int) -> None:
    """Patch PyTensor when the first user of test values comes, put it back after the last."""
    global _n_active, _undo
    with _lock:
        before, _n_active = _n_active, _n_active + change
        if before == 0 and _n_active == 1:
            _undo = construction_hooks(_built, _mark_placeholder, suspended, _scan_step)
        elif before == 1 and _n_active == 0 and _undo is not None:
            _undo()
            _undo = None


def suspended() -> AbstractContextManager[None]:
    """Compute no test values inside the block, whatever the switch says."""
    return setting(_suspended, True)


@block
def test_values(
    mode: Literal["raise", "warn", "ignore", "pdb", "off"] = "raise", seed: int | None = None
) -> Iterator[None]:
    """Compute test values for every operation that the block builds.

    Parameters
    ----------
    mode : {"raise", "warn", "ignore", "pdb", "off"}
        The reaction to an input without a test value: raise an error, warn, ignore it, or open the
        debugger.  An operation that fails on its test values raises an error in each of these
        modes.  "pdb" opens the debugger before.  "off" computes no test values, even inside another
        block.
    seed : int, optional
        Random variables draw from generators with this seed.  Without it, they draw from copies of
        their own generators.

    Raises
    ------
    ValueError
        In the block: if a test value is missing and `mode` is "raise", or if there is no such mode.
        An error of an operation also shows its inputs with their shapes and dtypes.

    Notes
    -----
    The block applies to the thread that enters it.  Blocks may be nested.

    Examples
    --------
    >>> from theanoguard.testvalue import test_values
    >>> import numpy as np, pytensor.tensor as pt
    >>> with test_values("raise"):
    ...     x = pt.matrix("x")
    ...     x.tag.test_value = np.ones((3, 4), x.dtype)
    ...     y = x.sum(axis=0)
    >>> y.tag.test_value
    array([3., 3., 3., 3.])
    """
    settings = _Settings(_checked(mode), seed)
    on = mode != "off"
    if on:
        _count(+1)
    token = _block.set(settings)
    try:
        yield
    finally:
        _block.reset(token)
        if on:
            _count(-1)


class _Config:
    """The switch for the whole process: ``config.compute_test_value``.

    Examples
    --------
    >>> config.compute_test_value
    'off'
    """

    @property
    def compute_test_value(self) -> str:
        """One of "off", "ignore", "warn", "raise", "pdb"; see :func:`test_values`."""
        return _settings().mode

    @compute_test_value.setter
    def compute_test_value(self, mode: str) -> None:
        mode = _checked(mode)
        with _lock:
            change = (mode != "off") - (_everywhere.mode != "off")
            _everywhere.mode = mode
            if change:
                _count(change)


config = _Config()


# What is stored on a variable
# ----------------------------


class _ComputedFor:
    """Remembers for which node a test value was computed.

    A cloned variable has a copy of the tag, but another node, perhaps with other inputs: the
    value is not its own.
    """

    __slots__ = ("node",)

    def __init__(self, node: Apply | None = None) -> None:
        self.node = (lambda: None) if node is None else weakref.ref(node)

    def __reduce__(self) -> tuple:
        return (_ComputedFor, ())


def _store(variable: Variable, value: Any) -> None:
    variable.tag.test_value = value
    variable.tag.test_value_computed_for = _ComputedFor(variable.owner)


def _has_any(variable: Variable) -> bool:
    return hasattr(variable.tag, "test_value")


def _has_own(variable: Variable) -> bool:
    """Whether the tag of `variable` holds a test value that is its own."""
    if not _has_any(variable):
        return False
    computed = getattr(variable.tag, "test_value_computed_for", None)
    return computed is None or variable.owner is None or computed.node() is variable.owner


def _shown(value: Any) -> str:
    """Say type, dtype and shape of a value in a few words."""
    if isinstance(value, np.ndarray | np.generic):
        return f"{value.dtype} {value.shape}"
    return f"{type(value).__name__} {shortened(repr(value), 60)}"


def _name(variable: Variable) -> str:
    return variable.name or str(variable)


def _filtered(variable: Variable, value: Any) -> Any:
    """Return `value` as the type of `variable` wants it, or refuse it."""
    try:
        return variable.type.filter(value)
    except (TypeError, ValueError) as error:
        where = source_line(variable)
        raise TypeError(
            f"The test value of {_name(variable)} is no {variable.type}: {_shown(value)}.\n"
            f"{error}\n"
            + (f"The variable was made at {where}\n" if where else "")
            + "Give a value with the dtype and shape of the variable."
        ) from error


def _shared_value(variable: Variable) -> Any:
    settings = _settings()
    if settings.seed is None or not isinstance(variable.type, RandomGeneratorType):
        return variable.get_value(borrow=True, return_internal_type=True)
    generators = settings.generators
    if variable not in generators:
        seed = np.random.SeedSequence(settings.seed, spawn_key=(len(generators),))
        generators[variable] = np.random.default_rng(seed)
    return generators[variable]


def _stored(variable: Variable) -> Found:
    """Return (True, value) if `variable` has a value of its own, else (False, None)."""
    if isinstance(variable, Constant):
        return True, variable.data
    if _has_own(variable):
        return True, _filtered(variable, variable.tag.test_value)
    if isinstance(variable, SharedVariable):
        return True, _shared_value(variable)
    return False, None


# Evaluation of nodes
# -------------------


def _told_with_inputs(error: Exception, node: Apply, values: Mapping[Variable, Any]) -> Exception:
    """Return `error` with the node, its inputs and the user's line in its message."""
    lines = [str(error), f"{node.op} cannot compute its test value from these inputs:"]
    for i, variable in enumerate(node.inputs):
        value = values.get(variable, "(not computed)")
        lines.append(f"  input {i}: {_name(variable)}, {_shown(value)}, of {variable.type}")
    where = source_line(node.outputs[0])
    if where:
        lines.append(f"built at {where}")
    text = "\n".join(lines)
    try:
        told = type(error)(text)
    except TypeError:  # an exception with other arguments than a message
        told = None
    if told is None or str(told) != text:
        error.add_note("\n".join(lines[1:]))
        return error
    return told.with_traceback(error.__traceback__)


def _spare_destroyed(node: Apply, values: Mapping[Variable, Any]) -> dict[Variable, Any]:
    """Return `values` with copies in place of what the node overwrites."""
    destroyed = {i for places in node.op.destroy_map.values() for i in places}
    spared = dict(values)
    for i in destroyed:
        variable = node.inputs[i]
        if variable in spared:
            spared[variable] = copy.deepcopy(spared[variable])
    return spared


def _run_node(
    node: Apply, values: dict[Variable, Any], fn: Function | None = None
) -> Sequence[int]:
    """Run one node, of the graph of `fn` if it is compiled, on its inputs that are in `values`.

    Returns the indices of the inputs that the node asks for before it can go on (a lazy one
    may), or adds its outputs to `values` and returns nothing.
    """
    known = _spare_destroyed(node, {v: values[v] for v in node.inputs if v in values})
    storage_map = {v: [known.get(v)] for v in node.inputs}
    compute_map = {v: [v in known] for v in node.inputs}
    for out in node.outputs:
        storage_map[out] = [None]
        compute_map[out] = [False]
    with suspended():
        try:
            required = python_thunk(fn, node, storage_map, compute_map)()
        except Exception as error:
            raise _told_with_inputs(error, node, known) from error
    if required:
        return required
    for out in node.outputs:
        values[out] = storage_map[out][0]
    return ()


def _evaluate(
    variables: Sequence[Variable],
    values: dict[Variable, Any],
    root_value: Callable[[Variable], Found],
    fn: Function | None = None,
) -> None:
    """Compute `variables` and what they need, and add all of it to `values`.

    `values`: values that are known, by variable.
    `root_value`: ``root_value(variable)`` returns (True, value) for a variable that need not be
    computed; (False, None) for one that has to be; it raises if there is nothing to compute it
    from.
    `fn`: the function whose graph it is.
    """
    todo = list(reversed(variables))
    while todo:
        variable = todo[-1]
        if variable in values:
            todo.pop()
            continue
        found, value = root_value(variable)
        if found:
            values[variable] = value
            continue
        node = variable.owner
        if is_lazy(node.op):
            wanted = [node.inputs[i] for i in _run_node(node, values, fn)]
        else:
            wanted = [v for v in node.inputs if v not in values]
            if not wanted:
                _run_node(node, values, fn)
        todo.extend(reversed(wanted))


# While a graph is being built
# ----------------------------


class _NoValue(Exception):
    """A root variable has no test value."""

    def __init__(self, variable: Variable) -> None:
        super().__init__(variable)
        self.variable = variable


def _root_or_missing(variable: Variable) -> Found:
    found, value = _stored(variable)
    if not found and variable.owner is None:
        raise _NoValue(variable)
    return found, value


def _root_or_copy(variable: Variable) -> Found:
    if _has_any(variable):
        return True, _filtered(variable, variable.tag.test_value)
    return _root_or_missing(variable)


def _values_for(variables: Sequence[Variable]) -> dict[Variable, Any]:
    """Return the values of `variables`; those computed on the way are stored too."""
    values: dict[Variable, Any] = {}
    has_value = _has_own
    try:
        _evaluate(variables, values, _root_or_missing)
    except _NoValue:
        # As in Theano, a clone on inputs without values has that of what it was cloned from.
        has_value = _has_any
        _evaluate(variables, values, _root_or_copy)
    for variable, value in values.items():
        if variable.owner is not None and not has_value(variable):
            _store(variable, value)
    return values


def _missing_text(variable: Variable, node: Apply | None = None) -> str:
    where = source_line(variable)
    text = f"{_name(variable)}, of {variable.type}, has no test value"
    if node is not None:
        text += f", which {node.op} needs"
    return (
        f"{text}.\n"
        + (f"The variable was made at {where}\n" if where else "")
        + "Set variable.tag.test_value to an array of that dtype and shape."
    )


def _missing(variable: Variable, node: Apply, mode: str) -> None:
    """Do what `mode` says about a test value that is missing."""
    placeholder = is_nominal(variable) or getattr(variable.tag, "is_placeholder", False)
    if placeholder or mode == "ignore":
        return
    text = _missing_text(variable, node)
    if mode == "raise":
        raise ValueError(text)
    warnings.warn(text, stacklevel=user_stacklevel())
    if mode == "pdb":
        pdb.set_trace()


def _built(node: Apply) -> None:
    """Compute the test values of a node that has just been applied."""
    mode = _settings().mode
    if mode == "off" or _suspended.get() or not node.outputs:
        return
    try:
        _values_for(node.outputs)
    except _NoValue as missing:
        _missing(missing.variable, node, mode)
    except Exception as error:
        if mode == "pdb":
            pdb.post_mortem(error.__traceback__)
        if isinstance(error, TypeError | NotImplementedError) and _inside_operator():
            # `x + y` swallows these two: Python would only say that + is not supported.
            raise ValueError(str(error)) from error
        raise


SWALLOWING = ("__add__", "__sub__", "__mul__", "__pow__", "__mod__")
"""Operators of PyTensor's variables that take any TypeError for "not supported"."""


def _inside_operator() -> bool:
    """Whether an operator that swallows errors is being run."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and not is_user_file(frame.f_code.co_filename):
        if frame.f_code.co_name in SWALLOWING and frame.f_code.co_filename.endswith("variable.py"):
            return True
        frame = frame.f_back
    return False


def _mark_placeholder(variable: Variable) -> None:
    """Mark a variable that the library made for itself, such as an input of an inner graph.

    Nobody could have given it a test value.
    """
    frame = sys._getframe(2)
    while _passes_on(frame.f_code.co_filename) and frame.f_back is not None:
        frame = frame.f_back
    if not is_user_file(frame.f_code.co_filename):
        variable.tag.is_placeholder = True


def _passes_on(file: str) -> bool:
    return is_constructor_file(file) or file.startswith(_OWN)


def _scan_step(frame: FrameType) -> None:
    """Give the arguments of a scan's step function the values of its first step."""
    if _settings().mode == "off" or _suspended.get():
        return
    for placeholder, outer in scan_placeholders(frame):
        try:
            values = _values_for([outer])
        except _NoValue:
            continue
        placeholder.tag.test_value = _filtered(placeholder, values[outer])


# Asking for values
# -----------------


def get_test_value(variable: Any) -> Any:
    """Return the test value of a variable.

    Parameters
    ----------
    variable : Variable or array_like
        Constants and shared variables use their own values.  Other variables use
        ``variable.tag.test_value``, or else the value that follows from the test values of their
        inputs.

    Returns
    -------
    object
        A value of the variable's type.  It is not copied.

    Raises
    ------
    MissingTestValue
        If an input that `variable` depends on has no test value.  It is a ValueError and an
        AttributeError.
    TypeError
        If a test value does not have its variable's type.

    Examples
    --------
    >>> from theanoguard.testvalue import get_test_value
    >>> import pytensor.tensor as pt
    >>> x = pt.dscalar("x")
    >>> x.tag.test_value = 3.0
    >>> print(get_test_value(x**2))
    9.0
    """
    variable = variable if isinstance(variable, Variable) else pt.as_tensor_variable(variable)
    try:
        return _values_for([variable])[variable]
    except _NoValue as missing:
        raise MissingTestValue(_missing_text(missing.variable)) from None


def arguments_of(fn: Function, inputs: Mapping | Sequence | None) -> tuple:
    """Return the arguments of a compiled function in order, from a mapping or a sequence."""
    if not isinstance(inputs, Mapping):
        return tuple(inputs or ())
    explicit = [
        spec.variable
        for spec, container in zip(fn.maker.inputs, fn.input_storage, strict=True)
        if not container.implicit
    ]
    left = dict(inputs)
    arguments = []
    for variable in explicit:
        key = variable if variable in left else variable.name
        if key is None or key not in left:
            raise MissingTestValue(f"The function's input {_name(variable)} has no value.")
        arguments.append(left.pop(key))
    if left:
        raise TypeError(
            f"No input of the function: {', '.join(map(str, left))}.\n"
            f"Its inputs are {', '.join(map(_name, explicit))}."
        )
    return tuple(arguments)


@checked
def eval_intermediate_values(
    outputs: Variable | Sequence[Variable] | Function, inputs: Mapping | Sequence | None = None
) -> dict[Variable, Any]:
    """Return the value of every variable of a graph, or of a compiled function.

    Parameters
    ----------
    outputs : Variable, sequence of Variable, or Function
        The outputs to evaluate.  For a compiled function, the compiled graph is evaluated in
        Python, node by node.  Nodes that work in place get copies.
    inputs : mapping or sequence
        Values of input variables.  For a graph, the other inputs use their test values, and you may
        also give the value of an intermediate variable.  For a function, the keys are its input
        variables or their names.  A sequence has the order of the function's arguments.

    Returns
    -------
    dict of Variable to object
        The value of each input, constant and intermediate variable that was needed.  Of an
        ``ifelse``, only the chosen branch is needed.

    Raises
    ------
    MissingTestValue
        If an input of the graph has no value.
    TypeError
        If a value does not have its variable's type.

    Examples
    --------
    >>> from theanoguard.testvalue import eval_intermediate_values
    >>> import numpy as np, pytensor.tensor as pt
    >>> x = pt.vector("x")
    >>> y = x * 2
    >>> z = y.sum()
    >>> values = eval_intermediate_values(z, {x: np.array([1.0, 2.0])})
    >>> values[y], float(values[z])
    (array([2., 4.]), 6.0)
    """
    if isinstance(outputs, Function):
        fgraph = outputs.maker.fgraph
        given = captured_inputs(outputs, arguments_of(outputs, inputs), {})
        values = dict(zip(fgraph.inputs, given, strict=True))
        targets = fgraph.outputs
    else:
        targets = [outputs] if isinstance(outputs, Variable) else list(outputs)
        if inputs is not None and not isinstance(inputs, Mapping):
            raise TypeError(
                "eval_intermediate_values: the inputs of a graph have no order.\n"
                "Give them as a mapping {variable: value}."
            )
        values = {v: _filtered(v, value) for v, value in (inputs or {}).items()}

    def root_value(variable: Variable) -> Found:
        if variable.owner is not None:
            return False, None
        found, value = _stored(variable)
        if not found:
            raise MissingTestValue(_missing_text(variable))
        return found, value

    fn = outputs if isinstance(outputs, Function) else None
    _evaluate(targets, values, root_value, fn)
    return values
