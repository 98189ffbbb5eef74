"""What runs a compiled graph: the thunk of each node, the machine, and the function around it."""

import ctypes
import inspect
import re
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from pytensor.configdefaults import config
from pytensor.graph.basic import Apply

from theanoguard._releases import needs

_is_capsule = ctypes.pythonapi.PyCapsule_IsValid
_is_capsule.argtypes = [ctypes.py_object, ctypes.c_char_p]


def capsule_of(thunk: Any) -> Any:
    """Return the capsule of the C function ``int run(void *)`` that a thunk calls, or None.

    PyTensor has no other way to call a compiled node from C.  Where a release holds something else
    in ``cthunk``, or nothing, the thunk itself is called, from Python.
    """
    capsule = getattr(thunk, "cthunk", None)
    return capsule if capsule is not None and _is_capsule(capsule, None) else None


def runner_of(thunk: Any) -> Callable[[], object]:
    """Return what runs a thunk: its C function itself, which the thunk calls through two of Python.

    Without one of the names that this takes, it is the thunk.
    """
    capsule, inner = capsule_of(thunk), getattr(thunk, "thunk", object())
    run_c = getattr(inner, "run_cthunk", None)
    if capsule is None or run_c is None or not hasattr(inner, "error_storage"):
        return thunk

    def run() -> None:
        if run_c(capsule):
            kind, value, trace = inner.error_storage
            error = value if isinstance(value, BaseException) else kind(value)
            raise error.with_traceback(trace)

    return run


def failed_node(vm: Any, error: BaseException) -> Apply | None:
    """Return the node at which a virtual machine raised `error`, None if it was at none.

    The C machine stores the position.  For a loop in Python it is read from the loop's frame.
    """
    position = getattr(vm, "position", -1)
    if position >= 0:
        return vm.nodes[position]
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if frame.f_locals.get("self") is vm:
            for name in ("current_apply", "node"):
                if isinstance(node := frame.f_locals.get(name), Apply):
                    return node
    return None


class _Captured(Exception):
    """Carries the values of a function's inputs out of its ``__call__``."""


def _call_with_machine(
    fn: Any, vm: Callable[[], Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    """Call `fn`, whose own code treats arguments and results, with another machine in it.

    PyTensor has no public way to treat arguments without computing.  Its ``Function`` is thread
    safe only if the machine is not exchanged in `fn` itself.  Its ``copy`` links the graph again.
    Without ``vm``, only what calls this raises: the guard works.
    """
    needs(fn, "vm", "input_storage", what="what computes a call of a function again")
    kinds = type(fn).__mro__
    slots = {n for kind in kinds for n, v in vars(kind).items() if inspect.ismemberdescriptor(v)}
    probe = object.__new__(type(fn))
    for name in (*slots, *getattr(fn, "__dict__", ())):
        setattr(probe, name, getattr(fn, name))
    probe.vm = vm
    try:
        return probe(*args, **kwargs)
    finally:
        for container in fn.input_storage:
            if container.required:
                container.storage[0] = None


def captured_inputs(fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list:
    """Return the values that ``fn(*args, **kwargs)`` would compute with, without computing.

    One value for each input of the compiled graph, shared variables among them.  Wrong
    arguments raise what the call itself raises.
    """

    def stop() -> NoReturn:
        raise _Captured([cell.storage[0] for cell in fn.input_storage])

    try:
        _call_with_machine(fn, stop, args, kwargs)
    except _Captured as captured:
        return captured.args[0]
    raise AssertionError("the machine has not run")


def finished_call(
    fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any], outputs: Sequence[Any]
) -> Any:
    """Return what ``fn(*args, **kwargs)`` returns if its graph has computed `outputs`.

    Shared variables get their updates.
    """

    def vm() -> list:
        return list(outputs)

    vm.allow_gc = False  # type: ignore[attr-defined]
    result = _call_with_machine(fn, vm, args, kwargs)
    for i_out, i_in in fn.maker.fgraph.update_mapping.items():
        fn.input_storage[i_in].storage[0] = outputs[i_out]
    return result


# Flags by which compiled code may lose a NaN or an Inf, take a subnormal number for 0, or raise
# other exception flags of the processor than the operations that are written there.
CHANGING_ARITHMETIC = re.compile(
    r"-(Ofast|fast|ffast-math|funsafe-math-optimizations|ffinite-math-only|fno-honor-\w+"
    r"|fno-signed-zeros|fno-trapping-math|fassociative-math|freciprocal-math|fapprox-func"
    r"|ffp-model=(fast|aggressive)|fp-model=fast.*|fdenormal-fp-math.*|mdaz-ftz"
    r"|fsingle-precision-constant|fcx-.*)"
)


def changes_arithmetic() -> list[str]:
    """Return the compiler flags of the user's by which code need not keep to IEEE 754."""
    flags = config.gcc__cxxflags.split() if config.cxx else []
    return [flag for flag in flags if CHANGING_ARITHMETIC.fullmatch(flag)]
