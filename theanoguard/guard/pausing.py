"""Compile without a guard: for a while, or in the mode that a function has without one."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import toposort

from theanoguard._backends import backend_of
from theanoguard._context import setting
from theanoguard._pytensor import Mode, config, get_mode, in_other_mode, predefined_linkers

#: Whether nothing that is compiled is guarded now.
paused = ContextVar("theanoguard_paused", default=False)


@contextmanager
def unguarded() -> Iterator[None]:
    """Compile without a guard inside the block, as code that takes functions apart needs it.

    A rewrite that fails prints no traceback: nobody has asked for what is compiled here.
    """
    with setting(paused, True), config.change_flags(on_opt_error="ignore"):
        yield


def twin_of(mode: Any) -> Any:
    """Return a mode with the same backend and the same rewrites that watches nothing.

    What is compiled in it raises no error of a guard, writes to no log, keeps no event and calls no
    function of a monitor.  Every tool that compiles or runs a user's graph uses it.

    - `mode`: as for ``pytensor.function``.  None is the mode of PyTensor's configuration.
    - Returns: the argument itself if its mode watches nothing.

    Examples
    --------
    >>> from theanoguard import GuardMode
    >>> twin_of("FAST_COMPILE")
    'FAST_COMPILE'
    >>> mode = GuardMode(optimizer="fast_compile", linker="vm")
    >>> twin = twin_of(mode)
    >>> type(twin).__name__, type(twin.linker).__name__, twin.linker.use_cloop
    ('Mode', 'VMLinker', False)
    >>> twin.provided_optimizer is mode.provided_optimizer
    True
    """
    found = get_mode(mode)
    linker = _plain(found.linker)
    if linker is found.linker:
        return mode
    return Mode(linker, found.provided_optimizer, db=found.optdb)


def _plain(linker: Any) -> Any:
    """Return a linker for the same backend that watches nothing: the linker itself if it is one."""
    backend = backend_of(linker)
    if backend is not None:
        calls_back = getattr(linker, "callback", None) or getattr(linker, "callback_input", None)
        if type(linker) is backend.linker and not calls_back:
            return linker
        return backend.linker(**{name: getattr(linker, name) for name in backend.settings})
    if wrapped := getattr(linker, "linkers", None):  # PyTensor's ``MonitorMode``
        return wrapped[0]
    if type(linker).__module__.startswith("pytensor.compile."):  # ``DebugMode``
        return predefined_linkers["cvm" if config.cxx else "vm"]
    return linker


def without_watchers(outputs: Sequence[Variable]) -> list[Variable]:
    """Return outputs whose loops watch nothing: copies, if a loop has a mode of its own that does.

    Examples
    --------
    >>> import pytensor, pytensor.tensor as pt
    >>> x = pt.dvector("x")
    >>> y = pt.exp(x)
    >>> without_watchers([y]) == [y]
    True
    """
    nodes = list(toposort(list(outputs)))
    ops = {node: in_other_mode(node.op, twin_of) for node in nodes}
    if all(ops[node] is node.op for node in nodes):
        return list(outputs)
    new: dict[Variable, Variable] = {}
    for node in nodes:
        inputs = [new.get(v, v) for v in node.inputs]
        if ops[node] is node.op and inputs == node.inputs:
            continue
        made = Apply(ops[node], inputs, [v.clone() for v in node.outputs])
        new.update(zip(node.outputs, made.outputs, strict=True))
    return [new.get(v, v) for v in outputs]
