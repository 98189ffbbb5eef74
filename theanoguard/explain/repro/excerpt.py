"""The part of the user's modules that some classes and functions need to run by themselves."""

import ast
import inspect
import io
import linecache
import pickle
import sys
from collections.abc import Iterable
from typing import IO, Any

import pytensor


def pickle_with_source(value: Any) -> tuple[bytes, str]:
    """Pickle a value, with the source of the user's classes and functions that it needs.

    Returns
    -------
    data : bytes
    source : str
        Code that defines the classes and functions that come from none of these: Python, PyTensor,
        an installed package.  Empty if there are none.

    Raises ``pickle.PicklingError``, ``AttributeError``, ``TypeError``: if the value cannot be
    pickled.

    Examples
    --------
    >>> data, source = pickle_with_source(pytensor.tensor.log)
    >>> source
    ''
    """
    buffer = io.BytesIO()
    pickler = _Pickler(buffer)
    pickler.dump(value)
    return buffer.getvalue(), excerpt(pickler.foreign)


class _Pickler(pickle.Pickler):
    """A pickler that collects the classes and functions defined in the user's modules."""

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__(file)
        self.foreign: list[Any] = []

    def reducer_override(self, obj: Any) -> Any:
        if (inspect.isclass(obj) or inspect.isfunction(obj)) and _is_users(obj.__module__):
            self.foreign.append(obj)
        return NotImplemented


def _is_users(name: str) -> bool:
    """Whether a module is the user's own file, which another machine may not have."""
    module = sys.modules.get(name)
    file = getattr(module, "__file__", None)
    top = name.partition(".")[0]
    if file is None or top in sys.stdlib_module_names or top == pytensor.__name__:
        return name == "__main__"
    return "site-packages" not in file and "dist-packages" not in file


def excerpt(objects: Iterable[Any]) -> str:
    """Return the definitions of some objects and of everything that they use in their modules.

    It is empty if there are none.  Objects without source are left out.
    """
    wanted: dict[str, list[str]] = {}
    for obj in objects:
        wanted.setdefault(obj.__module__, []).append(obj.__qualname__.partition(".")[0])
    return "\n\n".join(filter(None, (_of_module(name, names) for name, names in wanted.items())))


def _of_module(name: str, names: Iterable[str]) -> str:
    file = getattr(sys.modules[name], "__file__", None)
    text = "".join(linecache.getlines(file)) if file else ""
    statements = ast.parse(text).body
    defined: dict[str, list[ast.stmt]] = {}
    for statement in statements:
        for bound in _bound_names(statement):
            defined.setdefault(bound, []).append(statement)
    needed, todo = set(), ["*", *names]
    while todo:
        for statement in defined.get(todo.pop(), ()):
            if statement not in needed:
                needed.add(statement)
                todo += (n.id for n in ast.walk(statement) if isinstance(n, ast.Name))
    return "\n".join(_separate(ast.unparse(s)) for s in statements if s in needed).strip()


def _separate(text: str) -> str:
    """Put blank lines around definitions that are longer than one line."""
    return f"\n\n{text}\n" if "\n" in text else text


def _bound_names(statement: ast.stmt) -> list[str]:
    """Return the names that a statement at the top of a module binds."""
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return [(alias.asname or alias.name).partition(".")[0] for alias in statement.names]
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [statement.name]
    targets = getattr(statement, "targets", [getattr(statement, "target", None)])
    return [n.id for t in targets if t is not None for n in ast.walk(t) if isinstance(n, ast.Name)]
