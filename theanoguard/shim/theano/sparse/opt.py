"""Theano's ``theano.sparse.opt``."""

from pytensor.sparse import rewriting
from pytensor.sparse.rewriting import CSMGradC as CSMGradC
from pytensor.sparse.rewriting import MulSDCSC as MulSDCSC
from pytensor.sparse.rewriting import MulSDCSR as MulSDCSR
from pytensor.sparse.rewriting import MulSVCSR as MulSVCSR
from pytensor.sparse.rewriting import SamplingDotCSR as SamplingDotCSR
from pytensor.sparse.rewriting import StructuredDotCSC as StructuredDotCSC
from pytensor.sparse.rewriting import StructuredDotCSR as StructuredDotCSR
from pytensor.sparse.rewriting import UsmmCscDense as UsmmCscDense
from pytensor.sparse.rewriting import _is_dense as _is_dense
from pytensor.sparse.rewriting import _is_sparse_variable as _is_sparse_variable
from pytensor.sparse.rewriting import csm_grad_c as csm_grad_c
from pytensor.sparse.rewriting import local_addsd_ccode as local_addsd_ccode
from pytensor.sparse.rewriting import local_csm_grad_c as local_csm_grad_c
from pytensor.sparse.rewriting import local_csm_properties_csm as local_csm_properties_csm
from pytensor.sparse.rewriting import (
    local_dense_from_sparse_sparse_from_dense as local_dense_from_sparse_sparse_from_dense,
)
from pytensor.sparse.rewriting import local_inplace_addsd_ccode as local_inplace_addsd_ccode
from pytensor.sparse.rewriting import local_inplace_remove0 as local_inplace_remove0
from pytensor.sparse.rewriting import local_mul_s_d as local_mul_s_d
from pytensor.sparse.rewriting import local_mul_s_v as local_mul_s_v
from pytensor.sparse.rewriting import local_sampling_dot_csr as local_sampling_dot_csr
from pytensor.sparse.rewriting import local_structured_add_s_v as local_structured_add_s_v
from pytensor.sparse.rewriting import local_structured_dot as local_structured_dot
from pytensor.sparse.rewriting import local_usmm as local_usmm
from pytensor.sparse.rewriting import local_usmm_csc_dense_inplace as local_usmm_csc_dense_inplace
from pytensor.sparse.rewriting import local_usmm_csx as local_usmm_csx
from pytensor.sparse.rewriting import mul_s_d_csc as mul_s_d_csc
from pytensor.sparse.rewriting import mul_s_d_csr as mul_s_d_csr
from pytensor.sparse.rewriting import mul_s_v_csr as mul_s_v_csr
from pytensor.sparse.rewriting import sampling_dot_csr as sampling_dot_csr
from pytensor.sparse.rewriting import sd_csc as sd_csc
from pytensor.sparse.rewriting import sd_csr as sd_csr
from pytensor.sparse.rewriting import structured_add_s_v_csr as structured_add_s_v_csr
from pytensor.sparse.rewriting import usmm_csc_dense as usmm_csc_dense
from pytensor.sparse.rewriting import usmm_csc_dense_inplace as usmm_csc_dense_inplace

from theanoguard._pytensor import renamed

AddSD_ccode = renamed(rewriting, "AddSD_ccode", "AddSparseDenseC")
StructuredAddSVCSR = type(structured_add_s_v_csr)
