"""The names of PyTensor that the import shim needs."""

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from copy import copy
from typing import Any

from pytensor.compile.mode import Mode
from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.db import RewriteDatabase
from pytensor.link.c import cmodule

from theanoguard._pytensor import (
    Scan,
    VMLinker,
    _existing,
    advanced_increment_ops,
    advanced_subtensor_ops,
    fast_run_linkers_to_mode,
    ifelse,
    input_shapes,
    sort_axis,
)
from theanoguard._releases import needs

__all__ = [
    "Scan",
    "VMLinker",
    "advanced_increment_ops",
    "advanced_subtensor_ops",
    "fast_run_modes",
    "forget_module_cache",
    "ifelse",
    "increment_broadcast_checks",
    "input_shapes",
    "lengths_of",
    "name_rewrites",
    "register_rewrite",
    "registered",
    "renamed",
    "sort_axis",
    "untag_rewrites",
    "withhold_rewrite",
]


def fast_run_modes() -> dict[str, Mode]:
    """Return the modes that FAST_RUN may mean, by linker."""
    # In 3.0 the one for "vm" is a tuple by mistake.
    return {
        linker: mode[0] if isinstance(mode, tuple) else mode
        for linker, mode in fast_run_linkers_to_mode.items()
    }


def forget_module_cache() -> None:
    """Have PyTensor read its compile cache from disk again.

    What it keeps in memory names classes; those of a module that is imported a second time
    are equal but not the same, and cannot be written.
    """
    cmodule._module_cache = None


increment_broadcast_checks = [
    name for name in vars(advanced_increment_ops[-1]) if name.startswith("_check_runtime_broadcast")
]


def _needs_tables(database: RewriteDatabase) -> None:
    """Raise an error if a database does not keep its rewrites in tables by tag.

    PyTensor has no public way to take a rewrite out again, or its tag.  Only the shim does that.
    """
    needs(database, "__db__", "_names", what="the shim for Theano")


def register_rewrite(
    database: RewriteDatabase, name: str, rewriter: Any, *tags: str, **settings: Any
) -> Callable[[], None]:
    """Register a rewrite and return a function that takes it out of the database again.

    `**settings`: as for ``database.register``.
    """
    _needs_tables(database)
    before = set(database.__db__)
    database.register(name, rewriter, *tags, **settings)

    def undo() -> None:
        for tag, rewriters in list(database.__db__.items()):
            rewriters.discard(rewriter)
            if not rewriters and tag not in before:
                del database.__db__[tag]
        database._names.discard(name)
        for table in ("__position__", "__final__", "__cleanup__"):
            getattr(database, table, {}).pop(name, None)

    return undo


def registered(database: RewriteDatabase, name: str) -> Any:
    """Return the rewriter of a name in a database, or None.

    Who queries a database for a name, such as by ``mode.excluding(name)``, leaves an empty entry.
    ``name in database`` is then true.
    """
    if name in database:
        with suppress(KeyError):
            return database[name]
    return None


def withhold_rewrite(database: RewriteDatabase, name: str) -> Callable[[], None]:
    """Take a rewrite out of a database and return a function that puts it back in its place.

    If there is no rewrite called `name`, nothing happens.
    """
    rewriter = registered(database, name)
    if rewriter is None:
        return lambda: None
    _needs_tables(database)
    before = {
        tag: list(rewriters) for tag, rewriters in database.__db__.items() if rewriter in rewriters
    }
    for tag in before:
        database.__db__[tag].discard(rewriter)

    def undo() -> None:
        for tag, order in before.items():
            _put_back(database.__db__[tag], order)

    return undo


def untag_rewrites(
    database: RewriteDatabase, tag: str, kept: Collection[str]
) -> Callable[[], None]:
    """Take a tag from rewrites of a database and return a function that gives it back.

    `kept`: the names of the rewrites that keep the tag.
    """
    _needs_tables(database)
    tagged = database.__db__[tag]
    before = list(tagged)
    for rewriter in before:
        if rewriter.name not in kept:
            tagged.discard(rewriter)

    return lambda: _put_back(tagged, before)


def _put_back(rewriters: Any, order: Sequence[Any]) -> None:
    """Give an ordered set the elements and the order it had, and keep what came in since."""
    since = [one for one in rewriters if one not in order]
    rewriters.clear()
    rewriters.update([*order, *since])


def lengths_of(fgraph: FunctionGraph, variable: Variable) -> list:
    """Return the lengths of a tensor, as they are known in a graph that is rewritten."""
    feature: Any = getattr(fgraph, "shape_feature", None)
    if hasattr(feature, "shape_tuple"):  # 3.3
        return list(feature.shape_tuple(variable))
    known = feature.shape_of.get(variable) if feature is not None else None
    return list(variable.shape if known is None else known)


def renamed(module: Any, *names: str) -> Any:
    """Return what a module has under one of these names, the older ones first."""
    return _existing(module, *names)[0]


def name_rewrites(database: RewriteDatabase, alias: str, name: str) -> Callable[[], object]:
    """Let `alias` choose what `name` does in a database; return a function that undoes it.

    `name`: the name or a tag of rewrites.
    """
    _needs_tables(database)
    database.__db__[alias] = copy(database.__db__[name])
    return lambda: database.__db__.pop(alias)
