"""The variables of Theano's configuration, and what the user's flags do to PyTensor's.

A variable that PyTensor has under the same name, with ``__`` in place of the dot, is PyTensor's.
The others keep a value of their own: some of them the shim asks (``compute_test_value``), the rest
mean nothing any more, and who sets one of those is told once what happens instead.
"""

import struct
import warnings
from pathlib import Path

import numpy as np
import pytensor
from pytensor.compile import mode as pytensor_mode
from pytensor.link.c import cmodule

from theanoguard import testvalue
from theanoguard._pytensor.for_theano import VMLinker, fast_run_modes

from . import _patches
from .configparser import (
    THEANO_FLAGS_DICT,
    AddConfigVar,
    BoolParam,
    ConfigParam,
    EnumStr,
    FloatParam,
    IntParam,
    StrParam,
    config,
    fetch_val_for_key,
)

PYTENSOR = pytensor.config._config_var_dict

# PyTensor's variables as they were before one was set here.
_before = {}


def restore():
    """Give PyTensor's variables back the values that they had before the shim."""
    for param, state in _before.items():
        vars(param).clear()
        vars(param).update(state)
    _before.clear()
    testvalue.config.compute_test_value = "off"
    pytensor_mode._CACHED_RUNTIME_MODES.clear()


def remember(param):
    """Keep what a variable of PyTensor's was before it is first set here."""
    _before.setdefault(param, dict(vars(param)))


def without_compiler():
    """Let the modes that PyTensor made while it had a compiler choose rewrites as without one.

    Some rewrites are for C code only; the reduction that one of them fuses with what it reduces
    gives wrong numbers in Python.
    """
    modes = [*pytensor_mode.predefined_modes.values(), *fast_run_modes().values()]

    def choose_anew():
        for mode in modes:
            mode.__setstate__(mode.__getstate__())

    _patches.at_undo(choose_anew)
    python = VMLinker(c_thunks=False)
    names = ("c_thunks", "required_rewrites", "incompatible_rewrites")
    for linker in pytensor_mode.predefined_linkers.values():
        if isinstance(linker, VMLinker):
            for name in names:
                _patches.at_undo(_patches.Patch(linker, name, getattr(python, name)).apply())
    choose_anew()


def put(param, value):
    """Set one of PyTensor's variables, even one that may not be changed once PyTensor runs."""
    remember(param)
    applied = param.apply(value)
    param.validate(applied)
    param.val = applied
    if param.name in ("base_compiledir", "compiledir_format"):
        # The directory that was computed from it is computed anew.
        remember(PYTENSOR["compiledir"])
        vars(PYTENSOR["compiledir"]).pop("val", None)
    if param.name == "cxx" and not applied:
        without_compiler()
    # Modes that are made from the configuration.
    pytensor_mode._CACHED_RUNTIME_MODES.clear()


# Theano refuses to change these once it is imported.
CONSTANT = set(
    "base_compiledir cmodule__age_thresh_use cmodule__preload_cache compile__timeout compile__wait"
    " compiledir compiledir_format gcc_version_str optimizer_excluding optimizer_including"
    " optimizer_requiring tensor__cmp_sloppy".split()
)


class PyTensorParam(ConfigParam):
    """A variable that PyTensor has."""

    def __init__(self, param):
        # The initial value is PyTensor's, unless the user gave one in Theano's way.
        super().__init__(lambda: None, allow_override=param.name not in CONSTANT)
        self.param = param

    def __get__(self, cls, type_, delete_key=False):
        if cls is None:
            return self
        if delete_key:
            self.put(fetch_val_for_key(self.fullname, delete_key=True))
            self.is_default = False
        value = self.param.__get__(pytensor.config, type(pytensor.config))
        # Theano's directories are strings.
        return str(value) if isinstance(value, Path) else value

    def __set__(self, cls, val):
        if not self.allow_override:
            raise Exception("Can't change the value of this config parameter after initialization!")
        self.put(val)

    def put(self, val):
        try:
            put(self.param, val)
        except ValueError as error:
            options = f" Valid options are {sorted(self.param.all)}" if self.has_options else ""
            raise ValueError(
                f'Invalid value ("{val}") for configuration variable "{self.fullname}".{options}'
            ) from error

    @property
    def has_options(self):
        return hasattr(self.param, "all")

    def __str__(self):
        return str(self.param).replace(self.param.name, self.fullname, 1)


