"""The modes as objects: arguments, errors, settings that survive, and the drop-in."""

import copy
import pickle

import numpy as np
import pytensor
import pytensor.sparse
import pytensor.tensor as pt
import pytest
from guarding import ALL, backend, guarded, trip
from pytensor.compile.debug.nanguardmode import NanGuardMode as PyTensorsNanGuardMode
from pytensor.compile.mode import Mode, get_mode
from pytensor.graph.rewriting.basic import GraphRewriter
from pytensor.link.vm import VMLinker
from pytensor.scalar import Log as ScalarLog

import theanoguard
from theanoguard import GuardError, GuardMode, NanGuardMode, events_of

# ---------------------------------------------------------------- bad arguments

BAD_ARGUMENTS = {
    "no check": (dict.fromkeys(ALL, False), ValueError, ["nan_is_error", "big_is_error", "True"]),
    "flag": (
        {"inf_is_error": "yes"},
        ValueError,
        ["inf_is_error", "True or False", "'any'", "None"],
    ),
    "negative threshold": ({"big_threshold": -1.0}, ValueError, ["big_threshold", "positive"]),
    "zero threshold": ({"big_threshold": 0}, ValueError, ["big_threshold", "positive"]),
    "infinite threshold": ({"big_threshold": np.inf}, ValueError, ["big_threshold", "finite"]),
    "threshold that is NaN": ({"big_threshold": np.nan}, ValueError, ["big_threshold"]),
    "threshold in words": ({"big_threshold": "1e10"}, TypeError, ["big_threshold", "number"]),
    "unknown action": (
        {"action": "explode"},
        ValueError,
        ["action", "'raise'", "'warn'", "'record'", "'pdb'", "a function"],
    ),
    "action that is no word": ({"action": 3}, TypeError, ["action", "'raise'", "a function"]),
    "exempt": ({"exempt": [1.5]}, TypeError, ["exempt", "variables", "patterns", "classes", "1.5"]),
    "unknown linker": (
        {"linker": "nonsense", "backend": "c"},
        ValueError,
        ["linker", "'cvm'", "VMLinker"],
    ),
    "linker without a VM": ({"linker": "c", "backend": "c"}, ValueError, ["linker", "'cvm'"]),
    "JAX": ({"linker": "jax", "backend": "c"}, ValueError, ["linker 'jax'", "'cvm'"]),
    "linker with callback": (
        {"linker": VMLinker(callback=print), "backend": "c"},
        ValueError,
        ["linker", "callbacks"],
    ),
    "no events": ({"max_events": 0}, ValueError, ["max_events", "at least 1"]),
    "events in words": ({"max_events": "many"}, TypeError, ["max_events", "an integer"]),
}


@pytest.mark.parametrize("case", BAD_ARGUMENTS)
def test_a_bad_argument_is_named_at_construction(case):
    arguments, error, words = BAD_ARGUMENTS[case]
    with pytest.raises(error) as caught:
        GuardMode(**arguments)
    message = str(caught.value)
    for word in words:
        assert word in message


# By setting: values that are taken, the ends of their range among them, and values that are not.
RANGES = {
    "every": ((1, 2, 10**6), (0, -1, 2.5, "2", None)),
    "big_threshold": ((5e-324, 1, np.float32(2), 1e308), (0, -1e-9, np.inf, np.nan, "1", None)),
    "max_events": ((1, 2, 10**6), (0, -1, 2.5, "2")),
    "when": ((None, "now"), ("soon", 1, True)),
    "judge": (("node", "result", any), ("any", 1, None)),
    "check_inputs": ((True, False, "trusted"), ("yes", "")),
    "action": (("raise", "warn", "record", "pdb", print), ("stop", 1, True)),
    **{
        f"{kind}_is_error": ((True, False, None, 1, np.True_), ("yes", 0.5, []))
        for kind in ("nan", "inf", "big")
    },
}


@pytest.mark.parametrize("name", RANGES)
def test_the_range_of_a_setting(name):
    taken, refused = RANGES[name]
    for value in taken:
        mode = GuardMode(**{name: value})
        if hasattr(mode.policy, name):
            assert getattr(mode.policy, name) == value
    for value in refused:
        with pytest.raises((TypeError, ValueError), match=name):
            GuardMode(**{name: value})


def test_settings_of_our_own_are_keyword_only():
    with pytest.raises(TypeError):
        GuardMode(True, True, True, "default", None, None, 1e6)


@pytest.mark.parametrize("linker", ["cvm", "cvm_nogc", "vm", "vm_nogc", None, VMLinker()])
def test_linkers_that_can_be_guarded(linker, c_backend):
    x = pt.dvector("x")
    f = guarded([x], pt.log(x).sum(), linker=linker)
    assert float(f(np.ones(3))) == 0.0
    assert trip(f, np.array([1.0, -1.0])).kind == "nan"


