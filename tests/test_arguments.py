"""Wrong arguments of public functions end in an error of our own that names function and value."""

import argparse
import inspect
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from numpy.exceptions import AxisError

import theanoguard
from theanoguard import (
    GuardMode,
    MeasuredCalls,
    NanGuardMode,
    compare,
    debugprint,
    exact,
    find_masked,
    inspect_graph,
    lint,
    precision,
    stabilize,
    stable,
    step_through,
)
from theanoguard._arguments import Within
from theanoguard.cli.lint import add_arguments
from theanoguard.cli.main import COMMANDS, make_parser
from theanoguard.explain import register_hint
from theanoguard.guard.mode import GuardSettings
from theanoguard.log import EventLog, read_log, read_logs, task
from theanoguard.monitor import MonitorMode, detect_nan, step_in_terminal
from theanoguard.ops import (
    Assert,
    Print,
    assert_finite,
    assert_in_range,
    assert_shape,
    register_operation,
)
from theanoguard.records import Exact
from theanoguard.testvalue import eval_intermediate_values
from theanoguard.training import (
    GradientGuard,
    Watch,
    clip_grad_norm,
    clip_grad_value,
    guarded_updates,
    watching,
)
from theanoguard.training.watch import WatchSettings
from theanoguard.view import profile_nodes, pydotprint

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
    pydotprint: {"fct": x * 2, "format": "dot", "return_image": True},
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
    stable.exprel: {"x": x},
    stable.log1prel: {"x": x},
    stable.sinc: {"x": x},
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
    kinds = TypeError | ValueError | OSError | AssertionError | theanoguard.records.TheanoguardError
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
        except (FileNotFoundError, theanoguard.records.TheanoguardError):
            pass
        except Exception as error:
            assert own_error(error, function), (value, error)
            assert not str(error).startswith(("'", "object ")), (value, error)


# ---------------------------------------------------------------- from annotations


class Net:
    """Objects with methods, made anew for each call."""

    watch = staticmethod(lambda: Watch([w]))
    guard = staticmethod(lambda: GradientGuard(max_norm=1.0))
    stepper = staticmethod(lambda: step_through(f, np.ones(2)))


METHODS = {
    "Exact.text": (lambda: exact(x * 2, {x: np.ones(2)}), Exact.text, {"digits": 4}),
    "Watch.gradients": (Net.watch, Watch.gradients, {"grads": [g]}),
    "Watch.series": (Net.watch, Watch.series, {"name": "w"}),
    "GradientGuard.__call__": (Net.guard, GradientGuard.__call__, {"grads": [g]}),
    "GradientGuard.norms": (Net.guard, GradientGuard.norms, {}),
    "Stepper.goto": (Net.stepper, theanoguard.monitor.Stepper.goto, {"number": 1}),
    "Stepper.until": (Net.stepper, theanoguard.monitor.Stepper.until, {"op": "sum"}),
    "Stepper.behind": (Net.stepper, theanoguard.monitor.Stepper.behind, {"op": "sum"}),
    "Stepper.find": (Net.stepper, theanoguard.monitor.Stepper.find, {"what": "x"}),
}
CONSTRUCTED = {
    **CALLS,
    GuardMode: {},
    NanGuardMode: {},
    MeasuredCalls: {},
    EventLog: {"path": "a.jsonl"},
    precision: {"f": x * 2},
    eval_intermediate_values: {"outputs": x * 2},
    register_hint: {"op": "log", "key": "own", "when": bool, "text": "text"},
    register_operation: {"operation": Assert},
}


def wrong_values(hint):
    """Return values that an annotation does not allow: of each kind one and more."""
    origin, arguments = get_origin(hint) or hint, get_args(hint)
    if hint is Any:
        return []
    if origin in (Union, UnionType):
        return [v for one in arguments for v in wrong_values(one)]
    if origin is Annotated:
        ranges = [r for r in arguments[1:] if isinstance(r, Within)]
        ends = [r.low if r.is_open else r.low - 1 for r in ranges]
        of_floats = [float("nan")] if arguments[0] is float else []
        return [*wrong_values(arguments[0]), *(arguments[0](e) for e in ends), *of_floats]
    if origin is Literal:
        return [*(f"{one}x" for one in arguments if isinstance(one, str)), None, True]
    if origin is bool:
        return ["no", 1, 0.0, None, []]
    if origin in (int, float):
        return [True, "3", None, [1], {}, int]
    if origin in (Sequence, Iterable, Collection):
        return [None, 3.5, {x: g}, {"a": g}, object(), [object()]]
    if origin is Mapping:
        return [None, 3, [x], [3], {1.5: 3}]
    if origin in (Callable, str):
        return [3, None, [3], {}]
    return [None, 3.5, object(), [object()], origin]


def is_allowed(value, hint):
    """Whether a value is right, judged by the annotation in another way than the package does."""
    origin, arguments = get_origin(hint) or hint, get_args(hint)
    if origin in (Union, UnionType):
        return any(is_allowed(value, one) for one in arguments)
    if origin is Annotated:
        ranges = [r for r in arguments[1:] if isinstance(r, Within)]
        return is_allowed(value, arguments[0]) and all(
            r.low < value < r.high if r.is_open else r.low <= value <= r.high for r in ranges
        )
    if origin is Any:
        return True
    if origin is Literal:
        return any(type(value) is type(one) and value == one for one in arguments)
    if origin in (int, float):
        return type(value) in (int, float)[: 1 if origin is int else 2]
    if origin in (Sequence, Iterable, Collection):
        element = arguments[0] if arguments else Any
        is_one = element is not Any and is_allowed(value, element)
        return is_one or (
            isinstance(value, list | tuple) and all(is_allowed(v, element) for v in value)
        )
    if origin is tuple:
        return isinstance(value, tuple | list) and len(value) == len(arguments)
    if origin is Mapping:
        key, of_values = arguments or (Any, Any)
        return isinstance(value, Mapping) and all(
            is_allowed(k, key) and is_allowed(v, of_values) for k, v in value.items()
        )
    if origin is Callable:
        return callable(value)
    if origin is NoneType:
        return value is None
    if origin is type:
        return isinstance(value, type)
    return isinstance(value, origin)