class VerbosityParam(PyTensorParam):
    """How much an error tells: what Theano calls low, the node and its inputs, is medium."""

    def __get__(self, cls, type_, delete_key=False):
        value = super().__get__(cls, type_, delete_key)
        return "low" if value == "medium" else value

    def put(self, val):
        super().put("medium" if val == "low" else val)


# What happens instead, for variables that are accepted and mean nothing any more.
NO_GPU = "there is no GPU here, everything runs on the CPU"
INSTEAD = {
    "assert_no_cpu_op": NO_GPU,
    "cache_optimizations": "compiled C code is cached, optimized graphs are not",
    "compute_test_value_opt": "test values are computed while a graph is built only",
    "contexts": NO_GPU,
    "ctc.root": "there is no CTC",
    "device": NO_GPU,
    "experimental.local_alloc_elemwise": "PyTensor optimizes as it does by default",
    "experimental.local_alloc_elemwise_assert": "PyTensor optimizes as it does by default",
    "experimental.unpickle_gpu_on_cpu": NO_GPU,
    "force_device": NO_GPU,
    "init_gpu_device": NO_GPU,
    "int_division": "x / y of integers is a float, as it was in Theano under Python 3",
    "metaopt.optimizer_excluding": "PyTensor optimizes as it does by default",
    "metaopt.optimizer_including": "PyTensor optimizes as it does by default",
    "print_active_device": NO_GPU,
    "reoptimize_unpickled_function": "an unpickled function is optimized when it is unpickled",
    "scan.debug": "Scan prints nothing",
    "tensor.local_elemwise_fusion": "the flag optimizer_excluding=fusion has that effect",
}
# Sections that are about GPUs, in 1.0.5 or before.
GPU_SECTIONS = {
    "cublas",
    "cuda",
    "dnn",
    "gpu",
    "gpuarray",
    "gpuelemwise",
    "magma",
    "nvcc",
    "pycuda",
}
GPU_FLAGS = {"lib.cnmem", "enable_initial_driver_test", "allow_gc_gpu"}


def instead(name):
    """What happens instead of what a flag says; None for one that has its effect."""
    if name in GPU_FLAGS or name.partition(".")[0] in GPU_SECTIONS:
        return NO_GPU
    return INSTEAD.get(name)


# On a machine without a GPU these are what they are there, whatever the flags say.
FIXED = ("device", "init_gpu_device", "force_device", "contexts")
NUMPY_ERRORS = ("ignore", "warn", "raise", "call", "print", "log")


class TestValueSwitch(EnumStr):
    """The switch of :mod:`theanoguard.testvalue`."""

    def __set__(self, cls, val):
        super().__set__(cls, val)
        testvalue.config.compute_test_value = self.val


TEST_VALUE = ("off", "ignore", "warn", "raise", "pdb")
VERSIONS = "0.3 0.4 0.4.1 0.5 0.6 0.7 0.8 0.8.1 0.8.2 0.10 1.0 1.0.1 1.0.2 1.0.3 1.0.4 1.0.5"
RUNTIME_ALGORITHMS = ("guess_once", "guess_on_shape_change", "time_once", "time_on_shape_change")


def warn_default(version):
    """Whether to warn about a bug that was fixed in a version of Theano."""
    before = config.warn.ignore_bug_before
    if before in ("None", "all"):
        return before == "None"
    return [int(i) for i in before.split(".")] < [int(i) for i in version.split(".")]


