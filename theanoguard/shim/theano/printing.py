"""Showing graphs and values."""

import hashlib
import inspect
import sys
from dataclasses import dataclass, field
from importlib.util import find_spec
from io import StringIO
from itertools import repeat
from typing import TextIO

import numpy as np
import pytensor.printing
from pytensor.compile.executor import Function
from pytensor.compile.io import SymbolicInput, SymbolicOutput
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.printing import _TagGenerator, char_from_number, leaf_printer
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.math import Prod, Sum
from pytensor.tensor.subtensor import IncSubtensor, Subtensor

import theanoguard.view
from theanoguard._pytensor.for_theano import (
    Scan,
    advanced_increment_ops,
    advanced_subtensor_ops,
)
from theanoguard.ops.print import print_attributes

from .gof._graphs import clients_of
from .tensor._one_node import Dot

VALID_ASSOC = {"left", "right", "either"}
pydot_imported = any(find_spec(name) for name in ("pydot", "pydot_ng", "pydotplus"))
pydot_imported_msg = "" if pydot_imported else "There is no pydot."
_print_fn = print_attributes
# (Theano takes any number for a boolean.)
pydotprint = inspect.unwrap(theanoguard.view.pydotprint)


@dataclass
class _Tree:
    """The lines of a debugprint in Theano's layout, which tells an Apply and its inputs below.

    Parameters
    ----------
    file : TextIO
    ids : {"CHAR", "int", "id", ""}
        What stands for an object.
    print_type, stop_on_name, print_clients : bool
    done : dict
        What has been printed.
    used_ids : dict
        What stands for the objects that have been printed or spoken of.
    """

    file: TextIO
    ids: str
    print_type: bool
    stop_on_name: bool
    print_clients: bool
    done: dict
    used_ids: dict
    scans: list = field(default_factory=list)  # and what `scope` was at each
    scope: object = None  # the scan whose inner graph is being printed
    inner: dict = field(default_factory=dict)  # the texts of its inputs

    def key_of(self, obj):
        """Return what an object is known by: PyTensor has equal nodes of several scans once."""
        return obj if self.scope is None else (id(self.scope), obj)

    def id_of(self, obj, printed=True):
        key = self.key_of(obj)
        if key not in self.used_ids:
            number = len(self.used_ids)
            texts = {"CHAR": char_from_number, "int": str, "id": lambda number: str(id(obj))}
            self.used_ids[key] = f"[id {texts[self.ids](number)}]" if self.ids else ""
        if printed:
            self.done[key] = self.used_ids[key]
        return self.used_ids[key]

    def show(self, variable, depth, order=(), storage=None, prefix="", below="", again=False):
        """Print a variable and, to a depth, what it is computed from."""
        if variable.owner is not None and isinstance(variable.owner.op, Scan) and not again:
            self.scans.append((variable, self.scope, self.inner))
        if depth == 0:
            return
        type_text = f" <{variable.type}>" if self.print_type else ""
        node = variable.owner
        value = f" {storage.get(variable, '')}" if storage else ""
        if node is None:
            name, outer = self.inner.get(variable, (variable, ""))
            print(f"{prefix}{name} {self.id_of(variable)}{type_text}{outer}{value}", file=self.file)
            return
        seen = self.key_of(node) in self.done
        which = f".{variable.index}" if len(node.outputs) > 1 else ""
        head = f"{prefix}{node.op}{which} {self.id_of(node)}{type_text} '{variable.name or ''}'"
        place = order.index(node) if node in order else ""
        clients = self.clients_text(variable, order) if self.print_clients else ""
        print(f"{head}   {place}{value}{clients}", file=self.file)
        if seen or (self.stop_on_name and variable.name is not None):
            return
        for i, parent in enumerate(node.inputs):
            further = "  " if i == len(node.inputs) - 1 else " |"
            self.show(parent, depth - 1, order, storage, below + " |", below + further)

    def clients_text(self, variable, order):
        try:
            clients = clients_of(variable)
        except AttributeError:  # in no FunctionGraph
            return ""
        if len(clients) < 2:
            return ""
        outputs = [client for client in clients if client[0] == "output"]
        if outputs:
            self.used_ids["output"] = "output"  # it counts among the ids
        told = [("output", "")] * len(outputs) + [
            (self.id_of(client, False), order.index(client) if client in order else "")
            for client, _ in clients
            if client != "output"
        ]
        return f" clients:{told}"

    def show_scans(self, depth):
        """Print the inner graphs of all scans that have been printed, and of those in them."""
        if self.scans:
            print("\nInner graphs of the scan ops:", file=self.file)
        for scan, scope, inner in self.scans:  # which grows
            self.scope, self.inner = scope, inner
            print(file=self.file)
            self.show(scan, depth, again=True)
            op, inputs = scan.owner.op, scan.owner.inputs
            places = op.get_oinp_iinp_iout_oout_mappings()["outer_inp_from_inner_inp"]
            self.inner = {
                inner: (name or f"<{inner.type}>", f" -> {self.id_of(outer.owner or outer)}")
                for inner, name, outer in zip(
                    op.inner_inputs,
                    getattr(op, "inner_names", repeat(None)),
                    [inputs[place] for _, place in sorted(places.items())],
                    strict=False,
                )
            }
            self.scope = op
            for output in op.inner_outputs:
                self.show(output, depth, prefix=" >", below=" >")


