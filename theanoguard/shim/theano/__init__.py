"""Theano 1.0.5's names on PyTensor."""

import logging
import os as os
import sys as sys
import warnings as warnings

import numpy as np

from . import gof as gof
from . import ifelse as _ifelse  # noqa: F401
from . import tensor as tensor
from . import version as version
from .configdefaults import config as config
from .misc import frozendict as _frozendict  # noqa: F401
from .misc import ordered_set as _ordered_set  # noqa: F401
from .sandbox import cuda as _cuda  # noqa: F401
from .sandbox import rng_mrg as _rng_mrg  # noqa: F401
from .scalar import sharedvar as _scalar_sharedvar  # noqa: F401
from .tensor import fft as _fft  # noqa: F401
from .tensor import shared_randomstreams as _shared_randomstreams  # noqa: F401
from .tensor import slinalg as _slinalg  # noqa: F401
from .tensor.nnet import conv3d2d as _conv3d2d  # noqa: F401
from .tensor.nnet import neighbours as _neighbours  # noqa: F401
from .tensor.signal import pool as _pool  # noqa: F401

__version__ = version.version
__api_version__ = 1

theano_logger = logging.getLogger("theano")
logging_default_handler = logging.StreamHandler()
logging_default_formatter = logging.Formatter("%(levelname)s (%(name)s): %(message)s")


def has_handlers(logger):
    """Return `logger.hasHandlers()`."""
    return logger.hasHandlers()


def disable_log_handler(logger=theano_logger, handler=logging_default_handler):
    """Take a handler from a logger that has any."""
    if has_handlers(logger):
        logger.removeHandler(handler)


def test(*args, **kwargs):
    """Raise an ImportError: Theano's own tests are not here."""
    raise ImportError("Theano's tests are not part of the shim.  They run with pytest.")


def dot(l, r):  # noqa: E741
    """Return the product of two matrices or vectors, dense or sparse.

    Raises
    ------
    NotImplementedError
        When neither of them can be multiplied with the other.
    """
    errors = []
    for multiply in (lambda: l.__dot__(r), lambda: r.__rdot__(l)):
        try:
            product = multiply()
        except Exception as error:
            errors.append(error)
        else:
            if product is not NotImplemented:
                return product
    raise NotImplementedError("Dot failed for the following reasons:", tuple(errors))


def get_scalar_constant_value(v):
    """Return the value of a variable that is a constant scalar, as an array without dimensions.

    Raises
    ------
    theano.tensor.NotScalarConstantError
        When it is none.
    """
    owner = getattr(v, "owner", None)
    # The data of a sparse matrix stand for the matrix.
    if owner is not None and type(owner.op).__name__ == "CSM":
        v = owner.inputs[0]
    return tensor.get_scalar_constant_value(v)


def sparse_grad(var):
    """Return a variable like `var`, which is ``x[ints]``, whose gradient is a sparse matrix."""
    op = var.owner.op
    assert isinstance(op, tensor.AdvancedSubtensor | tensor.AdvancedSubtensor1)
    assert op.idx_list == (0,)
    return tensor.AdvancedSubtensor1(sparse_grad=True)(*var.owner.inputs)


# Theano's modules import these, and legacy code takes them from there: "from theano import theano".
theano = sys.modules[__name__]
for _module in [module for name, module in sys.modules.items() if name.split(".")[0] == "theano"]:
    for _name, _value in {"theano": theano, "np": np, "gof": gof, "config": config}.items():
        vars(_module).setdefault(_name, _value)
for _module in (tensor, tensor.basic):  # "from theano.tensor import *" gives this one as well
    _module.compile = sys.modules["theano.compile"]
