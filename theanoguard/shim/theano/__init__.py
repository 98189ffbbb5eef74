"""Theano 1.0.5's names on PyTensor."""

# The order is Theano's: later modules use the names of earlier ones.
# isort: skip_file
import logging
import os as os
import sys as sys
import warnings as warnings

import numpy as np

from . import _missing as _missing
from . import version as version
from .configdefaults import config as config
from .configparser import change_flags as change_flags

from . import compat as compat
from . import gof as gof
from .gof import Apply as Apply
from .gof import CLinker as CLinker
from .gof import Constant as Constant
from .gof import Container as Container
from .gof import DualLinker as DualLinker
from .gof import FunctionGraph as FunctionGraph
from .gof import Generic as Generic
from .gof import InconsistencyError as InconsistencyError
from .gof import Linker as Linker
from .gof import LocalLinker as LocalLinker
from .gof import Op as Op
from .gof import OpWiseCLinker as OpWiseCLinker
from .gof import OpenMPOp as OpenMPOp
from .gof import PerformLinker as PerformLinker
from .gof import Type as Type
from .gof import Variable as Variable
from .gof import generic as generic
from .gof import object2 as object2
from .gof import opt as opt
from .gof import toolbox as toolbox
from .gof import utils as utils

from . import compile as compile
from .compile import FunctionMaker as FunctionMaker
from .compile import In as In
from .compile import Mode as Mode
from .compile import OpFromGraph as OpFromGraph
from .compile import Out as Out
from .compile import Param as Param
from .compile import ProfileStats as ProfileStats
from .compile import SymbolicInput as SymbolicInput
from .compile import SymbolicOutput as SymbolicOutput
from .compile import as_op as as_op
from .compile import function as function
from .compile import function_dump as function_dump
from .compile import predefined_linkers as predefined_linkers
from .compile import predefined_modes as predefined_modes
from .compile import predefined_optimizers as predefined_optimizers
from .compile import shared as shared

from . import misc as misc
from .misc.safe_asarray import _asarray as _asarray


from . import scalar as scalar
from . import tensor as tensor
from . import scan_module as scan_module
from .scan_module import clone as clone
from .scan_module import foldl as foldl
from .scan_module import foldr as foldr
from .scan_module import map as map
from .scan_module import reduce as reduce
from .scan_module import scan as scan
from .scan_module import scan_checkpoints as scan_checkpoints

from . import printing as printing
from .printing import pp as pp
from .printing import pprint as pprint

from . import ifelse as ifelse
from . import raise_op as raise_op
from . import updates as updates
from .updates import OrderedUpdates as OrderedUpdates

from . import gradient as gradient
from .gradient import Lop as Lop
from .gradient import Rop as Rop
from .gradient import grad as grad
from .gradient import subgraph_grad as subgraph_grad

from . import tests as tests
from .misc import frozendict as _frozendict  # noqa: F401
from .misc import ordered_set as _ordered_set  # noqa: F401
from .sandbox import cuda as _cuda  # noqa: F401
from .scalar import sharedvar as _scalar_sharedvar  # noqa: F401
from .tensor import shared_randomstreams as _shared_randomstreams  # noqa: F401
from .tensor import slinalg as _slinalg  # noqa: F401

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
    assert isinstance(op, tensor.AdvancedSubtensor1)
    return type(op)(sparse_grad=True)(*var.owner.inputs)


# Theano's modules import these, and legacy code takes them from there: "from theano import theano".
theano = sys.modules[__name__]
for _module in [module for name, module in sys.modules.items() if name.split(".")[0] == "theano"]:
    for _name, _value in {"theano": theano, "np": np, "gof": gof, "config": config}.items():
        vars(_module).setdefault(_name, _value)
