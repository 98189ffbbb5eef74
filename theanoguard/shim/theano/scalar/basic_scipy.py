"""Theano's ``theano.scalar.basic_scipy``: special functions."""

from pytensor.gradient import grad_not_implemented
from pytensor.scalar.basic import BinaryScalarOp as BinaryScalarOp
from pytensor.scalar.basic import upgrade_to_float as upgrade_to_float
from pytensor.scalar.basic import upgrade_to_float64 as upgrade_to_float64
from pytensor.scalar.math import I0 as I0
from pytensor.scalar.math import I1 as I1
from pytensor.scalar.math import J0 as J0
from pytensor.scalar.math import J1 as J1
from pytensor.scalar.math import Erf as Erf
from pytensor.scalar.math import Erfc as Erfc
from pytensor.scalar.math import Erfcinv as Erfcinv
from pytensor.scalar.math import Erfcx as Erfcx
from pytensor.scalar.math import Erfinv as Erfinv
from pytensor.scalar.math import Gamma as Gamma
from pytensor.scalar.math import GammaInc as GammaInc
from pytensor.scalar.math import GammaIncC as GammaIncC
from pytensor.scalar.math import GammaLn as GammaLn
from pytensor.scalar.math import Jv as Jv
from pytensor.scalar.math import Psi as Psi
from pytensor.scalar.math import TriGamma as TriGamma
from pytensor.scalar.math import erf as erf
from pytensor.scalar.math import erfc as erfc
from pytensor.scalar.math import erfcinv as erfcinv
from pytensor.scalar.math import erfcx as erfcx
from pytensor.scalar.math import erfinv as erfinv
from pytensor.scalar.math import gamma as gamma
from pytensor.scalar.math import gammainc as gammainc
from pytensor.scalar.math import gammaincc as gammaincc
from pytensor.scalar.math import gammaln as gammaln
from pytensor.scalar.math import i0 as i0
from pytensor.scalar.math import i1 as i1
from pytensor.scalar.math import j0 as j0
from pytensor.scalar.math import j1 as j1
from pytensor.scalar.math import jv as jv
from pytensor.scalar.math import psi as psi
from pytensor.scalar.math import tri_gamma as tri_gamma
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
