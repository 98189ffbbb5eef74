"""Set up a program under the shim, and the processes that it starts by multiprocessing."""

import os
from collections.abc import Callable, Sequence
from multiprocessing import spawn, util
from typing import Any

from theanoguard.guard.every_function import guarding
from theanoguard.shim import numpy_compat, python_compat
from theanoguard.shim.install import offer_theano


def set_up(numpy_names: bool, python_names: bool, guard: dict[str, Any] | None = None) -> None:
    """Let ``import theano`` import the shim.

    Parameters
    ----------
    numpy_names, python_names : bool
        Whether to restore old names.
    guard : dict, optional
        Arguments of :class:`guarding`, to guard every function.
    """
    if numpy_names:
        numpy_compat.install()
    if python_names:
        python_compat.install()
    guarded = None if guard is None else guarding(**guard)
    offer_theano()
    if guarded is not None:
        guarded.start()


def set_up_children(**settings: Any) -> Callable[[], None]:
    """Have processes that are started anew set up with these settings; return what undoes this.

    These are the methods "spawn" and "forkserver" of multiprocessing.  A process that is forked has
    all that its parent has.
    """
    code = f"from {__name__} import set_up_child; set_up_child({settings!r}); "
    command_line, start = spawn.get_command_line, util.spawnv_passfds

    def with_code(command: list[str]) -> list[str]:
        if "-c" in command:  # (a frozen program has none)
            command[command.index("-c") + 1] = code + command[command.index("-c") + 1]
        return command

    def spawnv_passfds(path: bytes, args: Sequence[Any], passfds: Sequence[int]) -> int:
        if "multiprocessing.forkserver" in args[-1]:
            args = with_code([*args])
        return start(path, args, passfds)

    spawn.get_command_line = lambda **kwds: with_code(command_line(**kwds))
    util.spawnv_passfds = spawnv_passfds

    def undo() -> None:
        spawn.get_command_line, util.spawnv_passfds = command_line, start

    return undo


def set_up_child(settings: dict[str, Any]) -> None:
    """Set up this process as its parent was; a log has the number of the process as a suffix."""
    if (guard := settings["guard"]) is not None and guard["log"]:
        guard["log"] += f".{os.getpid()}"
    set_up(**settings)
