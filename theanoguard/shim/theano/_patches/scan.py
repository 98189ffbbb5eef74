"""Provide Scan's attributes and rewrites under Theano's names, and default updates."""

from dataclasses import dataclass

from pytensor.compile.builders import OpFromGraph
from pytensor.compile.mode import optdb
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Apply, Constant, NominalVariable
from pytensor.graph.rewriting.db import RewriteDatabase
from pytensor.graph.traversal import ancestors
from pytensor.scan import op as scan_op
from pytensor.scan.op import Scan
from pytensor.scan.rewriting import db

from theanoguard._pytensor.for_theano import name_rewrites

from . import Patch


def set_default_update(self, update):
    """Set the default update of a variable, without PyTensor's warning."""
    if update is not None:
        update = self.type.filter_variable(update, allow_convert=True)
    self._default_update = update


# Theano's attributes of the op, and how to read them in PyTensor.
SCAN = {
    "inputs": lambda op: list(op.inner_inputs),
    "outputs": lambda op: list(op.inner_outputs),
    "var_mappings": lambda op: op.get_oinp_iinp_iout_oout_mappings(),
    "tap_array": lambda op: [list(taps) for taps in op.info.tap_array],
    "mit_mot_out_slices": lambda op: [list(taps) for taps in op.info.mit_mot_out_slices],
    "n_seqs": lambda op: op.info.n_seqs,
    "n_mit_mot": lambda op: op.info.n_mit_mot,
    "n_mit_mot_outs": lambda op: op.info.n_mit_mot_outs,
    "n_mit_sot": lambda op: op.info.n_mit_sot,
    "n_sit_sot": lambda op: op.info.n_sit_sot,
    "n_nit_sot": lambda op: op.info.n_nit_sot,
    "n_shared_outs": lambda op: op.info.n_untraced_sit_sot,
    "as_while": lambda op: op.info.as_while,
}


def of_node(method, attribute):
    """Let a method that selects some of the inputs (or outputs) accept their node as well."""

    def pick(self, variables):
        whole = getattr(variables, attribute) if isinstance(variables, Apply) else variables
        return method(self, whole)

    return pick


# Methods that select inputs or outputs, under Theano's names.
PICKING = {
    "inputs": {
        "outer_seqs": Scan.outer_seqs,
        "outer_mitmot": Scan.outer_mitmot,
        "outer_mitsot": Scan.outer_mitsot,
        "outer_sitsot": Scan.outer_sitsot,
        "outer_nitsot": Scan.outer_nitsot,
        "outer_shared": Scan.outer_untraced_sit_sot,
        "outer_non_seqs": Scan.outer_non_seqs,
    },
    "outputs": {
        "outer_mitmot_outs": Scan.outer_mitmot_outs,
        "outer_mitsot_outs": Scan.outer_mitsot_outs,
        "outer_sitsot_outs": Scan.outer_sitsot_outs,
        "outer_nitsot_outs": Scan.outer_nitsot_outs,
        "outer_shared_outs": Scan.outer_untraced_sit_sot_outs,
    },
}

# Theano's and PyTensor's names of rewrites.  Modes include and exclude rewrites by name.
REWRITES = [
    (optdb, "scanOp_save_mem", "scan_save_mem"),
    (optdb, "scanOp_make_inplace", "scan_make_inplace"),
    (db.scan_seqopt1, "scanOp_pushout_nonseqs_ops", "scan_push_out_non_seq"),
    (db.scan_seqopt1, "scanOp_pushout_seqs_ops", "scan_push_out_seq"),
    (db.scan_seqopt1, "scanOp_pushout_output", "scan_push_out_add"),
    (db.scan_eqopt2, "scanOp_merge", "scan_merge"),
    (db.scan_eqopt2, "scanOp_merge_inouts", "scan_merge_inouts"),
]


@dataclass(frozen=True)
class TheanosName:
    """A second name for rewrites while the shim is installed."""

    database: RewriteDatabase
    theanos: str
    pytensors: str

    def apply(self):
        """Add the name, and return a function that removes it."""
        return name_rewrites(self.database, self.theanos, self.pytensors)


_infer_shape = scan_op.infer_shape


class ShapesOnRequest:
    """The shapes of a loop's inner outputs, computed only from the first requested one onwards.

    A loop reads only the shapes of its last outputs.  The other outputs have the shapes of their
    initial values; the gradient of a loop has many of these.
    """

    def __init__(self, outs, inputs, input_shapes):
        self.outs, self.given = outs, (inputs, input_shapes)
        self.known = {}

    def __getitem__(self, index):
        if index not in self.known:
            shapes = _infer_shape(self.outs[index:], *self.given)
            self.known = dict(enumerate(shapes, index))
        return self.known[index]


_infer_shape_of_scan = Scan.infer_shape


def shape_of_scan(self, *args):
    """Infer the shapes without a copy of the inner graph where the initial values have them all."""
    info = self.info
    if info.n_nit_sot or info.as_while:
        return _infer_shape_of_scan(self, *args)
    first = 1 + info.n_seqs
    states = info.n_mit_mot + info.n_mit_sot + info.n_sit_sot + info.n_untraced_sit_sot
    return list(args[-1][first : first + states])


def tagged(inputs, outputs):
    """Return the variables to which a program has given tags of its own."""
    return [
        v
        for v in ancestors(outputs, blockers=inputs)
        if not isinstance(v, Constant) and vars(v.tag).keys() - {"trace", "test_value"}
    ]


_init_graph = OpFromGraph.__init__
_init_scan = Scan.__init__


def init_graph(self, inputs, outputs, *args, **kwargs):
    """Keep variables with tags, which PyTensor drops."""
    _init_graph(self, inputs, outputs, *args, **kwargs)
    self.inner_tagged = tagged(inputs, outputs)


def name_inputs(self, inputs, outputs, *args, **kwargs):
    """Keep the names of a loop's inner inputs, and variables with tags, which PyTensor drops."""
    _init_scan(self, inputs, outputs, *args, **kwargs)
    self.inner_names = [None if isinstance(v, NominalVariable) else v.name for v in inputs]
    self.inner_tagged = tagged(inputs, outputs)


PATCHES = [
    Patch(OpFromGraph, "__init__", init_graph),
    Patch(Scan, "__init__", name_inputs),
    Patch(scan_op, "infer_shape", ShapesOnRequest),
    Patch(Scan, "infer_shape", shape_of_scan),
    Patch(
        SharedVariable, "default_update", SharedVariable.default_update.setter(set_default_update)
    ),
    *(Patch(Scan, name, property(value)) for name, value in SCAN.items()),
    *(
        Patch(Scan, name, of_node(method, attribute))
        for attribute, methods in PICKING.items()
        for name, method in methods.items()
    ),
    Patch(Scan, "inner_shared", Scan.inner_untraced_sit_sot),
    Patch(Scan, "inner_shared_outs", Scan.inner_untraced_sit_sot_outs),
    *(TheanosName(*names) for names in REWRITES),
]
