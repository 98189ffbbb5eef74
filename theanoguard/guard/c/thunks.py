"""The thunks that a guarded virtual machine runs.  Each wraps one of PyTensor's."""

from collections.abc import Callable
from typing import Any

from theanoguard.guard.c import numpy_kernel


class Thunk:
    """A wrapped thunk, as the virtual machines expect it.

    ``cthunk`` is what the C loop calls; the object itself is what a Python loop calls.  PyTensor
    has no other way to call a compiled node from C.  A thunk without it is called from Python.
    """

    lazy = False

    def __init__(self, node: Any, call: Callable[[Any], None], kernel: Any, thunk: Any) -> None:
        if call is not numpy_kernel.call:
            self.cthunk = node
        self._node = node
        self._call = call
        self._kernel = kernel  # the capsule points into it
        self.inputs = thunk.inputs
        self.outputs = thunk.outputs

    def __call__(self) -> None:
        self._call(self._node)


class LiveThunk:
    """The thunk of a node with side effects.

    If the call is suspicious by then, the guard looks at it before the side effects happen.  It
    keeps the outputs of the node for the second run.
    """

    lazy = False

    def __init__(self, thunk: Any, before: Callable[[], None], after: Callable[[], None]) -> None:
        self._thunk = thunk
        self._before = before
        self._after = after
        self.inputs = thunk.inputs
        self.outputs = thunk.outputs

    def __call__(self) -> None:
        self._before()
        self._thunk()
        self._after()


class LazyThunk:
    """The thunk of a lazy node, which is Python: the exception flags are read before it runs.

    `after`: called when its outputs have been computed.
    """

    lazy = True

    def __init__(self, thunk: Any, kernel: Any, after: Callable[[], None]) -> None:
        self._thunk = thunk
        self._read_flags = kernel.end
        self._after = after
        self.inputs = thunk.inputs
        self.outputs = thunk.outputs

    def __call__(self) -> Any:
        self._read_flags()
        required = self._thunk()
        if not required:
            self._after()
        return required


class BodyThunk:
    """The thunk of a node with a guarded inner function: starts it, and handles its errors.

    `vm`: the virtual machine of the inner function.
    """

    lazy = False

    def __init__(self, thunk: Any, vm: Any) -> None:
        self._thunk = thunk
        self._vm = vm
        self.inputs = thunk.inputs
        self.outputs = thunk.outputs

    def __call__(self) -> None:
        body = self._vm.guard
        body.start()
        try:
            self._thunk()
        except BaseException as error:
            body.failed(self._vm, error)