GENERATED = [
    *((name, make, call, right) for name, (make, call, right) in METHODS.items()),
    *((function.__name__, None, function, right) for function, right in CONSTRUCTED.items()),
]


@pytest.mark.on_33
@pytest.mark.parametrize(
    ("name", "make", "call", "right"), GENERATED, ids=[g[0] for g in GENERATED]
)
def test_what_an_annotation_rules_out_is_refused(name, make, call, right, tmp_path, monkeypatch):
    """Also a keyword that is misspelled by a letter; the error names the right one."""
    monkeypatch.chdir(tmp_path)
    function = inspect.unwrap(call.__init__ if inspect.isclass(call) else call)
    shown = name.removesuffix(".__call__")
    hints = get_type_hints(function, include_extras=True)
    for parameter, hint in hints.items():
        kind = inspect.signature(function).parameters.get(parameter)
        if (
            parameter == "return"
            or kind.kind is kind.VAR_POSITIONAL
            or kind.kind is kind.VAR_KEYWORD
        ):
            continue
        for value in wrong_values(hint):
            if is_allowed(value, hint):
                continue
            arguments = {**right, parameter: value}
            with pytest.raises((TypeError, ValueError)) as caught:
                call(*([make()] if make else []), **arguments)
            assert str(caught.value).startswith(f"{shown}({parameter}="), (value, caught.value)
        if not any(
            p.kind is p.VAR_KEYWORD for p in inspect.signature(function).parameters.values()
        ):
            with pytest.raises(TypeError, match=f"{shown}: .*did you mean '") as caught:
                call(*([make()] if make else []), **{**right, f"{parameter}x": 1})


@pytest.mark.parametrize(
    ("settings", "function"),
    [(WatchSettings, Watch.__init__), (GuardSettings, GuardMode.__init__)],
)
def test_settings_that_are_passed_on_have_the_types_of_the_arguments(settings, function):
    hints = get_type_hints(inspect.unwrap(function), include_extras=True)
    own = {"params", "names", "optimizer", "linker", "db", "backend", "return"}
    names = {"names"} & settings.__annotations__.keys()
    taken = {name: hint for name, hint in hints.items() if name not in own - names}
    assert get_type_hints(settings, include_extras=True) == taken


def test_a_class_is_no_mode():
    for mode in (GuardMode, NanGuardMode, MonitorMode):
        with pytest.raises(TypeError, match=rf"Write mode={mode.__name__}\(\), with parentheses"):
            pytensor.function([x], x * 2, mode=mode)
        with pytest.raises(TypeError, match=rf"write {mode.__name__}\(\), with parentheses"):
            lint(x * 2, mode=mode)


def test_two_updates_of_one_variable_are_refused_as_pytensor_refuses_them():
    twice = [(w, w + 1), (w, w + 2)]
    with pytest.raises(ValueError, match="already has an update"):
        pytensor.function([], updates=twice)
    for refuses in (lambda: guarded_updates(twice), lambda: lint(x * 2, updates=twice)):
        with pytest.raises(ValueError, match="w has two updates"):
            refuses()


def test_what_a_stepper_does_not_have():
    stepper = step_through(f, np.ones(2))
    with pytest.raises(ValueError, match=r"goto\(number=99\): the function has \d+ steps"):
        stepper.goto(99)
    with pytest.raises(ValueError, match=r"until\(op='Softmax'\): the function has no such"):
        stepper.until("Softmax")
    with pytest.raises(ValueError, match=r"until\(name='y'\): the function has no variable"):
        stepper.until(name="y")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--seconds", "-1"], "the time of a search must be positive, not -1"),
        (["--seconds", "nan"], "the time of a search must be positive, not nan"),
        (["--ignore", "log-of-zer"], "there is no rule 'log-of-zer'; did you mean 'log-of-zero'?"),
        (["--jsn"], "unrecognized|no program"),
    ],
)
def test_the_command_line(arguments, text, capsys):
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    with pytest.raises(SystemExit):
        parser.parse_args([*arguments, "script.py"])
    if "|" not in text:
        assert text in capsys.readouterr().err


@pytest.mark.parametrize("command", COMMANDS)
def test_wrong_options_of_each_command_are_refused(command, capsys):
    """For each option that takes one of some words, or a number, a value of another kind."""
    parser = argparse.ArgumentParser()
    COMMANDS[command].load().add_arguments(parser)
    for action in [a for a in parser._actions if a.option_strings and a.nargs is None]:
        option = action.option_strings[-1]
        wrong = ["nope"] if action.choices or action.type not in (None, str) else []
        is_number = action.type is not None and isinstance(action.default, float | int)
        wrong += ["nan", "-1", "1e", ""] if is_number else []
        for value in wrong:
            with pytest.raises(SystemExit):
                make_parser([command]).parse_args([command, f"{option}={value}"])
            said = capsys.readouterr().err
            assert option in said, (option, value, said)
            assert not re.search(r"invalid \w+_?\w* value", said), said


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
