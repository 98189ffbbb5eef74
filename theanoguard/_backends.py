"""The backends that can be guarded.

Each is a folder of ``theanoguard/guard`` that declares its traits as ``BACKEND``.  All other code
asks :func:`backends`, and names no folder.
"""

import importlib
import importlib.util
import pkgutil
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Literal, TypeAlias

from theanoguard._releases import probed

BackendName: TypeAlias = Literal["c", "jax", "numba", "pytorch", "auto"]
"""The names of the backends, for type checkers; "auto" stands for PyTensor's default."""


FOLDERS = "theanoguard.guard"
"""The package with the folders, which are loaded like plugins: by the names that are found."""


class NoLinker:
    """Stands in for the linker of a backend that the installed PyTensor does not have."""


@dataclass(frozen=True, kw_only=True)
class Backend:
    """The traits of a backend that can be guarded."""

    name: str  # as in ``GuardMode(backend=...)``
    title: str  # its name in texts
    pytensor_linker: str  # PyTensor's class of its linkers, with the module
    #: Module and class of the guarded linker, which is imported when a mode needs it.
    guarded_linker: str
    linkers: tuple[str, ...]  # PyTensor's names of its linkers; the first is the default
    #: Arguments of these linkers that the guarded linker takes over.
    settings: tuple[str, ...] = ("allow_gc",)
    package: str | None = None  # the package that has to be installed
    #: If the backend computes on several kinds of devices: a module with the functions
    #: ``on_device(kind)``, which returns a context or raises; ``default_device()``, which returns a
    #: kind; and ``described()``, which returns a text.
    devices: str | None = None
    #: The statement that keeps the backend from rounding factors of products on a GPU.
    full_precision: str | None = None
    returns_early: bool = False  # whether a call may return before it has computed
    #: Whether functions must not overwrite their arguments, because a check that stops compiled
    #: code could not restore them.
    keeps_arguments: bool = False
    drops_masks: bool = False  # whether PyTensor's rewrites drop the length of a boolean index
    same_bits: bool = False  # whether a guarded function gives the bits of the unguarded one
    flushes_subnormals: bool = False  # whether operations take subnormal numbers for 0
    own_draws: bool = False  # whether random numbers are not NumPy's

    @cached_property
    def linker(self) -> Any:
        """PyTensor's class of its linkers, or :class:`NoLinker`."""
        return probed(self.pytensor_linker, f"backend={self.name!r}") or NoLinker

    @cached_property
    def guarded(self) -> Any:
        """The guarded linker's class."""
        return pkgutil.resolve_name(self.guarded_linker)

    def is_installed(self) -> bool:
        """Whether its package is there."""
        return self.package is None or importlib.util.find_spec(self.package) is not None

    def device_functions(self) -> Any:
        """Return the module `devices`, or None without devices or without the package."""
        if self.devices is None or not self.is_installed():
            return None
        return importlib.import_module(self.devices)


@cache
def backends() -> dict[str, Backend]:
    """Return the traits of all backends by name; a program may add its own.

    Examples
    --------
    >>> list(backends())
    ['c', 'jax', 'numba', 'pytorch']
    """
    guard = importlib.import_module(FOLDERS)
    folders = (found.name for found in pkgutil.iter_modules(guard.__path__) if found.ispkg)
    modules = (importlib.import_module(f"{FOLDERS}.{folder}") for folder in folders)
    known = [module.BACKEND for module in modules if hasattr(module, "BACKEND")]
    # (To look for a linker notes whether this PyTensor lacks it, which every caller may ask then.)
    return {backend.name: backend for backend in known if backend.linker}


def backend_of(linker: Any) -> Backend | None:
    """Return the backend that a linker compiles for, or None if that cannot be guarded."""
    return next((b for b in backends().values() if isinstance(linker, b.linker)), None)
