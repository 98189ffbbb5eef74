"""Theano's ``theano.tensor.blas``."""

from pytensor.tensor.blas import BatchedDot as BatchedDot
from pytensor.tensor.blas import Dot22 as Dot22
from pytensor.tensor.blas import Dot22Scalar as Dot22Scalar
from pytensor.tensor.blas import Gemm as Gemm
from pytensor.tensor.blas import GemmRelated as GemmRelated
from pytensor.tensor.blas import Gemv as Gemv
from pytensor.tensor.blas import _dot22 as _dot22
from pytensor.tensor.blas import _dot22scalar as _dot22scalar
from pytensor.tensor.blas import _ldflags as _ldflags
from pytensor.tensor.blas import gemm as gemm
from pytensor.tensor.blas import gemm_inplace as gemm_inplace
from pytensor.tensor.blas import gemm_no_inplace as gemm_no_inplace
from pytensor.tensor.blas import gemv as gemv
from pytensor.tensor.blas import gemv_inplace as gemv_inplace
from pytensor.tensor.blas import gemv_no_inplace as gemv_no_inplace
from pytensor.tensor.blas import ldflags as ldflags
from pytensor.tensor.rewriting.blas import GemmOptimizer as GemmOptimizer
from pytensor.tensor.rewriting.blas import _as_scalar as _as_scalar
from pytensor.tensor.rewriting.blas import _beta_L_plus_alpha_M as _beta_L_plus_alpha_M
from pytensor.tensor.rewriting.blas import _factor_canonicalized as _factor_canonicalized
from pytensor.tensor.rewriting.blas import _gemm_canonicalize as _gemm_canonicalize
from pytensor.tensor.rewriting.blas import _gemm_from_factored_list as _gemm_from_factored_list
from pytensor.tensor.rewriting.blas import _gemm_from_node2 as _gemm_from_node2
from pytensor.tensor.rewriting.blas import _is_real_matrix as _is_real_matrix
from pytensor.tensor.rewriting.blas import _is_real_vector as _is_real_vector
from pytensor.tensor.rewriting.blas import blas_opt_inplace as blas_opt_inplace
from pytensor.tensor.rewriting.blas import blas_optdb as blas_optdb
from pytensor.tensor.rewriting.blas import local_dot22_to_dot22scalar as local_dot22_to_dot22scalar
from pytensor.tensor.rewriting.blas import local_dot_to_dot22 as local_dot_to_dot22
from pytensor.tensor.rewriting.blas import local_gemm_to_gemv as local_gemm_to_gemv
from pytensor.tensor.rewriting.blas import local_inplace_gemm as local_inplace_gemm
from pytensor.tensor.rewriting.blas import local_inplace_gemv as local_inplace_gemv
from pytensor.tensor.rewriting.blas import res_is_a as res_is_a

batched_dot = BatchedDot()
