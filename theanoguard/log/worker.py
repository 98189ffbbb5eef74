"""Which worker this is, and its task: the names by which a log tells many processes apart."""

import sys
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

from theanoguard._arguments import checked
from theanoguard._context import block, setting

MAX_NAME = 200  # characters that a name may have in a log

_task: ContextVar[str | None] = ContextVar("theanoguard_task", default=None)


@checked
@block
def task(name: str) -> Iterator[None]:
    """Name the current task in the log: events inside the block get this name.

    The name applies to the thread that enters the block.  A Dask task has the name of its key
    without this block.

    Parameters
    ----------
    name : str
        The log keeps the first 200 characters.

    Examples
    --------
    >>> import os, tempfile
    >>> import pytensor, pytensor.tensor as pt
    >>> from theanoguard import GuardMode
    >>> from theanoguard.log import read_log
    >>> from theanoguard.log import task
    >>> folder = tempfile.TemporaryDirectory()
    >>> log = os.path.join(folder.name, "events.jsonl")
    >>> x = pt.dscalar("x")
    >>> f = pytensor.function([x], pt.log(x), mode=GuardMode(action="record", log=log))
    >>> with task("fold 3"):
    ...     _ = f(-1.0)
    >>> [entry.task for entry in read_log(log).entries]
    ['fold 3']
    >>> folder.cleanup()
    """
    with setting(_task, name):
        yield


def whereabouts() -> dict[str, Any]:
    """Return the names of this worker and of its task.

    Returns: dict of str to str with the keys ``worker``, on Dask the worker's name and else that of
    the process, which is missing in a main process, and ``task``, which is missing where there is
    none.
    """
    import multiprocessing  # only a program that writes a log needs it

    worker, key = _dask_worker()
    process = multiprocessing.current_process().name
    worker = worker or (None if process == "MainProcess" else process)
    names = {"worker": worker, "task": _task.get() or key}
    return {what: name[:MAX_NAME] for what, name in names.items() if name}


def _dask_worker() -> tuple[str | None, str | None]:
    """Return the name of the Dask worker whose task runs in this thread, and the task's key."""
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return None, None
    try:
        worker = distributed.get_worker()
    except (ValueError, AttributeError):  # not on a worker; still being imported
        return None, None
    return str(worker.name), str(worker.get_current_task())
