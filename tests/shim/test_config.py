"""Theano's configuration: flags, files, dotted names, and what PyTensor gets of it."""

import os
import subprocess
import sys

import pytensor
import pytest

SHOW = """
import sys, warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import theanoguard.shim.auto
    import theano, pytensor
for warning in caught:
    if any(name in warning.filename for name in ("shim", "legacy", "configparser")):
        print("warning:", warning.message)
for expression in sys.argv[1:]:
    print(eval(expression))
"""


def show(*expressions, **environment):
    """What expressions are in a new process, and before them the warnings of the flags."""
    command = [sys.executable, "-c", SHOW, *expressions]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env={**os.environ, **environment}
    )
    return done.stdout.splitlines()


def test_flags_become_pytensor_s(tmp_path, needs_cxx):
    flags = {
        "floatX": "float32",
        "optimizer": "fast_compile",
        "linker": "vm",
        "gcc.cxxflags": "-O1",
        "blas.ldflags": "",
        "base_compiledir": str(tmp_path),
        "exception_verbosity": "high",
        "NanGuardMode.big_is_error": "False",
        "DebugMode.check_py": "0",
        "on_unused_input": "ignore",
        "profile_memory": "True",
        "optimizer_excluding": "fusion:inplace",
    }
    names = list(flags)
    shown = show(
        *(f"theano.config.{name}" for name in names),
        *(f"pytensor.config.{name.replace('.', '__')}" for name in names),
        "pytensor.config.compiledir.parent",
        THEANO_FLAGS=",".join(f"{name}={value}" for name, value in flags.items()),
        THEANORC=os.devnull,
    )
    words = {"0": "False"}
    expected = [words.get(value, value) for value in flags.values()]
    assert shown == expected + expected + [str(tmp_path)]


@pytest.mark.on_33
def test_file_and_flags(tmp_path):
    file = tmp_path / "theanorc"
    file.write_text(
        "[global]\nfloatX = float32\nmode = FAST_COMPILE\n[nvcc]\nfastmath = True\n"
        "[gcc]\ncxxflags = -O1 %(USER)s\n[warn]\nround = False\n"
    )
    shown = show(
        *("theano.config.floatX", "theano.config.mode", "theano.config.gcc.cxxflags"),
        "theano.config.warn.round",
        THEANORC=str(file),
        THEANO_FLAGS="floatX=float64",
        USER="-g",
    )
    assert shown == ["float64", "FAST_COMPILE", "-O1 -g", "False"]


@pytest.mark.on_33
def test_flags_without_effect():
    warnings = show(
        *("theano.config.device", "theano.config.compute_test_value"),
        THEANO_FLAGS="device=gpu0,lib.cnmem=0.8,dnn.enabled=True,compute_test_value=warn,foo.bar=1",
        THEANORC=os.devnull,
    )
    assert warnings == [
        "warning: Some of Theano's flags have no effect. device=gpu0, dnn.enabled=True, "
        "lib.cnmem=0.8: there is no GPU here, everything runs on the CPU.",
        "warning: Theano does not recognise this flag: foo.bar",
        "cpu",
        "warn",
    ]


@pytest.mark.on_33
@pytest.mark.parametrize("flag", ["floatX=float99", "compute_test_value=maybe", "mode=Fast"])
def test_values_that_are_refused(flag):
    name = flag.partition("=")[0]
    with pytest.raises(subprocess.CalledProcessError) as caught:
        show(THEANO_FLAGS=flag, THEANORC=os.devnull)
    last = caught.value.stderr.strip().splitlines()[-1]
    assert last.startswith("ValueError: ")
    assert name in last or "Expected one of those string" in last


@pytest.mark.on_33
def test_nothing_said():
    shown = show(
        *("theano.config.floatX", "theano.config.linker", "theano.config.device"),
        *("theano.config.numpy.seterr_all", "theano.config.warn.ignore_bug_before"),
        *("type(theano.config.compiledir).__name__", "__import__('numpy').geterr()['divide']"),
        THEANORC=os.devnull,
        THEANO_FLAGS="",
    )
    linker = "cvm" if pytensor.config.cxx else "vm"
    assert shown == ["float64", linker, "cpu", "ignore", "0.9", "str", "ignore"]


@pytest.mark.on_33
def test_without_a_compiler_reductions_are_right():
    """What PyTensor fuses for C code gives wrong numbers in Python."""
    vector = "theano.shared(__import__('numpy').zeros(2))"
    expression = f"float(theano.function([], theano.tensor.exp({vector}).sum(), {{}})())"
    shown = show(
        expression.format("mode=None"),
        expression.format("mode='FAST_RUN'"),
        THEANO_FLAGS="cxx=",
        THEANORC=os.devnull,
    )
    assert shown == ["2.0", "2.0"]
    change = "setattr(theano.config, 'cxx', '')"
    assert show(change, expression.format("mode=None"), THEANORC=os.devnull) == ["None", "2.0"]


