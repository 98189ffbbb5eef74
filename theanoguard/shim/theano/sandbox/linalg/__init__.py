"""Linear algebra under its former name."""

from ...tensor.nlinalg import alloc_diag as alloc_diag
from ...tensor.nlinalg import det as det
from ...tensor.nlinalg import diag as diag
from ...tensor.nlinalg import eig as eig
from ...tensor.nlinalg import eigh as eigh
from ...tensor.nlinalg import extract_diag as extract_diag
from ...tensor.nlinalg import matrix_inverse as matrix_inverse
from ...tensor.nlinalg import trace as trace
from ...tensor.slinalg import cholesky as cholesky
from ...tensor.slinalg import eigvalsh as eigvalsh
from ...tensor.slinalg import solve as solve
from .ops import psd as psd
from .ops import spectral_radius_bound as spectral_radius_bound