# ---------------------------------------------------------------- defaults

BAD_VALUES = {"nan": np.nan, "inf": np.inf, "big": 1e11}


@pytest.mark.parametrize("kind", BAD_VALUES)
def test_what_is_none_comes_from_the_configuration(kind):
    wanted = {f"NanGuardMode__{k}_is_error": k == kind for k in BAD_VALUES}
    with pytensor.config.change_flags(**wanted):
        mode = GuardMode()
    x = pt.dscalar("x")
    f = guarded([x], x * 1.5, mode=mode)
    tripping = {"nan": {"nan"}, "inf": {"inf"}, "big": {"big", "inf"}}[kind]
    for other, value in BAD_VALUES.items():
        if other in tripping:
            assert trip(f, value).kind == other
        else:
            f(value)


def test_an_argument_overrides_the_configuration():
    with pytensor.config.change_flags(NanGuardMode__nan_is_error=False):
        f = guarded([x := pt.dscalar("x")], x * 1.5, mode=GuardMode(nan_is_error=True))
    assert trip(f, np.nan).kind == "nan"


def test_the_action_comes_from_the_configuration(caplog):
    with pytensor.config.change_flags(NanGuardMode__action="warn"):
        mode = GuardMode()
    f = guarded([x := pt.dscalar("x")], pt.log(x), mode=mode)
    assert float(f(0.0)) == -np.inf
    assert [record.event.kind for record in caplog.records] == ["inf"]


def test_big_threshold():
    x = pt.dvector("x")
    f = guarded([x], pt.exp(x), big_threshold=100)
    assert f(np.array([4.6]))[0] < 100
    event = trip(f, np.array([1.0, 4.7]))
    assert (event.kind, event.first_index, event.n_big) == ("big", (1,), 1)


# ---------------------------------------------------------------- the string


@pytest.mark.parametrize("name", ["GuardMode", "guardmode", "GUARDMODE"])
def test_the_mode_has_a_name(name):
    x = pt.dvector("x")
    f = pytensor.function([x], pt.log(x), mode=name)
    assert trip(f, np.array([-1.0])).kind == "nan"
    assert len(events_of(f)) == 1
    assert isinstance(get_mode(name), GuardMode)


# ---------------------------------------------------------------- settings survive


class Nothing(GraphRewriter):
    """A rewriter that counts how often it is applied."""

    applied = 0

    def add_requirements(self, fgraph):
        pass

    def apply(self, fgraph):
        type(self).applied += 1


@pytest.fixture(scope="module")
def exempted():
    """A variable that a mode leaves out."""
    return pt.dvector("left out")


@pytest.fixture(scope="module")
def original(exempted):
    return GuardMode(
        nan_is_error=True,
        inf_is_error=False,
        big_is_error=True,
        linker="cvm_nogc",
        big_threshold=123.0,
        action="record",
        exempt=[exempted, "secret_*", ScalarLog],
        check_inputs=False,
        check_integers=True,
        max_events=7,
        backend="c",
    )


DERIVATIONS = {
    "including": lambda mode: mode.including("cxx_only"),
    "excluding": lambda mode: mode.excluding("fusion"),
    "requiring": lambda mode: mode.requiring("merge"),
    "register": lambda mode: mode.register((Nothing(), 1.234)),
    "clone": lambda mode: mode.clone(),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda mode: pickle.loads(pickle.dumps(mode)),
    "all of them": lambda mode: pickle.loads(
        pickle.dumps(copy.copy(mode.including("cxx_only").excluding("fusion").clone()))
    ),
}


@pytest.mark.parametrize("how", DERIVATIONS)
def test_a_derived_mode_keeps_every_setting(how, original, exempted):
    derived = DERIVATIONS[how](original)
    assert type(derived) is GuardMode
    assert derived.policy == original.policy
    assert derived.linker.allow_gc is False

    if how == "requiring":
        return  # (neither PyTensor can compile with what `requiring` gives)

    # The same, seen from outside.
    x, n = pt.dvector("x"), pt.ivector("n")
    other, secret = pt.dvector("other"), pt.dvector("secret_x")
    outputs = [x * 1.5, n.sum(), exempted.copy(), pt.log(other), secret * 2.0, other + 0.5]
    f = guarded([x, n, exempted, other, secret], outputs, mode=derived)

    def kinds(x=1.0, n=1, left=1.0, other=1.0, secret=1.0):
        before = len(events_of(f))
        f([x], [n], [left], [other], [secret])
        return [event.kind for event in events_of(f)[before:]]

    assert kinds() == []
    assert kinds(x=np.nan) == ["nan"]
    assert kinds(x=100.0) == ["big"]  # 150 is above the threshold, and inputs are not checked
    assert kinds(n=140) == ["big"]
    assert kinds(other=0.0) == []  # Log is left out
    assert events_of(f)[-1].role == "node"
    for _ in range(6):
        f([np.nan], [1], [1.0], [1.0], [1.0])
    assert len(events_of(f)) == 7
    assert len(derived.events) == 7
    assert derived.events == events_of(f)


