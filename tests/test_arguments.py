"""Wrong arguments of public functions end in an error of our own that names function and value."""

import inspect

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from numpy.exceptions import AxisError

import theanoguard
from theanoguard import (
    MonitorMode,
    Print,
    compare,
    debugprint,
    detect_nan,
    exact,
    find_masked,
    inspect_graph,
    lint,
    profile_nodes,
    read_log,
    stabilize,
    stable,
    step_in_terminal,
    step_through,
)
from theanoguard.log import read_logs, task
from theanoguard.ops import assert_finite, assert_in_range, assert_shape
from theanoguard.training import (
    GradientGuard,
    Watch,
    clip_grad_norm,
    clip_grad_value,
    guarded_updates,
    watching,
)

x = pt.dvector("x")
w = pytensor.shared(np.ones(3), name="w")
g = pt.dvector("g")
f = pytensor.function([x], pt.log(x).sum(), mode="CVM")

# Each function with arguments that are right.
CALLS = {
    GradientGuard: {"max_norm": 1.0},
    Watch: {"params": [w]},
    assert_finite: {"x": x},
    assert_in_range: {"x": x, "low": 0},
    assert_shape: {"x": x, "shape": [3]},
    clip_grad_norm: {"grads": [g], "max_norm": 1.0},
    clip_grad_value: {"grads": [g], "value": 1.0},
    compare: {"graph_or_function": x * 2, "inputs": {x: np.ones(2)}, "modes": "py"},
    debugprint: {"graph_like": x * 2, "file": "str"},
    exact: {"outputs": x * 2, "inputs": {x: np.ones(2)}},
    find_masked: {"fn": f},
    guarded_updates: {"updates": {w: w * 2}},
    inspect_graph: {"thing": x * 2},
    lint: {"graph": pt.log(x)},
    profile_nodes: {"fn": f},
    read_log: {"path": "missing.jsonl"},
    read_logs: {"paths": ["missing.jsonl"]},
    stabilize: {"graph": pt.log(x)},
    step_in_terminal: {"fn": f},
    step_through: {"fn": f},
    watching: {"function": f, "params": [w]},
    task: {"name": "fold 3"},
    MonitorMode: {},
    Print: {},
    stable.binary_crossentropy: {"output": x, "target": x},
    stable.categorical_crossentropy: {"output": x, "target": x},
    stable.default_eps: {"function": "log", "dtype": "float64"},
    stable.divide: {"x": x, "y": x},
    stable.hypot: {"x": x, "y": x},
    stable.improve: {"expression": pt.log(x), "inputs": {x: np.ones(2)}},
    stable.log: {"x": x},
    stable.log_erfc: {"x": x},
    stable.log_softmax: {"x": x},
    stable.logaddexp: {"x": x, "y": x},
    stable.logsumexp: {"x": x},
    stable.norm: {"x": x},
    stable.register_identity: {"left": "tan(a)", "right": "sin(a) / cos(a)"},
    stable.softmax: {"x": x},
    stable.sqrt: {"x": x},
}
WRONG = [3, -1.0, "nope", [], [3], None, x, w, {"a": 1}, {x: 3}, object(), (1, 0), f]
# Settings that PyTensor or the user's own call gets as they are.
PASSED_ON = {"settings", "kwargs", "args", "pytensor_kwargs", "done", "used_ids", "names"}
PASSED_ON |= {"optimizer", "linker", "db"}
TRIALS = [
    pytest.param(function, name, id=f"{function.__name__}-{name}")
    for function in CALLS
    for name in inspect.signature(function).parameters
    if name not in PASSED_ON
]


def own_error(error, function):
    """Whether the message is ours: it names the function or the argument, not an internal of it."""
    last = error.__traceback__
    while last.tb_next is not None:
        last = last.tb_next
    if isinstance(error, AxisError) or str(error).startswith("Cannot convert "):
        return True  # (NumPy and PyTensor name the axis and the value)
    kinds = TypeError | ValueError | OSError | AssertionError | theanoguard.TheanoguardError
    raised_by_us = "theanoguard" in last.tb_frame.f_code.co_filename
    if function in (find_masked, step_through):  # (what the call of the user's own function raises)
        raised_by_us = raised_by_us or "executor" in last.tb_frame.f_code.co_filename
    return isinstance(error, kinds) and (raised_by_us or str(error).startswith(function.__name__))


