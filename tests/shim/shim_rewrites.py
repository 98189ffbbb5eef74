"""Which rewrites the predefined modes include: the names that Theano 1.0.5 has in each database.

::

    THEANO_FLAGS=cxx= python3.7 tests/shim/shim_rewrites.py  # with Theano 1.0.5

Recorded is for each rewrite of each database which of ``fast_run`` and ``fast_compile`` choose it.
Those for GPUs are left out.
"""

import json
import os

# Theano's mode FAST_COMPILE includes the second of these tags on any device.
TAGS = {"fast_run": ("fast_run",), "fast_compile": ("fast_compile", "fast_compile_gpu")}


def tags_of(database, found, prefix=""):
    """Add the rewrites of a database and of those inside it, with the modes that include them."""
    entries = {}
    for tag, members in database.__db__.items():
        for member in list(members):
            name = getattr(member, "name", None)
            if name and isinstance(tag, str) and "gpu" not in name.lower():
                entries.setdefault(name, (member, set()))[1].add(tag)
    for name, (member, tags) in entries.items():
        path = "{}/{}".format(prefix.split("/")[0], name) if prefix else name
        found[path] = [mode for mode, own in TAGS.items() if tags.intersection(own)]
        if hasattr(member, "__db__"):
            tags_of(member, found, path)
    return found


def recorded(theano):
    """The modes of all rewrites that an installed Theano, or the shim, has."""
    import theano.scan_module
    import theano.sparse
    import theano.tensor.nnet  # noqa: F401

    return tags_of(theano.compile.mode.optdb, {})


def main():
    import theano

    with open(os.path.splitext(os.path.abspath(__file__))[0] + ".json", "w") as file:
        json.dump(recorded(theano), file, indent=0, sort_keys=True)


if __name__ == "__main__":
    main()
