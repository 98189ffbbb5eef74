"""Names of Theano's that cannot be had: errors that tell the name and what to use."""

import dis
import re
import sys
import unittest
from pathlib import Path

from theanoguard.shim.names import SECTIONS

TREE = Path(__file__).parent


class NoGpuError(ImportError, unittest.SkipTest):
    """Something is wanted that only a GPU has.

    Importing ``theano.sandbox.cuda`` raised ``SkipTest`` in 1.0.5 and code of the time before
    catches ``ImportError``, so this is both.
    """


NO_GPU = "There is no GPU backend: theano.tensor computes on the CPU."
# What computes the same on the CPU, by a pattern of the names of the GPU's.
ON_CPU = [
    (r"dnn_conv3d|GpuCorr3dMM", "theano.tensor.nnet.conv3d"),
    (
        r"GpuDnnConvGradW|GpuCorrMM_gradWeights",
        "theano.tensor.nnet.abstract_conv.conv2d_grad_wrt_weights",
    ),
    (
        r"GpuDnnConvGradI|GpuCorrMM_gradInputs",
        "theano.tensor.nnet.abstract_conv.conv2d_grad_wrt_inputs",
    ),
    (r"dnn_conv|GpuDnnConv|GpuCorrMM|GpuConv$|conv2d_fft|FilterActs", "theano.tensor.nnet.conv2d"),
    (r"dnn_pool|GpuDnnPool|MaxPool|GpuDownsample", "theano.tensor.signal.pool.pool_2d"),
    (r"(?i)softmax", "theano.tensor.nnet.softmax"),
    (r"dnn_batch_normalization_train", "theano.tensor.nnet.bn.batch_normalization_train"),
    (r"dnn_batch_normalization_test", "theano.tensor.nnet.bn.batch_normalization_test"),
    (r"CURAND_RandomStreams", "theano.sandbox.rng_mrg.MRG_RandomStreams"),
    (r"(?i)float32_shared_constructor", "theano.shared"),
    (r"(?i)images2neibs", "theano.tensor.nnet.neighbours.images2neibs"),
]
CACHED_C = "PyTensor compiles C code of its own for this; there is nothing to call."

# Modules that are not there, with what to use; a package stands for what is in it, too.
MODULES = {
    "theano._version": "Use theano.__version__.",
    "theano.compat.six": "Use the package six, which Theano had a copy of until 0.9.",
    "theano.compat.python2x": "Use collections.OrderedDict and the like.",
    "theano.compile.sandbox": "Use theano.compile.",
    "theano.gof.callcache": "Use functools.cache.",
    "theano.gof.cutils": CACHED_C,
    "theano.gof.lazylinker_c": CACHED_C,
    "theano.gof.unify": "Use theano.gof.opt.PatternSub, whose patterns hold names as strings.",
    "theano.misc": "It was a script for Theano's developers.",
    "theano.pathparse": "Use os.environ['PATH'].split(os.pathsep).",
    "theano.sandbox.cuda": NO_GPU,
    "theano.sandbox.fourier": "Use theano.tensor.fft.",
    "theano.sandbox.gpuarray": NO_GPU,
    "theano.sandbox.minimal": "It was an example of an Op that does nothing: write it yourself.",
    "theano.scalar.basic_sympy": "Write the expression of SymPy with theano.tensor's functions.",
    "theano.tensor.blas_headers": "Declare what C code calls of the BLAS in its c_support_code.",
    "theano.tensor.inc_code": "Use theano.tensor.inc_subtensor.",
    "theano.tests.main": "Run Theano's own tests with pytest.",
}


def message(name, use):
    """The text of every error about a missing name."""
    return f"{name} does not exist on PyTensor.\n{use}"


def refuse(module):
    """Raise an ImportError if a module that is to be imported is one of `MODULES`."""
    place = TREE.joinpath(*module.split(".")[1:])
    if place.is_dir() or place.with_suffix(".py").exists() or module in SECTIONS:
        return
    for name, use in MODULES.items():
        if module == name or module.startswith(f"{name}."):
            error = NoGpuError if module.startswith("theano.sandbox.cuda.") else ModuleNotFoundError
            raise error(message(module, use), name=module)


def is_import(frame):
    """Whether a frame is at ``from ... import ...``."""
    return dis.opname[frame.f_code.co_code[frame.f_lasti]] == "IMPORT_FROM"


def missing(module, instead, error=ImportError):
    """Return a ``__getattr__`` for a module.

    Parameters
    ----------
    module : str
        The module's name.
    instead : callable or dict
        Gives for the name of an attribute what to use, as a sentence, or None where Theano 1.0.5
        has no such name either.
    error : type
        Raised where the name is imported; where it is asked for, it is an ``AttributeError``.
    """
    find = instead.get if isinstance(instead, dict) else instead

    def __getattr__(name):
        use = None if name.startswith("__") else find(name)
        if use is None:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        text = message(f"{module}.{name}", use)
        # Python would put its own words in place of those of an AttributeError.
        if is_import(sys._getframe(1)):
            raise error(text, name=module)
        raise AttributeError(text, name=name)

    return __getattr__


def on_cpu(name):
    """Return a sentence that says what to use instead of a name of the GPU's."""
    for pattern, use in ON_CPU:
        if re.search(pattern, name):
            return f"{NO_GPU}  Use {use}."
    return f"{NO_GPU}  Leave it out."


def missing_gpu(module):
    """Return a ``__getattr__`` for a module of the first GPU backend: nothing else of it exists."""
    return missing(module, on_cpu, error=NoGpuError)
