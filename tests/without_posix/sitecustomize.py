"""Hides from Python what only POSIX has: put this folder in front of PYTHONPATH.

Every Python process then lacks what Windows lacks, as far as theanoguard could use it.  Python's
own modules and filelock, which have other code for Windows, are imported before.  This replaces no
test on Windows, where a file that is open cannot be renamed, for one.
"""

import asyncio  # noqa: F401
import concurrent.futures.process  # noqa: F401
import multiprocessing.context  # noqa: F401
import os
import shutil  # noqa: F401
import subprocess  # noqa: F401
import sys
import tempfile  # noqa: F401
import types
import uuid  # noqa: F401

from filelock import FileLock  # noqa: F401

MODULES = "fcntl pty resource termios tty".split()
NAMES = (
    "O_CLOEXEC O_DIRECTORY O_NOFOLLOW O_NONBLOCK fork forkpty mkfifo pread preadv pwrite pwritev"
).split()

without = types.ModuleType("os", os.__doc__)
vars(without).update((name, value) for name, value in vars(os).items() if name not in NAMES)
sys.modules.update({"os": without}, **dict.fromkeys(MODULES))