@pytest.mark.parametrize(("flags", "compiles"), [("cxx=", False), ("", True)])
def test_without_a_compiler_debug_mode_runs_python_only(flags, compiles, needs_cxx):
    shown = show(
        "theano.config.DebugMode.check_c",
        "theano.function([], theano.shared(2.0) * 3, mode='DebugMode')().tolist()",
        THEANO_FLAGS=flags,
        THEANORC=os.devnull,
    )
    assert shown[-2:] == [str(compiles), "6.0"]


def test_setting(shim):
    config = shim.config
    before = config.floatX
    config.floatX = "float32"
    assert pytensor.config.floatX == "float32"
    assert shim.tensor.vector().dtype == "float32"
    config.floatX = before
    with pytest.raises(ValueError, match='Invalid value \\("float1"\\) .* "floatX"'):
        config.floatX = "float1"
    with pytest.raises(Exception, match="after initialization"):
        config.device = "cuda"
    with pytest.raises(AttributeError):
        config.no_such_variable  # noqa: B018


def test_change_flags(shim):
    config = shim.config

    @shim.change_flags({"gcc.cxxflags": "-O2"}, compute_test_value="raise")
    def inside():
        return config.gcc.cxxflags, pytensor.config.gcc__cxxflags, config.compute_test_value

    before = config.gcc.cxxflags
    assert inside() == ("-O2", "-O2", "raise")
    assert (config.gcc.cxxflags, config.compute_test_value) == (before, "off")
    with pytest.raises(ValueError), shim.change_flags([("warn.round", True)], floatX="nonsense"):
        pass
    assert config.warn.round is False
    with pytest.raises(AssertionError):
        shim.change_flags(no_such_variable=1)


def test_variables_of_the_user_s(shim):
    from theano.configparser import THEANO_FLAGS_DICT, AddConfigVar, BoolParam, EnumStr, IntParam

    THEANO_FLAGS_DICT["pthreads.count"] = "3"
    AddConfigVar("pthreads.count", "How many.", IntParam(1))
    AddConfigVar("pthreads.kind", "Which.", EnumStr("a", "b"), in_c_key=False)
    AddConfigVar("pthreads.on", "Whether.", BoolParam(lambda: "true"))
    assert (shim.config.pthreads.count, shim.config.pthreads.kind) == (3, "a")
    assert shim.config.pthreads.on is True
    with pytest.raises(ValueError):
        shim.config.pthreads.kind = "c"
    with pytest.raises(ValueError):
        shim.config.pthreads.on = "maybe"
    with pytest.raises(AttributeError, match="already taken"):
        AddConfigVar("pthreads.kind", "Again.", IntParam(0))
    assert "pthreads.count" in str(shim.config)


def test_representation_of_variables(shim):
    x, unset = shim.tensor.scalar("x"), shim.tensor.vector("unset")
    x.tag.test_value = 42
    constant = (x * 2).owner.inputs[1]
    assert [repr(x), repr(constant)] == ["x", "TensorConstant{2}"]
    with shim.change_flags(print_test_value=True):
        assert repr(x) == f"x\narray(42.{', dtype=float32' * (x.dtype == 'float32')})"
        assert repr(unset) == "unset"


def test_an_error_tells_its_node_as_in_theano(shim):
    """PyTensor's lowest verbosity, which its default is, tells less than Theano's."""
    x, v = shim.tensor.dmatrix(), shim.tensor.dvector()
    f = shim.function([x, v], x + v, mode="FAST_COMPILE")
    assert shim.config.exception_verbosity == "low"
    told = []
    for verbosity in ("low", "high"):
        with shim.change_flags(exception_verbosity=verbosity):
            assert shim.config.exception_verbosity == verbosity
            with pytest.raises(ValueError, match="Apply node that caused the error") as caught:
                f([[1.0, 2.0, 3.0]], [1.0, 2.0])
            told.append(str(caught.value))
    assert ["Debug print of the apply node" in text for text in told] == [False, True]
    assert all("Inputs shapes: [(1, 3), " in text for text in told)


def test_changed_flags_are_pickled_with_what_holds_them():
    context = "theano.configparser.change_flags(compute_test_value='off')"
    assert show(f"__import__('pickle').dumps({context})")[0].startswith("b'")
