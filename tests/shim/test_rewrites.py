"""Which rewrites the predefined modes include, compared with Theano 1.0.5."""

import json
from pathlib import Path

import pytest
import shim_rewrites

pytestmark = pytest.mark.on_33

RECORDED = json.loads(Path(shim_rewrites.__file__).with_suffix(".json").read_text(encoding="utf-8"))
# Why a rewrite is chosen by other modes.  Theano's FAST_COMPILE has no database `stabilize`.
OTHER_MODES = {
    "stabilize": "PyTensor's FAST_COMPILE has this database, and in the shim one rewrite of it",
    "stabilize/crossentropy_to_crossentropy_with_softmax_with_bias": "not reached in Theano",
    "stabilize/topo_constant_folding": "not reached in Theano",
}
# Rewrites of Theano that its database in the shim does not have, by name, and why.
# `test_modes` compares the results of graphs in which they matter.
ABSENT = {
    "PyTensor does the same by rewrites of other names": """
        AbstractConvCheck batchnorm_opts conv_opts inplace_elemwise_opt
        local_abstract_batch_norm_inference local_abstract_batch_norm_train
        local_abstract_batch_norm_train_grad
        local_add_mul_fusion
        local_add_specialize local_canonicalize_alloc local_div_to_inv
        local_fill_to_alloc local_inplace_incsubtensor1 local_inv_1_plus_exp local_inv_canon
        local_log_add local_logsoftmax local_logsoftmax_grad local_max_and_argmax
        local_mul_zero local_neg_neg
        local_op_of_op local_opt_alloc local_pow_specialize_device local_subtensor_inc_subtensor
        local_subtensor_lift local_subtensor_merge
        local_sum_prod_mul_by_scalar local_useless_dimshuffle_in_reshape log1p_neg_sigmoid,
        scanOp_make_inplace scanOp_merge scanOp_merge_inouts scanOp_pushout_nonseqs_ops
        scanOp_pushout_output scanOp_pushout_seqs_ops
        scanOp_remove_constants_and_unused_inputs0 scanOp_remove_constants_and_unused_inputs1
        scanOp_remove_constants_and_unused_inputs3 scanOp_save_mem scan_pushout_dot1
        scanop_remove_constants_and_unused_inputs2
    """,
    "in the shim it is in another database, which the same modes include": """
        local_log_sum_exp local_reshape_lift local_useless_reshape
    """,
    "PyTensor writes a difference as a sum before it looks for error functions": """
        local_one_add_neg_erfc local_one_minus_erf2 local_one_minus_erfc2 local_one_minus_erfc3
        local_one_plus_neg_erf
    """,
    "the shim has no such operation": """
        local_rebroadcast_lift local_useless_composite local_useless_rebroadcast local_useless_tile
    """,
    "the operation is computed by other code: SciPy's BLAS, Theano's old convolution": """
        local_conv2d_cpu local_conv2d_gradinputs_cpu local_conv2d_gradweight_cpu
        make_scipy_blas_destructive scipy_blas
    """,
    "it saves time only": """
        local_adv_sub1_adv_inc_sub1 local_flatten_lift local_intdiv_by_one
    """,
}


def test_modes_include_the_same_rewrites(shim):
    found = shim_rewrites.recorded(shim)
    different = {
        path: (modes, found[path])
        for path, modes in RECORDED.items()
        if path in found and found[path] != modes
    }
    assert different.keys() == OTHER_MODES.keys(), different


def test_absent_rewrites_are_known(shim):
    found = shim_rewrites.recorded(shim)
    absent = {path.rpartition("/")[2] for path in RECORDED if path not in found}
    known = [name for names in ABSENT.values() for name in names.split()]
    assert len(known) == len({*known})
    assert absent == {*known}