GPU_DOC = "About GPUs, of which there are none."
OLD_BUG_DOC = "A warning about a bug of old versions of Theano, which is never given."
# Name, parameter, what it is for: the variables of 1.0.5 that PyTensor does not have.
OWN = [
    ("pickle_test_value", BoolParam(True), "Whether variables are pickled with test values."),
    ("int_division", EnumStr("int", "raise", "floatX"), "What x / y is for integers."),
    ("deterministic", EnumStr("default", "more"), "Computation on the CPU is deterministic."),
    ("device", StrParam("cpu", allow_override=False), "Where computation takes place."),
    ("init_gpu_device", StrParam("", allow_override=False), GPU_DOC),
    ("force_device", BoolParam(False, allow_override=False), GPU_DOC),
    ("contexts", StrParam("", allow_override=False), GPU_DOC),
    ("print_active_device", BoolParam(True, allow_override=False), GPU_DOC),
    ("conv.assert_shape", BoolParam(False), "Whether convolutions check the shapes given."),
    ("gpuarray.sync", BoolParam(False, allow_override=False), GPU_DOC),
    ("gpuarray.preallocate", FloatParam(0, allow_override=False), GPU_DOC),
    ("gpuarray.sched", EnumStr("default", "multi", "single"), GPU_DOC),
    ("gpuarray.single_stream", BoolParam(True), GPU_DOC),
    ("gpuarray.cache_path", StrParam("", allow_override=False), GPU_DOC),
    ("cuda.root", StrParam(""), GPU_DOC),
    ("cuda.include_path", StrParam(""), GPU_DOC),
    ("dnn.conv.workmem", StrParam(""), GPU_DOC),
    ("dnn.conv.workmem_bwd", StrParam(""), GPU_DOC),
    ("dnn.conv.algo_bwd", StrParam(""), GPU_DOC),
    (
        "dnn.conv.algo_fwd",
        EnumStr(
            *("small", "none", "large", "fft", "fft_tiling", "winograd", "winograd_non_fused"),
            *RUNTIME_ALGORITHMS,
        ),
        GPU_DOC,
    ),
    (
        "dnn.conv.algo_bwd_data",
        EnumStr(
            *("none", "deterministic", "fft", "fft_tiling", "winograd", "winograd_non_fused"),
            *RUNTIME_ALGORITHMS,
        ),
        GPU_DOC,
    ),
    (
        "dnn.conv.algo_bwd_filter",
        EnumStr(
            *("none", "deterministic", "fft", "small", "winograd_non_fused", "fft_tiling"),
            *RUNTIME_ALGORITHMS,
        ),
        GPU_DOC,
    ),
    (
        "dnn.conv.precision",
        EnumStr("as_input_f32", "as_input", "float16", "float32", "float64"),
        GPU_DOC,
    ),
    ("dnn.base_path", StrParam(""), GPU_DOC),
    ("dnn.include_path", StrParam(""), GPU_DOC),
    ("dnn.library_path", StrParam(""), GPU_DOC),
    ("dnn.bin_path", StrParam(""), GPU_DOC),
    ("dnn.enabled", EnumStr("auto", "True", "False", "no_check"), GPU_DOC),
    ("magma.include_path", StrParam(""), GPU_DOC),
    ("magma.library_path", StrParam(""), GPU_DOC),
    ("magma.enabled", BoolParam(False), GPU_DOC),
    ("assert_no_cpu_op", EnumStr("ignore", "warn", "raise", "pdb"), GPU_DOC),
    ("tensor.local_elemwise_fusion", BoolParam(True), "Whether elementwise operations are fused."),
    ("gpu.local_elemwise_fusion", BoolParam(True), GPU_DOC),
    ("gpuelemwise.sync", BoolParam(True), GPU_DOC),
    ("experimental.unpickle_gpu_on_cpu", BoolParam(False), GPU_DOC),
    ("experimental.local_alloc_elemwise", BoolParam(True), "An optimization of 1.0.5."),
    ("experimental.local_alloc_elemwise_assert", BoolParam(True), "An optimization of 1.0.5."),
    (
        "numpy.seterr_all",
        EnumStr(*NUMPY_ERRORS, "None", allow_override=False),
        "What NumPy does about floating-point errors, see numpy.seterr.",
    ),
    *(
        (
            f"numpy.seterr_{kind}",
            EnumStr("None", *NUMPY_ERRORS, allow_override=False),
            f"What NumPy does about errors of the kind {kind!r}, see numpy.seterr.",
        )
        for kind in ("divide", "over", "under", "invalid")
    ),
    (
        "warn.ignore_bug_before",
        EnumStr("0.9", "None", "all", *VERSIONS.split(), allow_override=False),
        OLD_BUG_DOC,
    ),
    *(
        (f"warn.{bug}", BoolParam(lambda version=version: warn_default(version)), OLD_BUG_DOC)
        for bug, version in {
            "argmax_pushdown_bug": "0.3",
            "gpusum_01_011_0111_bug": "0.3",
            "sum_sum_bug": "0.3",
            "sum_div_dimshuffle_bug": "0.3",
            "identify_1pexp_bug": "0.4.1",
            "subtensor_merge_bug": "0.5",
            "gpu_set_subtensor1": "0.6",
            "signal_conv2d_interface": "0.7",
            "reduce_join": "0.7",
            "inc_set_subtensor1": "0.7",
            "round": "0.9",
            "inc_subtensor1_opt": "0.10",
        }.items()
    ),
    ("warn.vm_gc_bug", BoolParam(False), OLD_BUG_DOC),
    (
        "compute_test_value",
        TestValueSwitch(*TEST_VALUE),
        "Whether each operation is computed with test values while a graph is built.",
    ),
    (
        "compute_test_value_opt",
        EnumStr(*TEST_VALUE),
        "Whether operations made by optimizations are computed with test values.",
    ),
    (
        "print_test_value",
        BoolParam(False),
        "Whether the representation of a variable shows its test value.",
    ),
    ("reoptimize_unpickled_function", BoolParam(False), "Whether unpickling optimizes."),
    ("cache_optimizations", BoolParam(False), "Whether optimized graphs are cached."),
    ("unittests.rseed", StrParam(666), "The seed of the tests, or 'random'."),
    ("metaopt.verbose", IntParam(0), "Whether the meta-optimizer prints what it does."),
    ("metaopt.optimizer_excluding", StrParam(""), "Optimizations that it leaves out."),
    ("metaopt.optimizer_including", StrParam(""), "Optimizations that it includes."),
    ("scan.debug", BoolParam(False), "Whether Scan prints what it does."),
    ("ctc.root", StrParam("", allow_override=False), "Where Baidu's CTC is installed."),
]


