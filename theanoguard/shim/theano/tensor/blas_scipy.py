"""Theano's ``theano.tensor.blas_scipy``."""

from .blas import Ger, have_fblas  # noqa: F401


class ScipyGer(Ger):
    """`Ger` under the name that it had where SciPy computed it."""


scipy_ger_no_inplace = ScipyGer(False)
scipy_ger_inplace = ScipyGer(True)
