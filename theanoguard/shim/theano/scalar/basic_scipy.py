"""Theano's ``theano.scalar.basic_scipy``: special functions."""

from pytensor.gradient import grad_not_implemented
from pytensor.scalar.basic import BinaryScalarOp, upgrade_to_float, upgrade_to_float64
from scipy import special
from scipy.stats import chi2

imported_scipy_special = True


class Chi2SF(BinaryScalarOp):
    """The survival function of the chi-square distribution at `x`, with `k` degrees of freedom."""

    def __init__(self, output_types_preference=upgrade_to_float64, name=None):
        super().__init__(output_types_preference, name)

    def impl(self, x, k):
        """Compute it by SciPy."""
        return chi2.sf(x, k)


class _IncompleteGamma(BinaryScalarOp):
    def impl(self, k, x):
        """Compute it by SciPy."""
        return self.st_impl(k, x)


class GammaU(_IncompleteGamma):
    """The upper incomplete gamma function, not regularized; it has no gradient."""

    @staticmethod
    def st_impl(k, x):
        """Compute it by SciPy."""
        return special.gammaincc(k, x) * special.gamma(k)


class GammaL(_IncompleteGamma):
    """The lower incomplete gamma function, not regularized; it has no gradient."""

    @staticmethod
    def st_impl(k, x):
        """Compute it by SciPy."""
        return special.gammainc(k, x) * special.gamma(k)


class Iv(BinaryScalarOp):
    """The modified Bessel function of the first kind of order `v` (real)."""

    def __init__(self, output_types_preference=upgrade_to_float, name=None):
        super().__init__(output_types_preference, name)

    def impl(self, v, x):
        """Compute it by SciPy."""
        return special.iv(v, x)

    def pullback(self, inputs, outputs, cotangents):
        """Theano has no derivative by the order either."""
        (v, x), (cotangent,) = inputs, cotangents
        by_x = cotangent * (iv(v - 1, x) + iv(v + 1, x)) / 2.0
        return [grad_not_implemented(self, 0, v), by_x]


chi2sf = Chi2SF(name="chi2sf")
gammau = GammaU(upgrade_to_float, name="gammau")
gammal = GammaL(upgrade_to_float, name="gammal")
iv = Iv(name="iv")