def local_bitwidth():
    """Return the number of bits of a pointer."""
    return struct.calcsize("P") * 8


def python_int_bitwidth():
    """Return the number of bits of a C long, which Python 2's integers had."""
    return struct.calcsize("l") * 8


def given(name):
    """What the user says about a variable; None where nothing is said."""
    try:
        return fetch_val_for_key(name)
    except KeyError:
        return None


def declare():
    """Declare every variable, and return which flags have no effect, with what happens instead."""
    ineffective = {}

    def note(name, value):
        ineffective.setdefault(instead(name), []).append(f"{name}={value}")

    own = {name for name, _, _ in OWN}
    for pytensor_name, param in PYTENSOR.items():
        name = pytensor_name.replace("__", ".")
        if name not in own:
            kind = VerbosityParam if name == "exception_verbosity" else PyTensorParam
            AddConfigVar(name, param.doc, kind(param), in_c_key=param.in_c_key)
    for name, param, doc in OWN:
        value = given(name)
        if value is not None and name in FIXED:
            THEANO_FLAGS_DICT.pop(name, None)
            param.val = param.default
        AddConfigVar(name, doc, param, in_c_key=False)
        if value is not None and instead(name) and value != str(param.default):
            note(name, value)
    for name in list(THEANO_FLAGS_DICT):
        if instead(name):
            note(name, THEANO_FLAGS_DICT.pop(name))
    return ineffective


def settle():
    """Set in PyTensor and NumPy what follows from the user's flags, or from Theano's defaults."""
    if pytensor.config.linker == "auto":
        put(PYTENSOR["linker"], "cvm" if pytensor.config.cxx else "vm")
    if not pytensor.config.cxx and given("DebugMode.check_c") is None:
        put(PYTENSOR["DebugMode__check_c"], False)
    if pytensor.config.exception_verbosity == "low":
        put(PYTENSOR["exception_verbosity"], "medium")
    if PYTENSOR["compiledir"] in _before:
        # The cache in memory is that of another directory.
        cache, cmodule._module_cache = cmodule._module_cache, None
        _patches.at_undo(setattr, cmodule, "_module_cache", cache)
    kinds = ("all", "divide", "over", "under", "invalid")
    errors = {kind: getattr(config.numpy, f"seterr_{kind}") for kind in kinds}
    before = np.seterr(**{k: None if error == "None" else error for k, error in errors.items()})
    _patches.at_undo(lambda: np.seterr(**before))


def warn_about(ineffective):
    """Warn once of the flags that have no effect and of those that Theano does not know."""
    if ineffective:
        flags = "; ".join(f"{', '.join(flags)}: {text}" for text, flags in ineffective.items())
        warnings.warn(f"Some of Theano's flags have no effect. {flags}.", stacklevel=2)
    for name in THEANO_FLAGS_DICT:
        warnings.warn(f"Theano does not recognise this flag: {name}", stacklevel=2)


_patches.at_undo(restore)
warn_about(declare())
settle()