def test_a_copy_has_a_buffer_of_its_own():
    mode = GuardMode(action="record")
    x = pt.dvector("x")
    f = guarded([x], pt.log(x), mode=copy.copy(mode))
    f([-1.0])
    assert len(events_of(f)) == 1
    assert mode.events == []


def test_registered_rewriters_are_applied_and_tags_are_kept():
    x = pt.dvector("x")
    mode = GuardMode(**ALL).excluding("fusion").register((Nothing(), 1.5))
    before = Nothing.applied
    f = guarded([x], pt.exp(pt.tanh(x) + 1.0) * 2.0, mode=mode)
    assert Nothing.applied > before
    assert len(f.maker.fgraph.apply_nodes) == 4
    assert trip(f, [np.nan]).role == "input"


@pytest.mark.not_on(jax="PyTensor does not fuse for JAX", pytorch="PyTensor does not fuse there")
def test_optimizer_and_subclass_survive():
    mode = NanGuardMode(optimizer="fast_compile")
    for derived in (f(mode) for f in DERIVATIONS.values()):
        assert type(derived) is NanGuardMode
        assert derived.policy == mode.policy
    x = pt.dvector("x")
    y = pt.exp(pt.tanh(x) + 1.0) * 2.0
    apart = guarded([x], y, mode=copy.copy(mode))
    fused = guarded([x], y, mode=GuardMode(optimizer="fast_run"))
    assert len(apart.maker.fgraph.apply_nodes) > len(fused.maker.fgraph.apply_nodes) == 1


def test_clone_takes_link_kwargs_and_an_optimizer():
    mode = GuardMode(action="record").clone(link_kwargs={"allow_gc": False}, optimizer="fast_run")
    assert mode.linker.allow_gc is False
    f = guarded([x := pt.dvector("x")], pt.log(x), mode=mode)
    assert not f.vm.allow_gc
    f([-1.0])
    assert [event.kind for event in mode.events] == ["nan"]


def test_a_mode_can_be_shown():
    assert "GuardMode" in str(GuardMode())


def test_public_names():
    for name in ("GuardError", "GuardMode", "NanGuardMode", "events_of"):
        assert name in theanoguard.__all__
    with pytest.raises(TypeError, match="not a function compiled with GuardMode"):
        events_of(pytensor.function([x := pt.dscalar()], x, mode=Mode("py", None)))
    with pytest.raises(TypeError, match="GuardMode"):
        events_of(print)
    assert issubclass(GuardError, AssertionError)


# ---------------------------------------------------------------- the drop-in