def debugprint(
    obj,
    depth=-1,
    print_type=False,
    file=None,
    ids="CHAR",
    stop_on_name=False,
    done=None,
    print_storage=False,
    print_clients=False,
    used_ids=None,
):
    """Print a graph as text, in Theano's layout.

    Parameters
    ----------
    obj : Variable, Apply, Function, FunctionGraph, In, Out, number, or list of them
    depth : int
        How deep to go; -1 for all.
    print_type : bool
        Whether to print types.
    file : TextIO or "str", optional
        Where to print; "str" to have the text returned.
    ids : {"CHAR", "int", "id", ""}
        What stands for a variable.
    stop_on_name : bool
        Whether to print nothing below a variable with a name.
    done, used_ids : dict, optional
        What earlier calls have printed, and as what.
    print_storage : bool
        Of a function, whether to print the stored values.
    print_clients : bool
        Whether to tell the users of what has more than one.
    """
    if not isinstance(depth, int):
        raise Exception("depth parameter must be an int")
    out = StringIO() if isinstance(file, str) else sys.stdout if file is None else file
    tree = _Tree(
        out,
        ids,
        print_type,
        stop_on_name,
        print_clients,
        {} if done is None else done,
        {} if used_ids is None else used_ids,
    )
    for item in obj if isinstance(obj, list | tuple | set) else [obj]:
        if isinstance(item, int | float | np.ndarray):
            print(item, file=out)
            continue
        variables, order, storage = _what_to_print(item, print_storage)
        for variable in variables:
            tree.show(variable, depth, order, storage)
    tree.show_scans(depth)
    if isinstance(file, str):
        return out.getvalue()
    return file


def _what_to_print(item, print_storage):
    """Return the variables of an object, the order of its nodes, and its stored values."""
    if isinstance(item, Variable):
        return [item], (), None
    if isinstance(item, Apply):
        return item.outputs, (), None
    if isinstance(item, SymbolicInput | SymbolicOutput):
        return [item.variable], (), None
    if isinstance(item, Function):
        fgraph = item.maker.fgraph
        return fgraph.outputs, fgraph.toposort(), item.vm.storage_map if print_storage else None
    if isinstance(item, FunctionGraph):
        return item.outputs, item.toposort(), None
    raise TypeError("debugprint cannot print an object of this type", item)


class FunctionPrinter(pytensor.printing.FunctionPrinter):
    """Prints an operation as a call of a function: one name for each of its outputs."""

    def __init__(self, *names):
        super().__init__(list(names))


# As leaves, constants show themselves as Theano's do.
pprint = pytensor.printing.pprint.clone_assign(
    lambda pstate, r: isinstance(r, Constant), leaf_printer
)


class ElemwisePrinter(pytensor.printing.Printer):
    """Prints an element-wise operation as a call: ``exp(x)``."""

    def process(self, r, pstate):
        text = str(r.owner.op)
        name = text.partition("{")[2].partition(",")[0].rstrip("}") or text  # "sigmoid" has none
        inputs = ", ".join(pstate.pprinter.process(i, pstate) for i in r.owner.inputs)
        return f"{name}({inputs})"


pprint.assign(
    lambda pstate, r: r.owner is not None and isinstance(r.owner.op, Elemwise), ElemwisePrinter()
)
for called in (Sum, Prod, IncSubtensor, *advanced_subtensor_ops, *advanced_increment_ops):
    pprint.assign(called, pytensor.printing.DefaultPrinter())


class SubtensorPrinter(pytensor.printing.Printer):
    """Prints an index: a number by itself, the parts of a slice as their types."""

    def process(self, r, pstate):
        x, *numbers = r.owner.inputs
        left, parts = iter(numbers), []
        for entry in r.owner.op.idx_list:
            if isinstance(entry, slice):
                ends = entry.start, entry.stop, entry.step
                start, stop, step = ("" if kind is None else f"{next(left).type}" for kind in ends)
                parts.append(f"{start}:{stop}" + (step and f":{step}"))
            else:
                parts.append(pstate.pprinter.process(next(left)))
        return f"{pstate.pprinter.process(x, pstate)}[{', '.join(parts)}]"


pprint.assign(Subtensor, SubtensorPrinter())
pprint.assign(
    lambda pstate, r: r.owner is not None and str(r.owner.op) == "Join", FunctionPrinter("join")
)
pprint.assign(
    Dot(),
    pytensor.printing.OperatorPrinter(pytensor.printing.special["middle_dot"], -1, "left"),
)
pp = pprint


def var_descriptor(obj, _prev_obs=None, _tag_generator=None):
    """Return one line that tells how a variable is computed, the same in each process."""
    seen = {} if _prev_obs is None else _prev_obs
    if id(obj) in seen:
        return f"<{seen[id(obj)]}>"
    tags = _tag_generator or _TagGenerator()
    tag = seen[id(obj)] = tags.get_tag()
    if hasattr(obj, "__array__"):
        digest = hashlib.sha256(np.ascontiguousarray(obj)).hexdigest()
        strides = ",".join(map(str, obj.strides))
        name = f"<ndarray:strides=[{strides}],digest={digest}>"
    elif getattr(obj, "owner", None) is not None:
        inputs = ",".join(var_descriptor(i, seen, tags) for i in obj.owner.inputs)
        name = f"{obj.owner.op}({inputs})"
    elif getattr(obj, "name", None) is not None:
        name = obj.name
    else:
        name = str(obj)
        if " at 0x" in name:
            name = position_independent_str(obj)
    return f"{tag}={name}"


def position_independent_str(obj):
    """Return a text about a variable without its address."""
    if not isinstance(obj, Variable):
        raise NotImplementedError(f"no text without an address for a {type(obj).__name__}")
    return f"theano_var{{type={obj.type}}}"


def hex_digest(x):
    """Return a hash of an array's content, followed by its strides and shape."""
    digest = hashlib.sha256(x.tobytes()).hexdigest()
    strides = ",".join(map(str, x.strides))
    shape = ",".join(map(str, x.shape))
    return f"{digest}|strides=[{strides}]|shape=[{shape}]"
