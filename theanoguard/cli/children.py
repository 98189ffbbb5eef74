"""Set up a program under the shim, and the processes that it starts by multiprocessing."""

import os
from collections.abc import Callable, Sequence
from multiprocessing import spawn, util
from typing import Any

from theanoguard._patching import Patch, Wrapped, apply
from theanoguard.guard.every_function import guarding
from theanoguard.shim import numpy_compat, python_compat
from theanoguard.shim.install import offer_theano


def set_up(numpy_names: bool, python_names: bool, guard: dict[str, Any] | None) -> None:
    """Let ``import theano`` import the shim.

    - `numpy_names`, `python_names`: whether to restore old names.
    - `guard`: arguments of :class:`guarding`, to guard every function.
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
    """Set up each process that multiprocessing starts, by "spawn" or "forkserver".

    A process that is forked has all that its parent has.

    - `**settings`: arguments of :func:`set_up`.
    - Returns: undoes this.
    """
    code = f"from {__name__} import set_up_child; set_up_child({settings!r}); "

    def with_code(command: Sequence[Any]) -> list[Any]:
        if "-c" not in command:  # (a frozen program)
            return [*command]
        place = command.index("-c") + 1
        return [*command[:place], code + command[place], *command[place + 1 :]]

    def of_spawn(get_command_line: Wrapped) -> Wrapped:
        return lambda **kwds: with_code(get_command_line(**kwds))

    def of_server(spawnv_passfds: Wrapped) -> Wrapped:
        def start(path: Any, args: Sequence[Any], passfds: Any) -> Any:
            is_server = "multiprocessing.forkserver" in args[-1]
            return spawnv_passfds(path, with_code(args) if is_server else args, passfds)

        return start

    return apply(
        [Patch(spawn, "get_command_line", of_spawn), Patch(util, "spawnv_passfds", of_server)]
    )


def set_up_child(settings: dict[str, Any]) -> None:
    """Set up this process as its parent was; a log has the number of the process as a suffix."""
    if (guard := settings["guard"]) is not None and guard["log"]:
        guard["log"] += f".{os.getpid()}"
    set_up(**settings)
