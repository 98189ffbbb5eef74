"""Scan's attributes and rewrites under Theano's names; and default updates without a warning."""

from dataclasses import dataclass

from pytensor.compile.mode import optdb
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Apply
from pytensor.graph.rewriting.db import RewriteDatabase
from pytensor.scan import op as scan_op
from pytensor.scan.op import Scan
from pytensor.scan.rewriting import db

from theanoguard._pytensor import name_rewrites

from . import Patch


def set_default_update(self, update):
    """Let functions update the variable by this expression; PyTensor warns of that."""
    if update is not None:
        update = self.type.filter_variable(update, allow_convert=True)
    self._default_update = update


# What Theano keeps on the op, by where PyTensor has it.
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
    """Let a method that picks some of the inputs (or outputs) take their node instead."""

    def pick(self, variables):
        whole = getattr(variables, attribute) if isinstance(variables, Apply) else variables
        return method(self, whole)

    return pick


# Methods that pick, under Theano's names, by what they pick from.
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

# Where Theano's names of rewrites, by which modes include and exclude them, are PyTensor's.
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
    """A second name of rewrites while the shim is in place."""

    database: RewriteDatabase
    theanos: str
    pytensors: str

    def apply(self):
        """Give the name and return a function that takes it away again."""
        return name_rewrites(self.database, self.theanos, self.pytensors)


_infer_shape = scan_op.infer_shape


class ShapesOnRequest:
    """The shapes of a loop's inner outputs, computed from the first that is asked for on.

    A loop reads those of its last outputs only.  A gradient's other outputs, of which there are
    many, have the shapes of what they start with.
    """

    def __init__(self, outs, inputs, input_shapes):
        self.outs, self.given = outs, (inputs, input_shapes)
        self.known = {}

    def __getitem__(self, index):
        if index not in self.known:
            shapes = _infer_shape(self.outs[index:], *self.given)
            self.known = dict(enumerate(shapes, index))
        return self.known[index]


PATCHES = [
    Patch(scan_op, "infer_shape", ShapesOnRequest),
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
