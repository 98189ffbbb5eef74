"""The lock on the directory of compiled code."""

from contextlib import ExitStack, contextmanager

from pytensor.compile import compilelock
from pytensor.configdefaults import config

_held = []


def get_lock(lock_dir=None, timeout=None, **kw):
    """Take the lock; `release_lock` gives it back.  What holds it may take it again.

    The other arguments of Theano's are accepted; PyTensor's lock does not need them.
    """
    stack = ExitStack()
    stack.enter_context(compilelock.lock_ctx(lock_dir, timeout=timeout))
    _held.append(stack)


def release_lock():
    """Give back the lock that was taken last."""
    assert _held, "release_lock() without get_lock()"
    _held.pop().close()


@contextmanager
def lock_ctx(lock_dir=None, keep_lock=False, **kw):
    """Hold the lock inside the block, and after it if `keep_lock`."""
    get_lock(lock_dir, **kw)
    yield
    if not keep_lock:
        release_lock()


class _Everything(dict):
    """The locks that a thread holds, if it is to take none."""

    def __contains__(self, key):
        return True


def set_lock_status(use_lock):
    """Let this thread take the lock, or no lock.

    Without locks, give each process a ``base_compiledir`` of its own.
    """
    compilelock.local_mem._locks = {} if use_lock else _Everything()


def force_unlock():
    """Give back the lock, whoever holds it."""
    compilelock.force_unlock(config.compiledir)
