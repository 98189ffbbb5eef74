"""Theano's ``theano.tensor``."""

from ..compile.ops import SpecifyShape as SpecifyShape
from ..compile.ops import specify_shape as specify_shape
from ..gof.utils import hashtype as hashtype
from ..gradient import Lop as Lop
from ..gradient import Rop as Rop
from ..gradient import consider_constant as consider_constant
from ..gradient import grad as grad
from ..gradient import hessian as hessian
from ..gradient import jacobian as jacobian
from ..gradient import numeric_grad as numeric_grad
from ..gradient import verify_grad as verify_grad
from . import blas as blas
from . import blas_c as blas_c
from . import blas_scipy as blas_scipy
from . import elemwise_cgen as elemwise_cgen
from . import inplace as inplace
from . import nlinalg as nlinalg
from . import nnet as nnet
from . import opt as opt
from . import opt_uncanonicalize as opt_uncanonicalize
from . import sharedvar as sharedvar
from . import slinalg as slinalg
from . import utils as utils
from . import xlogx as xlogx
from .basic import *  # noqa: F403
from .elemwise import CAReduce as CAReduce
from .elemwise import DimShuffle as DimShuffle
from .elemwise import Elemwise as Elemwise
from .extra_ops import DiffOp as DiffOp
from .extra_ops import bartlett as bartlett
from .extra_ops import bincount as bincount
from .extra_ops import cumprod as cumprod
from .extra_ops import cumsum as cumsum
from .extra_ops import fill_diagonal as fill_diagonal
from .extra_ops import fill_diagonal_offset as fill_diagonal_offset
from .extra_ops import ravel_multi_index as ravel_multi_index
from .extra_ops import repeat as repeat
from .extra_ops import squeeze as squeeze
from .extra_ops import unravel_index as unravel_index
from .io import *  # noqa: F403
from .sharedvar import tensor_constructor as _shared  # noqa: F401
from .sort import argsort as argsort
from .sort import argtopk as argtopk
from .sort import sort as sort
from .sort import topk as topk
from .sort import topk_and_argtopk as topk_and_argtopk
from .subtensor import *  # noqa: F403
from .type_other import *  # noqa: F403
from .var import TensorConstant as TensorConstant
from .var import TensorConstantSignature as TensorConstantSignature
from .var import TensorVariable as TensorVariable
from .var import _tensor_py_operators as _tensor_py_operators
