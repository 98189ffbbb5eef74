"""A row has one name in every view, and in every representation."""

import html
import re

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from theanoguard import GuardError, GuardMode, debugprint, inspect_graph, step_through
from theanoguard._text import cut_apart
from theanoguard.cli.report import count, render_counts
from theanoguard.log import read_log
from theanoguard.view import profile_nodes

UPDATES = ["W1 <- p - lr * g", "W2 <- p - lr * g"]


def updates():
    lr = pt.dscalar("lr")
    params = [pytensor.shared(np.ones((2, 2)), name=name) for name in ("W1", "W2")]
    loss = pt.dot(pt.dot(np.ones((2, 2)), params[0]), params[1] ** 2).sum()
    loss.name = "loss"
    return (
        lr,
        loss,
        {p: p - lr * g for p, g in zip(params, pytensor.grad(loss, params), strict=True)},
    )


@pytest.fixture(scope="module")
def failed():
    """A function with two updates from one line, and its error."""
    lr, loss, new = updates()
    mode = GuardMode(big_is_error=False)
    f = pytensor.function([lr], loss, updates=new, mode=mode, name="train")
    with pytest.raises(GuardError) as caught:
        f(1e308)
    return f, caught.value


def test_an_update_is_named_after_its_variable_in_every_view(failed):
    f, _ = failed
    shown = inspect_graph(f)
    labels = [shown.written.called(v) for v in shown.written.variables.values()]
    assert [label for label in labels if "<-" in label] == UPDATES
    with step_through(f, 0.1) as stepper:
        steps = [stepper.where() for _ in iter(stepper.next, None)]
    texts = {
        "tree": repr(shown),
        "printed": debugprint(f, file="str", as_written=True),
        "page": html.unescape(shown.html()),
        "picture": html.unescape(shown.picture().svg()),
        "stepper": "\n".join(steps),
    }
    for view, text in texts.items():
        for update in UPDATES:
            assert update in text, (view, update)
        assert "update of" not in text.replace("on the way to update of", ""), view


def test_events_logs_and_marks_name_the_update_that_failed(tmp_path):
    """Of two that one line makes: the mark was at the first."""
    params = [pytensor.shared(value, name=name) for name, value in (("a", 1.0), ("b", 1e308))]
    mode = GuardMode(log=tmp_path / "e.jsonl", big_is_error=False)
    f = pytensor.function([], updates={p: p * 3.0 for p in params}, mode=mode)
    with pytest.raises(GuardError) as caught:
        f()
    event = caught.value.event
    assert (event.update_of, event.what) == ("b", "b <- p * 3.0")
    entries = read_log(tmp_path / "e.jsonl").entries
    assert entries[0].event == event
    assert "b <- p * 3.0" in render_counts(count(entries))
    for text in (
        debugprint(f, file="str", as_written=True, events=event),
        repr(inspect_graph(f)),
    ):
        [line] = [line for line in text.splitlines() if "<<<" in line]
        assert line.startswith("b <- p * 3.0")


def test_a_row_without_a_compiled_operation_names_none(failed):
    shown = debugprint(failed[0], file="str", as_written=True)
    [gradient] = [x for x in shown.splitlines() if re.search(r"lr \* g \[id", x) and "├" in x][
        :1
    ] or [""]
    assert "Mul" not in gradient


def test_a_profile_names_updates_without_provenance():
    lr, loss, new = updates()
    f = pytensor.function([lr], loss, updates=new, mode="FAST_COMPILE", profile=True)
    f(0.1)
    names = {row.name for row in profile_nodes(f).rows}
    assert {"update of W1", "update of W2"} <= names


@pytest.mark.parametrize("restore", [True, False])
def test_a_fused_operation_is_never_shown_as_pytensor_prints_it(restore, tmp_path):
    """The event of a fused update has no expression of its own where its operand came in bad."""
    x, y = pt.dvector("x"), pt.dvector("y")
    w = pytensor.shared(np.ones(2), name="w")
    out = pt.exp(x) * pt.log(y) - pt.sqrt(y)
    new = {w: w - 0.1 * pytensor.grad(out.sum(), x)}
    events = []
    mode = GuardMode(action=events.append, log=tmp_path / "e.jsonl", restore=restore)
    f = pytensor.function([x, y], out, updates=new, mode=mode)
    for _ in range(2):
        f([1.0, 2.0], [1.0, -1.0])
    assert any("Composite" in str(event.op) for event in events)
    shown = [repr(events), *(event.title for event in events)]
    shown += [render_counts(count(read_log(tmp_path / "e.jsonl").entries))]
    assert "Composite" not in "\n".join(shown)


def test_names_that_are_cut_differ():
    inside = "tanh(x @ W1 + b1) * (1.0 - tanh(x @ W1 + b1) ** 2)"
    names = [f"{inside} @ W{n} * {inside}" for n in (2, 3)] + [f"{inside} + {n}" for n in (1, 2)]
    for most in (20, 32, 60):
        shown = cut_apart([*names, "loss"], most)
        assert len(set(shown)) == len(names) + 1
        assert max(map(len, shown)) <= most
        assert shown[-1] == "loss"
