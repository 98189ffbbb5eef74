"""Writes files atomically: if writing fails, the old file stays as it was."""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import IO

PAUSES = (0.01, 0.05, 0.2, 0.5) if os.name == "nt" else ()
"""Seconds to wait before each new try to replace a file that a program may have open."""


def replace_file(source: "str | PathLike[str]", target: "str | PathLike[str]") -> None:
    """Rename a file or folder, as :func:`os.replace`.

    Windows refuses this while a program, such as a virus scanner, has one of them open, so it is
    tried again for a second there.
    """
    for pause in PAUSES:
        try:
            return os.replace(source, target)
        except PermissionError:
            time.sleep(pause)
    os.replace(source, target)


@contextmanager
def replacing(path: "str | PathLike[str]") -> Iterator[IO[bytes]]:
    """Open a binary file that takes the place of `path` when the block ends without an error.

    Several processes and threads may write the same file; the last one wins.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "notes.txt"
    >>> write_atomically(path, b"first")
    >>> try:
    ...     with replacing(path) as file:
    ...         _ = file.write(b"second")
    ...         raise OSError("the disk is full")
    ... except OSError:
    ...     path.read_bytes(), [found.name for found in path.parent.iterdir()]
    (b'first', ['notes.txt'])
    """
    path = Path(path)
    scratch = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        with scratch.open("wb") as file:
            yield file
        replace_file(scratch, path)
    except OSError as error:
        if str(error.filename) == str(scratch):  # the user knows only the path
            error.filename = str(path)
        raise
    finally:
        scratch.unlink(missing_ok=True)


def write_atomically(path: "str | PathLike[str]", data: bytes) -> None:
    """Write the bytes of a file; if that fails, the old file stays as it was."""
    with replacing(path) as file:
        file.write(data)
