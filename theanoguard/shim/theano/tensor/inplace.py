"""Theano's ``theano.tensor.inplace``: element-wise operations that overwrite their first input."""

from pytensor.tensor.elemwise import Elemwise

from .. import scalar as scal
from .basic import transpose


def _inplace(scalar_op, name):
    """Return the operation on tensors; the result has the type of the first input."""
    return Elemwise(type(scalar_op)(scal.transfer_type(0)), {0: 0}, name=name)


lt_inplace = _inplace(scal.lt, "lt_inplace")
gt_inplace = _inplace(scal.gt, "gt_inplace")
le_inplace = _inplace(scal.le, "le_inplace")
ge_inplace = _inplace(scal.ge, "ge_inplace")
eq_inplace = _inplace(scal.eq, "eq_inplace")
neq_inplace = _inplace(scal.neq, "neq_inplace")
and__inplace = _inplace(scal.and_, "and__inplace")
or__inplace = _inplace(scal.or_, "or__inplace")
xor_inplace = _inplace(scal.xor, "xor_inplace")
invert_inplace = _inplace(scal.invert, "invert_inplace")
abs__inplace = _inplace(scal.abs_, "abs__inplace")
exp_inplace = _inplace(scal.exp, "exp_inplace")
exp2_inplace = _inplace(scal.exp2, "exp2_inplace")
expm1_inplace = _inplace(scal.expm1, "expm1_inplace")
neg_inplace = _inplace(scal.neg, "neg_inplace")
inv_inplace = _inplace(scal.inv, "inv_inplace")
log_inplace = _inplace(scal.log, "log_inplace")
log1p_inplace = _inplace(scal.log1p, "log1p_inplace")
log2_inplace = _inplace(scal.log2, "log2_inplace")
log10_inplace = _inplace(scal.log10, "log10_inplace")
sgn_inplace = _inplace(scal.sgn, "sgn_inplace")
ceil_inplace = _inplace(scal.ceil, "ceil_inplace")
floor_inplace = _inplace(scal.floor, "floor_inplace")
trunc_inplace = _inplace(scal.trunc, "trunc_inplace")
round_half_to_even_inplace = _inplace(scal.round_half_to_even, "round_half_to_even_inplace")
round_half_away_from_zero_inplace = _inplace(
    scal.round_half_away_from_zero, "round_half_away_from_zero_inplace"
)
sqr_inplace = _inplace(scal.sqr, "sqr_inplace")
sqrt_inplace = _inplace(scal.sqrt, "sqrt_inplace")
deg2rad_inplace = _inplace(scal.deg2rad, "deg2rad_inplace")
rad2deg_inplace = _inplace(scal.rad2deg, "rad2deg_inplace")
cos_inplace = _inplace(scal.cos, "cos_inplace")
arccos_inplace = _inplace(scal.arccos, "arccos_inplace")
sin_inplace = _inplace(scal.sin, "sin_inplace")
arcsin_inplace = _inplace(scal.arcsin, "arcsin_inplace")
tan_inplace = _inplace(scal.tan, "tan_inplace")
arctan_inplace = _inplace(scal.arctan, "arctan_inplace")
arctan2_inplace = _inplace(scal.arctan2, "arctan2_inplace")
cosh_inplace = _inplace(scal.cosh, "cosh_inplace")
arccosh_inplace = _inplace(scal.arccosh, "arccosh_inplace")
sinh_inplace = _inplace(scal.sinh, "sinh_inplace")
arcsinh_inplace = _inplace(scal.arcsinh, "arcsinh_inplace")
tanh_inplace = _inplace(scal.tanh, "tanh_inplace")
arctanh_inplace = _inplace(scal.arctanh, "arctanh_inplace")
erf_inplace = _inplace(scal.erf, "erf_inplace")
erfc_inplace = _inplace(scal.erfc, "erfc_inplace")
erfcx_inplace = _inplace(scal.erfcx, "erfcx_inplace")
gamma_inplace = _inplace(scal.gamma, "gamma_inplace")
gammaln_inplace = _inplace(scal.gammaln, "gammaln_inplace")
psi_inplace = _inplace(scal.psi, "psi_inplace")
tri_gamma_inplace = _inplace(scal.tri_gamma, "tri_gamma_inplace")
chi2sf_inplace = _inplace(scal.chi2sf, "chi2sf_inplace")
j0_inplace = _inplace(scal.j0, "j0_inplace")
j1_inplace = _inplace(scal.j1, "j1_inplace")
jv_inplace = _inplace(scal.jv, "jv_inplace")
i0_inplace = _inplace(scal.i0, "i0_inplace")
i1_inplace = _inplace(scal.i1, "i1_inplace")
iv_inplace = _inplace(scal.iv, "iv_inplace")
second_inplace = _inplace(scal.second, "second_inplace")
maximum_inplace = _inplace(scal.maximum, "maximum_inplace")
minimum_inplace = _inplace(scal.minimum, "minimum_inplace")
add_inplace = _inplace(scal.add, "add_inplace")
sub_inplace = _inplace(scal.sub, "sub_inplace")
mul_inplace = _inplace(scal.mul, "mul_inplace")
true_div_inplace = _inplace(scal.true_div, "true_div_inplace")
int_div_inplace = _inplace(scal.int_div, "int_div_inplace")
mod_inplace = _inplace(scal.mod, "mod_inplace")
pow_inplace = _inplace(scal.pow, "pow_inplace")
conj_inplace = _inplace(scal.conj, "conj_inplace")
fill_inplace = second_inplace


def transpose_inplace(x, **kwargs):
    """Return the transposed tensor: a transposition is always a view."""
    return transpose(x, **kwargs)
