"""Theano's ``theano.scan_module.scan_utils``."""

import numpy as np
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import graph_inputs, io_toposort
from pytensor.scan.utils import ScanArgs as scan_args  # noqa: F401
from pytensor.tensor.basic import get_scalar_constant_value
from pytensor.tensor.exceptions import NotScalarConstantError

from .._rebroadcast import replacements


def clone(output, replace=None, strict=True, share_inputs=True, copy_inputs=None):
    """Return a copy of a graph in which subgraphs are replaced.

    Parameters
    ----------
    output : variable or list of variables
    replace : dict or list of pairs, optional
        What to replace, and what by.
    strict : bool
        Whether what replaces must have the type of what it replaces.
    share_inputs : bool
        Whether the copy has the same inputs and not copies of them.
    copy_inputs : bool, optional
        The former name of `share_inputs`.

    Raises
    ------
    ValueError
        If `replace` is something else.
    """
    if not isinstance(replace, dict | list | tuple | None):
        raise ValueError(
            f"replace is neither a dictionary, list, tuple or None! The value is {replace}, "
            f"of type {type(replace)}"
        )
    pairs = replace.items() if isinstance(replace, dict) else replace or ()
    return clone_replace(
        output,
        replacements(pairs) if strict else dict(pairs),
        rebuild_strict=strict,
        copy_inputs_over=share_inputs if copy_inputs is None else copy_inputs,
    )


def map_variables(replacer, graphs, additional_inputs=()):
    """Return graphs in which variables are replaced.

    Parameters
    ----------
    replacer : callable
        Returns what to put in the place of a variable, or the variable itself.  It is not
        asked about what it has returned.
    graphs : iterable of variables
    additional_inputs : iterable of variables
        Not needed: what replaces a variable may depend on any inputs.

    Raises
    ------
    NotImplementedError
        If a variable inside a loop or an ``OpFromGraph`` is to be replaced.

    Examples
    --------
    >>> import theanoguard
    >>> theano = theanoguard.shim.install_theano()
    >>> from theano.scan_module.scan_utils import map_variables
    >>> a, b, c = theano.tensor.scalars("abc")
    >>> print(theano.pp(map_variables(lambda x: c if x is b else x, [a + b])[0]))
    (a + c)
    >>> theanoguard.shim.uninstall_theano()
    """
    graphs = list(graphs)
    new = {x: replacer(x) for x in graph_inputs(graphs)}
    for node in io_toposort([], graphs):
        if (inner := getattr(node.op, "fgraph", None)) is not None:
            for x in (*inner.variables, *getattr(node.op, "inner_tagged", ())):
                if replacer(x) is not x:
                    raise NotImplementedError(
                        f"the variable {x} to be replaced is inside of {node.op}.\n"
                        "Replace it before the loop, or the OpFromGraph, is made."
                    )
        copied = node.clone_with_new_inputs([new[x] for x in node.inputs])
        for old, output in zip(node.outputs, copied.outputs, strict=True):
            replaced = replacer(old)
            new[old] = output if replaced is old else replaced
    return [new[x] for x in graphs]


def isNaN_or_Inf_or_None(x):
    """Whether a number of steps says nothing: it is None, NaN or infinite."""
    if x is None:
        return True
    try:
        return not np.isfinite(get_scalar_constant_value(x))
    except (NotScalarConstantError, TypeError):
        return False


def traverse(out, x, x_copy, d, visited=None):
    """Return `d` as it is.  Theano adds the variables of a GPU to it, and there are none here."""
    return d


def hash_listsDictsTuples(x):
    """Return a hash of nested lists, tuples and dictionaries."""
    if isinstance(x, dict):
        return hash(tuple((k, hash_listsDictsTuples(v)) for k, v in x.items()))
    if isinstance(x, list | tuple):
        return hash(tuple(hash_listsDictsTuples(v) for v in x))
    return hash(x)