@pytest.mark.on_33
@pytest.mark.parametrize(("function", "name"), TRIALS)
def test_wrong_arguments_end_in_errors_of_our_own(function, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for value in WRONG:
        if name == "is_bad" and value is f:  # a function that fails by itself
            continue
        arguments = {**CALLS[function], name: value}
        if function is find_masked and name != "fn":
            arguments["x"] = np.ones(2)
        try:
            result = function(**arguments)
            if function is watching:
                with result:
                    pass
        except (FileNotFoundError, theanoguard.TheanoguardError):
            pass
        except Exception as error:
            assert own_error(error, function), (value, error)
            assert not str(error).startswith(("'", "object ")), (value, error)


MESSAGES = {
    "Watch": (
        lambda: Watch(3),
        "Watch(params=3): params must be a list of shared variables, not int 3",
    ),
    "clip_grad_norm": (
        lambda: clip_grad_norm([g], 1.0, norm_type="l2"),
        "clip_grad_norm(norm_type='l2'): norm_type must be a number, not str 'l2'",
    ),
    "GradientGuard": (
        lambda: GradientGuard(max_norm="a"),
        "GradientGuard(max_norm='a'): max_norm must be a number or None, not str 'a'",
    ),
    "updates": (
        lambda: guarded_updates([w, w + 1, w]),
        "guarded_updates(updates=[w, Add.0, w]): updates[0] must be a pair, not ",
    ),
    "rule": (
        lambda: lint(x, ignore="log-of-zer"),
        "lint(ignore='log-of-zer'): there is no rule 'log-of-zer'; did you mean 'log-of-zero'?",
    ),
    "bounds": (
        lambda: lint(x, bounds={x: (1, 0)}),
        "lint(bounds={x: (1, 0)}): the bounds of x must be a pair (smallest, largest)",
    ),
    "bounds of a name": (
        lambda: lint(x, bounds={"xx": (0, 1)}),
        "lint(bounds={'xx': (0, 1)}): the key 'xx' of bounds must be a variable, not str 'xx'",
    ),
    "step": (
        lambda: step_in_terminal(3),
        "step_in_terminal(fn=3): fn must be a compiled function, not int 3",
    ),
    "range": (
        lambda: assert_in_range(x, 3, 1),
        "assert_in_range(low=3): low must be at most high, which is 1",
    ),
    "events": (
        lambda: inspect_graph(x, events="e"),
        "inspect_graph(events='e'): events must be a dictionary, a GuardEvent, ",
    ),
    "keyword": (
        lambda: clip_grad_norm([g], max_nrm=1.0),
        "clip_grad_norm: ",
    ),
    "detect_nan": (detect_nan, "detect_nan is called with 0 arguments"),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_messages(name):
    call, message = MESSAGES[name]
    with pytest.raises((TypeError, ValueError)) as caught:
        call()
    assert str(caught.value).startswith(message)


def test_a_single_value_is_a_list_of_one(tmp_path):
    [clipped], _ = clip_grad_norm(g, 1.0)
    assert clipped.type == g.type
    assert Watch(w).names == Watch([w]).names
    assert len(guarded_updates({w: w * 2}, watch=x.sum()).watched) == 2
    assert w in guarded_updates([w, w + 1])
    with pytest.raises(FileNotFoundError, match="none.jsonl"):
        read_logs(tmp_path / "none.jsonl")


def test_the_nearest_name_is_suggested():
    with pytest.raises(AttributeError, match="did you mean 'GuardMode'"):
        theanoguard.GuardMod  # noqa: B018


@pytest.mark.parametrize("mode", [theanoguard.GuardMode, MonitorMode, theanoguard.NanGuardMode])
def test_an_optimizer_that_pytensor_does_not_have_is_refused(mode):
    with pytest.raises(ValueError, match=r"Mode\(optimizer='fast_rum'\): .*mean 'fast_run'"):
        mode(optimizer="fast_rum")