def _table():
    """(name, inputs, outputs, values) of what the two NanGuardModes must agree on."""
    x, y, m = pt.dvector("x"), pt.dvector("y"), pt.dmatrix("m")
    f16, f32, c = pt.TensorType("float16", (None,))("h"), pt.fvector("f"), pt.zvector("c")
    n, b = pt.lvector("n"), pt.vector("b", dtype="bool")
    unchecked = pt.dvector("unchecked")
    unchecked.tag.nan_guard_mode_check = False
    product = pt.log(unchecked)
    product.tag.nan_guard_mode_check = False
    rng = pytensor.shared(np.random.default_rng(1))
    one, neg, zero = np.array([1.0, 2.0]), np.array([1.0, -1.0]), np.array([0.0, 1.0])
    nan, inf, big = np.array([1.0, np.nan]), np.array([np.inf, 1.0]), np.array([2e10, 1.0])
    return [
        ("clean", [x], pt.log(x) + 1, [one]),
        ("nan made", [x], pt.log(x), [neg]),
        ("inf made", [x], pt.log(x), [zero]),
        ("-inf hidden by exp", [x], pt.exp(pt.log(x).copy()), [zero]),
        ("0/0", [x, y], x / y, [zero, zero]),
        ("big made", [x], pt.exp(x), [np.array([24.0])]),
        ("just not big", [x], pt.exp(x), [np.array([23.0])]),
        ("the threshold itself", [x], x * 2, [np.array([5e9])]),
        ("nan input", [x], x * 2, [nan]),
        ("inf input", [x], x * 2, [inf]),
        ("big input", [x], x * 2, [big]),
        ("nan input that is masked", [x], pt.switch(pt.isnan(x), 0.0, x), [nan]),
        ("nan input passed through", [x], x, [nan]),
        ("negative big", [x], -x, [-big]),
        ("empty", [x], x * 2, [np.array([])]),
        ("matrix", [m], m @ m.T, [np.array([[1.0, np.nan]])]),
        ("product overflows to big", [m], m @ m.T, [np.full((2, 2), 1e6)]),
        ("float16 inf", [f16], f16 * np.float16(2), [np.array([4e4], "float16")]),
        ("float16 clean", [f16], f16 * np.float16(2), [np.array([3e4], "float16")]),
        ("float32 inf", [f32], f32 * f32, [np.array([1e30], "float32")]),
        ("complex clean", [c], c * c, [np.array([1 + 1j])]),
        ("complex big", [c], c * c, [np.array([1e6 + 1e6j])]),
        ("big integer sum", [n], n.sum(), [np.array([9 * 10**9, 9 * 10**9])]),
        ("big integer input", [n], n + 1, [np.array([1, 2**40])]),
        ("small integer", [n], n * n, [np.array([3])]),
        ("boolean", [b], ~b, [np.array([True])]),
        ("subtensor hides it", [x], x[:1] * 2, [np.array([1.0, np.nan])]),
        ("view of a clean one", [x], x[::-1], [one]),
        ("reduction", [x], x.sum(), [np.array([9e9, 9e9])]),
        ("unchecked input", [unchecked], product, [nan]),
        ("unchecked result", [unchecked], product, [-one]),
        ("zeros", [x], pt.zeros_like(x) + pt.ones((2,)), [one]),
        ("shape only", [x], x.shape[0], [one]),
        ("argmax", [x], pt.argmax(x), [one]),
        ("set_subtensor", [x], pt.set_subtensor(x[0], 5e10), [one]),
        ("sum of big negatives", [x], pt.maximum(x, 0.0), [np.array([-3e10])]),
        ("branch", [x], pytensor.ifelse(x[0] > 0, pt.log(x), x) * 1.0, [neg]),
        ("random", [x], x + pt.random.normal(size=(2,), rng=rng), [one]),
    ]


TABLE = {name: case for name, *case in _table()}


def _trips(mode, inputs, outputs, values):
    f = pytensor.function(inputs, outputs, mode=mode, on_unused_input="ignore")
    try:
        with np.errstate(all="ignore"):
            f(*values)
    except AssertionError:
        return True
    return False


@pytest.mark.parametrize("name", TABLE)
def test_the_drop_in_trips_where_pytensors_own_does(name):
    if name.startswith("float16") and backend() == "numba":
        pytest.skip("Numba has no float16")
    assert _trips(NanGuardMode(), *TABLE[name]) == _trips(PyTensorsNanGuardMode(), *TABLE[name])


def test_an_elementwise_op_makes_a_big_integer():
    n = pt.lvector("n")
    case = [n], n * n, [np.array([1, 2**20])]
    assert _trips(NanGuardMode(), *case) == _trips(PyTensorsNanGuardMode(), *case)


FLAGS = [(True, False, False), (False, True, False), (False, False, True), (True, True, False)]


@pytest.mark.parametrize("flags", FLAGS, ids=str)
def test_the_drop_in_takes_the_same_flags(flags):
    """One graph, every kind of bad value, in the input and made by a node."""
    x = pt.dvector("x")
    ours = pytensor.function([x], x * 1e5, mode=NanGuardMode(*flags))
    theirs = pytensor.function([x], x * 1e5, mode=PyTensorsNanGuardMode(*flags))
    for value in (1.0, np.nan, np.inf, -np.inf, 1e11, 1e6, -1e6, 1e305, 0.0):
        tripped = []
        for f in (ours, theirs):
            try:
                with np.errstate(all="ignore"):
                    f(np.array([1.0, value]))
            except AssertionError:
                tripped.append(f)
        assert len(tripped) in (0, 2), (value, tripped)


def test_the_drop_in_has_the_same_signature():
    import inspect

    ours = inspect.signature(NanGuardMode).parameters
    theirs = inspect.signature(PyTensorsNanGuardMode).parameters
    assert [(p.name, p.default) for p in ours.values()] == [
        (p.name, p.default) for p in theirs.values()
    ]
    guard = list(inspect.signature(GuardMode).parameters.values())
    assert [(p.name, p.default) for p in guard[: len(theirs)]] == [
        (p.name, p.default) for p in theirs.values()
    ]
    assert all(p.kind is p.KEYWORD_ONLY for p in guard[len(theirs) :])


def test_the_drop_in_ignores_the_linker_as_theirs_does():
    x = pt.dscalar("x")
    f = pytensor.function([x], pt.log(x), mode=NanGuardMode(linker="jax"))
    with pytest.raises(AssertionError):
        f(-1.0)
