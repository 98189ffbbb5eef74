"""``theanoguard.inspect_graph`` and the IPython extension."""

import base64
import json
import os
import pickle
import re
import subprocess
import sys
import time
import zlib
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from guarding import ALL, guarded
from pytensor.compile.maker import FunctionMaker

import theanoguard
from theanoguard import GuardError, GuardMode, inspect_graph
from theanoguard.notebook.stepping import STYLE, StepView, histogram
from theanoguard.training import recording_of
from theanoguard.view.inspecting import page
from theanoguard.view.inspecting.outline import Outline
from theanoguard.view.inspecting.picture import before_rewriting
from theanoguard.view.model import Statistics, graph_model

pytestmark = pytest.mark.on_33

NOTEBOOKS = sorted((Path(__file__).parents[2] / "examples" / "notebooks").glob("*.ipynb"))
VOID = {"meta", "input", "br", "hr", "img", "link"}


class Page(HTMLParser):
    """Reads HTML strictly: what is opened is closed, in order."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.attributes, self.deepest = [], [], set(), 0
        self.texts, self.scripts, self.opened = [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attributes}
        if tag == "details" and ("open", None) in attributes:
            self.opened.append("")
        if tag not in VOID:
            self.open.append(tag)
            self.deepest = max(self.deepest, len(self.open))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        inside = self.open[-1] if self.open else None
        if inside == "script":
            self.scripts.append(data)
        elif inside != "style":
            self.texts.append(data)

    @property
    def text(self):
        return "".join(self.texts)


def packed(html, written=False):
    """What the script is given that shows the compiled graph, or the graph as it was written."""
    first, *others = Page(html).scripts
    script = others[0] if others and not written else first
    data = script.rsplit('"', 2)[1]
    return json.loads(zlib.decompress(base64.b64decode(data)))


def rows(data, graph=0):
    """The rows of a graph with their texts, by key."""
    words = data["words"]
    return {
        row["key"]: {
            **row,
            **{name: words[row[name]] for name in ("label", "name", "role", "type", "line")},
            "facts": [(words[name], words[value]) for name, value in row["facts"]],
        }
        for row in data["graphs"][graph]["rows"]
    }


def row_with(data, **wanted):
    [found] = [r for r in rows(data).values() if all(r[k] == v for k, v in wanted.items())]
    return found


@pytest.fixture(scope="module")
def graph():
    x = pt.dvector("x")
    w = pytensor.shared(np.ones(3), name="w")
    p = pt.dot(x, w) - 5
    p.name = "p"
    return x, w, pt.log(p) * pt.exp(x).sum()


@pytest.fixture(scope="module")
def function(graph):
    x, w, out = graph
    f = guarded([x], out, updates={w: w + x})
    f.name = "step"
    return f


@pytest.fixture(scope="module")
def error(function):
    with pytest.raises(GuardError) as caught:
        function(np.ones(3))
    return caught.value


def deep(n, name="x"):
    x = h = pt.dvector(name)
    for _ in range(n):
        h = pt.tanh(h)
    return x, h


def wide(n):
    """A graph of about `n` nodes, which is not deep."""
    xs = [pt.dvector(f"x{i}") for i in range(n // 6)]
    return sum(pt.exp(x * 2.0 + 1.0) for x in xs)


# -- what is shown


@pytest.mark.parametrize("form", ["variable", "list", "graph", "function", "error", "event", "old"])
def test_everything_is_well_formed(form, graph, function, error):
    things = {
        "variable": graph[2],
        "list": [graph[2], graph[0]],
        "graph": function.maker.fgraph,
        "function": function,
        "error": error,
        "event": error.event,
        "old": pickle.loads(pickle.dumps(error)),
    }
    html = inspect_graph(things[form]).html()
    found = Page(html)
    assert found.tags.count("details") == found.tags.count("summary") >= 1
    assert packed(html)["graphs"][0]["rows"]
    assert not {name for name in found.attributes if name.startswith("on")}


def test_what_has_no_graph_is_refused():
    with pytest.raises(TypeError, match="A int has no graph"):
        inspect_graph(3)


def test_it_shows_what_debugprint_shows(function, error):
    html = inspect_graph(function, events=error).html()
    printed = theanoguard.debugprint(function, file="str", print_source=True, print_rewrites=True)
    data, text = packed(html), Page(html).text
    for row in rows(data).values():
        assert row["label"] in printed
        assert row["label"] in text
        for name, fact in row["facts"]:
            if name == "Rewritten from":
                assert fact in printed
            if name == "Line":
                assert fact.split(":")[1] in printed
    bad = data["graphs"][0]["rows"][data["graphs"][0]["bad"][0]]
    assert bad["events"] == ["nan in call 1"]
    assert "nan in call 1" in text
    assert "test_notebook.py:" in text
    assert row_with(data, label="x")["type"] == "float64 (3,)"  # (of the last call)
    assert ("Shape", "(?,)") in row_with(data, label="x")["facts"]


def training_step():
    x, w = pt.dmatrix("x"), pytensor.shared(np.array([[-1.0, 1.0]] * 3), name="w")
    scores = pt.tanh(x @ w) * 40.0
    probs = pt.special.softmax(scores, axis=1)
    loss = -pt.log(probs[:, 0] - 1e-6).mean()
    return guarded([x], loss, updates={w: w - 0.5 * pytensor.grad(loss, w)}), w


def test_the_graph_is_shown_as_it_was_written():
    step, _w = training_step()
    shown = inspect_graph(step)
    assert len(shown.written.nodes) < len(shown.model.nodes)
    labels = {row["label"] for row in rows(packed(shown.html(), written=True)).values()}
    assert labels == {
        "x",
        "w",
        "x @ w",
        "tanh(x @ w)",
        "scores = tanh(x @ w) * 40.0",
        "probs = softmax(scores, axis=1)",
        "probs[:, 0]",
        "probs[:, 0] - 1e-6",
        "log(probs[:, 0] - 1e-6)",
        "log(probs[:, 0] - 1e-6).mean()",
        "loss = -log(probs[:, 0] - 1e-6).mean()",
        "grad(loss, w)",
        "0.5 * grad(loss, w)",
        "w <- w - 0.5 * grad(loss, w)",
    }
    assert not [text for text in labels if "Composite" in text]


def test_the_mark_is_at_the_expression_that_the_report_names():
    step, _w = training_step()
    with pytest.raises(GuardError) as caught:
        step(np.ones((4, 3)))
    shown = inspect_graph(caught.value)
    found = rows(packed(shown.html(), written=True)).values()
    [marked] = [row for row in found if row["events"]]
    cause = caught.value.explanation.cause
    assert marked["label"] == cause.provenance.expression
    assert marked["line"].endswith(f":{cause.provenance.source.line}")


def test_a_name_that_turns_the_text_around_is_made_harmless():
    x = pt.dvector("a\u202eb")
    y = pt.exp(x)
    y.name = "c\u202ed"
    html = inspect_graph(pt.log(y), events={y: "e\u202ef"}).html()
    assert "\u202e" not in html
    assert "\u202e" not in json.dumps(packed(html), ensure_ascii=False)


def test_the_mark_of_a_plain_row_comes_first(function, error):
    html = inspect_graph(function, events=error).html()
    assert re.search(r"<mark>nan in call 1</mark> <b>", html)


def test_rows_tell_names_and_roles(function, graph):
    data = packed(inspect_graph(function).html())
    assert data["counts"] == "4 nodes, 1 input, 1 shared variable, 1 marked".replace(
        "4 nodes", f"{len(inspect_graph(function).model.nodes)} nodes"
    )
    roles = {row["role"] for row in rows(data).values()}
    kinds = {row["label"]: dict(row["facts"])["Kind"] for row in rows(data).values()}
    assert (kinds["x"], kinds["w"]) == ("input", "shared")
    assert {"w <- w + x", "shared variable"} <= roles
    loss = pt.log(graph[0]).sum()
    loss.name = "loss"
    named = rows(packed(inspect_graph(loss).html())).values()
    assert [row["role"] for row in named if row["role"]] == ["output loss"]


def test_the_function_of_an_error_shows_the_path_of_its_report():
    x, w = pt.dvector("x"), pytensor.shared(np.ones(3), name="w")
    function = guarded([x], pt.log(x * 2.0 - pt.cumsum(w)))

    def path(shown):
        first = packed(shown.html())["graphs"][0]
        return {first["rows"][i]["key"] for i in first["path"]}

    with pytest.raises(GuardError) as caught:
        function(np.ones(3))
    assert path(inspect_graph(function)) == path(inspect_graph(caught.value))


def test_the_report_comes_first(error):
    html = inspect_graph(error).html()
    text = Page(html).text
    assert str(error).splitlines()[0] in text
    assert text.index(str(error).splitlines()[0]) < text.index("Graph of call 1 of step")
    assert "Traceback (most recent call last)" in text
    assert "\x1b" not in html
    assert repr(inspect_graph(error)) == str(error)


def test_the_way_from_the_input_is_open_and_marked(error):
    html = inspect_graph(error).html()
    data = packed(html)
    first = data["graphs"][0]
    keys = [first["rows"][i]["key"] for i in first["path"]]
    named = {rows(data)[key]["label"] for key in keys}
    start = error.explanation.waypoints[0].name
    assert named & {"x", "w"} == {start}
    chain = first["bad"][:1]
    while chain[-1] >= 0:
        chain.append(first["rows"][chain[-1]]["up"])
    # Open without a script: the trees' tops, the way up to an output, the way down to the input.
    assert len(Page(html).opened) >= len({*chain[:-1]})


def test_of_two_outputs_the_bad_one_is_marked():
    x, w = pt.dvector("x"), pytensor.shared(np.ones(2), name="w")
    y = pt.log(x * w)
    f = guarded([x], y, updates={w: w - y**2}, linker="cvm")
    with pytest.raises(GuardError) as caught:
        f(np.array([1.0, -1.0]))
    data = packed(inspect_graph(caught.value).html())
    marked = [r for r in rows(data).values() if r["events"]]
    assert len(marked) == 1
    assert marked[0]["home"] == data["graphs"][0]["bad"][0]
    inner = [r for g in range(1, len(data["graphs"])) for r in rows(data, g).values()]
    assert [r["label"] for r in inner if r["events"]] == ["log"]


def test_a_bad_step_of_a_scan_is_found_inside():
    x = pt.dvector("x")
    with theanoguard.track_provenance():
        start = pt.constant(2.0, dtype="float64")
        out = pytensor.scan(
            lambda s, h: pt.log(h) + s, sequences=[x], outputs_info=[start], return_updates=False
        )
    f = guarded([x], out)
    with pytest.raises(GuardError) as caught:
        f(np.array([-3.0, 1.0]))
    data = packed(inspect_graph(caught.value).html())
    marked = {
        row["label"].lower(): graph
        for graph in range(len(data["graphs"]))
        for row in rows(data, graph).values()
        if row["events"]
    }
    assert marked.pop("log") > 0
    assert [name.startswith("scan") for name in marked] == [True]


def test_an_error_without_its_function_tells_the_way(error):
    data = packed(inspect_graph(pickle.loads(pickle.dumps(error))).html())
    cause = row_with(data, events=["nan at [] in call 1"])
    assert cause["label"] == "log"
    start = row_with(data, label=error.explanation.waypoints[0].name)
    path = data["graphs"][0]["path"]
    assert start["key"] in {data["graphs"][0]["rows"][i]["key"] for i in path}


def test_an_event_alone_is_one_row(error):
    data = packed(inspect_graph(error.event).html())
    assert [row["events"] for row in rows(data).values()] == [["nan at [] in call 1"]]


def test_bad_input_is_the_marked_row(function):
    with pytest.raises(GuardError) as caught:
        function(np.array([1.0, np.nan, 1.0]))
    data = packed(inspect_graph(caught.value).html())
    assert row_with(data, label="x")["events"] == ["nan at [1] in call 2"]


def test_values_of_the_last_call():
    x = pt.dvector("x")
    f = pytensor.function([x], pt.exp(pt.dot(x, x)), mode=GuardMode(**ALL, linker="cvm_nogc"))
    f(np.array([1.0, 2.0]))
    shown = [r["value"] for r in rows(packed(inspect_graph(f).html())).values()]
    assert "min=148.4 max=148.4 mean=148.4 bad=0" in shown
    given = inspect_graph(f, values={f.maker.fgraph.inputs[0]: [7.0]})
    assert "min=7 max=7 mean=7 bad=0" in Page(given.html()).text


def test_an_overwritten_value_is_not_shown():
    x = pt.dvector("x")
    row = pt.cumsum(x)
    out = pt.set_subtensor(row[0], 100.0)
    f = pytensor.function([x], out, mode=GuardMode(**ALL, linker="cvm_nogc"))
    f(np.array([1.0, 2.0]))
    inplace = [n for n in f.maker.fgraph.toposort() if n.op.destroy_map]
    assert inplace, "the graph of this test works in place"
    data = packed(inspect_graph(f).html())
    found = {r["label"]: r["value"] for r in rows(data).values()}
    overwriting = str(inplace[0].op)
    assert found.pop(overwriting).startswith("min=3 max=100")
    overwritten = str(inplace[0].inputs[0].owner.op)
    assert found[overwritten] == ""


def test_a_mean_that_overflows_has_a_text():
    assert str(Statistics("float64", (2,), 1.0, 2.0, None, 0)) == "min=1 max=2 mean=? bad=0"
    x = pt.dvector("x")
    assert "mean=?" in inspect_graph(x, values={x: [1.7e308, 1.7e308]}).html()


# -- names and values that are up to something

NASTY = [
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(1)>",
    "\"' onmouseover='alert(1)",
    "</style></details></div>",
    "&lt;b&gt; \x1b[31m \x00 \u202e",
]


@pytest.mark.parametrize("name", NASTY)
def test_names_stay_text(name, monkeypatch):
    x = pt.dvector(name)
    out = pt.log(x)
    out.name = name
    f = guarded([x], out)
    f.name = name
    honest = Page(inspect_graph(pt.log(pt.dvector("x"))).html())
    with pytest.raises(GuardError) as caught:
        f(np.array([-1.0]))
    for thing in (out, f, caught.value, pickle.loads(pickle.dumps(caught.value))):
        found = Page(inspect_graph(thing, values={x: [1.0]}).html())
        assert set(found.tags) <= {*honest.tags, "p", "pre", "span", "mark", "i", "code", "details"}
        assert found.attributes <= honest.attributes | {"open"}
        shown = inspect_graph(thing)
        assert found.tags.count("script") == 1 + (shown.written is not None)
        assert "".join(c if c.isprintable() else "\ufffd" for c in name) in found.text
    in_file = page.document(inspect_graph(f).html(), name)
    assert Page(in_file).tags.count("script") == 2


# -- size


def test_a_thousand_nodes_fit():
    out = wide(1000)
    model = graph_model(out)
    assert 950 <= len(model.nodes) <= 1050
    html = inspect_graph(out).html()
    assert len(html.encode()) <= 300_000
    assert set(rows(packed(html))) == set(Outline(model).up)
    assert Page(html).tags.count("details") >= 0.95 * len(model.nodes)


def test_a_large_graph_shows_what_matters_and_holds_the_rest():
    x, h = deep(3000)
    bad = pt.log(h)
    out = bad + wide(4000)
    html = inspect_graph(out, events={bad.owner: "went bad"}).html()
    found = Page(html)
    assert len(found.text) < 200_000
    assert "rows are shown, those around what matters" in found.text
    assert "<mark>went bad</mark>" in html
    data = packed(html)
    assert len(rows(data)) == len(Outline(graph_model(out)).up)
    assert row_with(data, label="x")["key"] in {
        data["graphs"][0]["rows"][i]["key"] for i in data["graphs"][0]["path"]
    }


def test_deep_graphs_are_not_nested_too_deeply():
    # (browsers cut elements that are nested more than 512 deep)
    _, h = deep(600)
    found = Page(inspect_graph(h).html())
    assert found.deepest < 300
    continued = 600 // (page.MAX_DEPTH + 1)
    assert found.text.count("continued below") == continued
    assert found.tags.count("details") == 600 - continued


def test_long_texts_are_cut():
    x = pt.dvector("x" * 5000)
    html = inspect_graph(pt.log(x)).html()
    assert len(html) < 40_000
    assert "x" * 59 + "…" in html


# -- files


def without_ids(html):
    return re.sub(r"tg-[0-9a-f]{12}", "tg-", html)


def test_save(tmp_path, error):
    path = tmp_path / "trip.html"
    inspect_graph(error).save(path)
    text = path.read_text(encoding="utf-8")
    expected = page.document(inspect_graph(error).html(), "call 1 of step")
    assert without_ids(text) == without_ids(expected)
    assert Page(text.removeprefix("<!DOCTYPE html>\n")).tags[:2] == ["html", "head"]
    assert "http" not in text.replace(f"file://{path}", "")


def test_save_is_all_or_nothing(tmp_path, graph, monkeypatch):
    path = tmp_path / "graph.html"
    path.write_text("before")

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        inspect_graph(graph[2]).save(path)
    assert os.listdir(tmp_path) == ["graph.html"]
    assert path.read_text() == "before"


# -- before and after rewriting


def test_what_a_node_was_rewritten_from():
    x = pt.dvector("x")
    f = guarded([x], pt.log(x * 2.0) + 1.0)
    model = graph_model(f)
    before, links = before_rewriting(f, model)
    assert sorted(node.op for node in before.nodes.values()) == [
        "Add",
        "ExpandDims{axis=0}",
        "ExpandDims{axis=0}",
        "Log",
        "Mul",
    ]
    [fused] = model.nodes
    assert {"Add", "Log", "Mul"} <= {before.nodes[key].op for key in links["after"][fused]}
    assert all(links["before"][key] == [fused] for key in links["after"][fused])


def test_before_rewriting_has_to_be_recorded():
    x = pt.dvector("x")
    f = pytensor.function([x], x + 1, mode="FAST_COMPILE")
    for function in (f, None):
        with pytest.raises(ValueError, match="(?s)nothing is known .*track_provenance"):
            before_rewriting(function, graph_model(f))


def test_the_extra_is_named_where_it_is_missing(function, monkeypatch):
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    with pytest.raises(ImportError, match="pip install ipywidgets"):
        StepView(theanoguard.step_through(function, np.ones(3)))


# -- in IPython


@pytest.fixture
def shell(tmp_path, monkeypatch):
    """A session with the extension loaded."""
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    pytest.importorskip("IPython", reason="IPython is not installed")
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    config = Config()
    config.HistoryManager.enabled = False
    InteractiveShell.clear_instance()
    hooks = sys.displayhook, sys.excepthook
    session = InteractiveShell.instance(config=config, colors="nocolor")
    session.run_cell("%load_ext theanoguard")
    yield session
    session.run_cell("%unload_ext theanoguard")
    InteractiveShell.clear_instance()
    sys.displayhook, sys.excepthook = hooks


@pytest.fixture
def run(shell):
    """``run(cell)`` runs a cell and returns its result, its text and what it displayed."""
    from IPython.utils.capture import capture_output

    def run(cell):
        with capture_output() as output:
            result = shell.run_cell(cell, store_history=True)
        result.text = output.stdout + output.stderr
        result.shown = [each.data for each in output.outputs]
        return result

    run(
        "import numpy as np, pytensor, pytensor.tensor as pt\nx = pt.dvector('x')\ny = pt.log(x)\n"
        "bad = np.array([1.0, -1.0])\n"
    )
    return run


def test_an_error_in_a_timed_cell_shows_its_line(run):
    found = run(
        "%%time\nimport pytensor, pytensor.tensor as pt, theanoguard\nx = pt.dvector('x')\n"
        "y = pt.log(0.5 * x)\n"
        "f = pytensor.function([x], y, mode=theanoguard.GuardMode())\nf([0.0])"
    )
    assert "<timed exec>:3:5\n    y = pt.log(0.5 * x)\n" in str(found.error_in_exec)


def html_shown(shell, thing):
    return shell.display_formatter.format(thing)[0].get("text/html")


def test_rich_display(shell, graph, function, error):
    for thing in (graph[2], function, function.maker.fgraph, error, error.event):
        assert without_ids(html_shown(shell, thing)) == without_ids(inspect_graph(thing).html())
    assert html_shown(shell, 3) is None


def test_a_trip_shows_its_report(run):
    run("f = pytensor.function([x], y, mode='GuardMode')")
    result = run("\nf(bad)")
    assert isinstance(result.error_in_exec, GuardError)
    assert result.text == ""
    [shown] = result.shown
    assert shown["text/plain"] == str(result.error_in_exec)
    text = Page(shown["text/html"]).text
    assert text.startswith("NaN in log: log(-1.0) at element [1]")
    assert "cell 1, line 3" in text and "y = pt.log(x)" in text
    assert "Traceback (most recent call last)" in text
    assert "interactiveshell.py" not in text
    again = run("%tb")
    assert "GuardError" in again.text


def test_other_errors_are_shown_as_before(run):
    result = run("1 / 0")
    assert result.shown == []
    assert "ZeroDivisionError: division by zero" in result.text


def test_guard_on_and_off(run):
    make = FunctionMaker.__init__
    assert run("%guard").text == "The guard is off.\n"
    assert "are checked for nan,inf,big." in run("%guard on").text
    run("f = pytensor.function([x], y)\ng = pytensor.function([x], y * 2, mode='FAST_RUN')")
    for call in ("f(bad)", "g(bad)"):
        assert isinstance(run(call).error_in_exec, GuardError)
    run("%guard on big")
    assert "are checked for big." in run("%guard").text
    run("h = pytensor.function([x], y * 3)")
    assert run("h(bad)").error_in_exec is None
    assert isinstance(run("h(np.array([1e300]) ** 2)").error_in_exec, GuardError)
    assert run("%guard off").text == "The guard is off.\n"
    assert FunctionMaker.__init__ is make
    run("k = pytensor.function([x], y * 4)")
    assert run("k(bad)").error_in_exec is None


def test_guard_in_one_cell(run, shell):
    make = FunctionMaker.__init__
    result = run("%%guard nan\nf = pytensor.function([x], y)\nz = 1; bad.size")
    assert result.error_in_exec is None
    assert "2" in result.text
    assert shell.user_ns["z"] == 1
    assert FunctionMaker.__init__ is make
    assert isinstance(run("f(bad)").error_in_exec, GuardError)
    result = run("%%guard\ng = pytensor.function([x], y)\n\ng(bad)")
    assert isinstance(result.error_in_exec, GuardError)
    assert len(result.shown) == 1
    # The lines are those of the cell as the user sees it.
    assert re.search(r"cell \d+, line 4\n", Page(result.shown[0]["text/html"]).text)
    assert FunctionMaker.__init__ is make


def test_a_guarded_cell_shows_other_errors_once(run):
    result = run("%%guard\n1 / 0")
    assert isinstance(result.error_in_exec, ZeroDivisionError)
    assert result.text.count("division by zero") == 1


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("%guard on foo", "'foo' is no kind of bad value"),
        ("%guard maybe", "write `%guard on`"),
        ("%guard off now", "write `%guard on`"),
        ("%step f", "write the call of a function"),
        ("%step f(", "write the call of a function"),
        ("%%guard foo\n1", "'foo' is no kind of bad value"),
    ],
)
def test_misuse_is_told(run, cell, message):
    result = run(cell)
    assert result.error_in_exec is not None
    assert message in result.text


def test_unloading_takes_everything_back(run, shell, error):
    run("%guard on")
    make = FunctionMaker.__init__
    run("%unload_ext theanoguard")
    assert FunctionMaker.__init__ is not make
    assert html_shown(shell, error) is None
    assert "UsageError" in run("%guard").text
    run("f = pytensor.function([x], y, mode='GuardMode')")
    result = run("f(bad)")
    assert result.shown == []
    assert "GuardError" in result.text


def test_loading_without_ipython_is_not_needed():
    """The package and ``inspect`` work where there is no IPython."""
    code = (
        "import sys; sys.modules.update(dict.fromkeys(('IPython', 'ipywidgets', 'traitlets')));"
        "import theanoguard, pytensor.tensor as pt;"
        "print(len(theanoguard.inspect_graph(pt.log(pt.dvector('x'))).html()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 1000


# -- widgets


@pytest.fixture
def widgets():
    return pytest.importorskip("ipywidgets", reason="ipywidgets are not installed")


@pytest.fixture
def timeline(widgets):
    return pytest.importorskip("anywidget", reason="anywidget is not installed")


def test_the_stepper_as_a_widget(timeline, run):
    from IPython.display import display
    from IPython.utils.capture import capture_output

    run("f = pytensor.function([x], pt.dot(y, y) + pt.dot(x, x), mode='CVM')")
    view = run("%step f(bad)").result
    assert [b.description for b in view.box.children[1].children] == [
        "Back",
        "Next",
        "Next bad",
        "To the end",
    ]
    assert "before the first of" in view.shown.value
    with capture_output() as shown:
        display(view)
    widget, kept = (each.data for each in shown.outputs)
    assert "application/vnd.jupyter.widget-view+json" in widget
    assert view.shown.value in kept["text/html"]
    back, following, bad, end = view.box.children[1].children
    bad.click()
    number = view.timeline.value
    assert '<span class="tg-wrong">' in view.shown.value
    assert "log" in view.shown.value.lower()
    view.timeline.value = view.timeline.max
    assert view.timeline.value == view.timeline.max > number
    assert "<td>wrote</td>" in view.shown.value
    view.timeline.value = number
    assert '<span class="tg-wrong">' in view.shown.value
    assert "<svg" in view.shown.value
    following.click()
    assert view.timeline.value == number + 1
    back.click()
    assert view.timeline.value == number
    end.click()
    assert "The call is complete: nan" in view.shown.value
    assert Page(view.shown.value).tags.count("script") == 0


def test_the_stepper_runs_nothing_before_it_is_asked_to(timeline, run, shell):
    run("w = pytensor.shared(0.0, name='<b>w</b>')")
    run("f = pytensor.function([x], x.sum(), updates={w: w + x.sum()}, mode='CVM')")
    view = run("%step f(np.array([1.0, 2.0]))").result
    value = shell.user_ns["w"].get_value
    assert value() == 0.0
    view.timeline.value = view.timeline.max
    assert value() == 0.0
    assert "<b>w</b>" not in view.shown.value
    assert "&lt;b&gt;w&lt;/b&gt;" in view.shown.value
    view.box.children[1].children[3].click()
    assert value() == 3.0


def test_next_bad_without_a_bad_value_does_not_complete_the_call(timeline, run, shell):
    run("w = pytensor.shared(0.0, name='w')")
    run("f = pytensor.function([x], x.sum(), updates={w: w + x.sum()}, mode='CVM')")
    view = run("%step f(np.array([1.0, 2.0]))").result
    view.box.children[1].children[2].click()
    assert "No later step has a bad value." in view.shown.value
    assert shell.user_ns["w"].get_value() == 0.0
    view.box.children[1].children[0].click()
    assert "No later step" not in view.shown.value


def test_the_stepper_breaks_no_number_and_counts_what_no_bar_shows(timeline, run):
    run("f = pytensor.function([x], x * 2, mode='CVM')")
    view = run("%step f(np.array([0.37622345, np.nan, 1.0, np.inf]))").result
    view.timeline.value = 1
    assert "white-space: nowrap" in view.timeline._css
    assert "not shown: 1 NaN, 1 Inf" in view.shown.value
    assert histogram(np.array([np.nan, np.nan])) == "<small>2 NaN</small>"


def test_each_operand_has_one_line_with_type_range_and_count(timeline, run):
    run("f = pytensor.function([x], x * 2, mode='CVM')")
    view = run("%step f(np.array([0.25, np.nan, 1.0, np.inf]))").result
    view.timeline.value = 1
    rows = re.findall(r"<tr>(.*?)</tr>", view.shown.value)
    read = next(row for row in rows if "<i>x</i>" in row)
    cells = [re.sub(r"<[^>]+>", "", cell) for cell in re.findall(r"<td>(.*?)</td>", read)]
    assert cells[:4] == ["read", "x", "1 NaN, 1 Inf", "0.25 to 1"]
    assert cells[5] == "float64 (4,)"
    assert len(rows) == 1 + len(view.stepper.node.inputs) + len(view.stepper.node.outputs)


def test_the_timeline_marks_bad_steps(timeline, run):
    run("f = pytensor.function([x], pt.cumsum(pt.log(pt.cumsum(x))), mode='CVM')")
    view = run("%step f(np.array([1.0, -1.0]))").result
    assert (view.timeline.value, view.timeline.max, view.timeline.bad) == (0, 3, [])
    view.timeline.value = 3
    assert (view.timeline.run, view.timeline.bad) == (3, [2, 3])
    view.timeline.value = 1
    assert (view.timeline.run, view.timeline.bad) == (3, [2, 3])
    assert "step 1," in repr(view)


def luminance(color):
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return sum(w * p for w, p in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("night", [0, 1])
def test_steps_that_ran_and_bad_steps_differ_in_luminance(night):
    colors = re.findall(r"--tg-(\w+): light-dark\((#\w+), (#\w+)\)", page.STYLE)
    color = {name: both[night] for name, *both in colors}
    share = int(re.search(r"tg-run .*--tg-blue\) (\d+)%, var\(--tg-back", STYLE)[1]) / 100
    channels = [
        (int(color["blue"][i : i + 2], 16), int(color["back"][i : i + 2], 16)) for i in (1, 3, 5)
    ]
    run = "#" + "".join(f"{round(share * a + (1 - share) * b):02x}" for a, b in channels)
    light, dark = sorted((luminance(run), luminance(color["red"])), reverse=True)
    assert (light + 0.05) / (dark + 0.05) >= 3


def test_two_equal_trees_have_ids_of_their_own():
    shown = inspect_graph(pt.log(pt.dvector("x")))
    ids = re.findall(r'id="(tg-\w+)"', shown.html() + shown.html() + shown.picture().html())
    assert len(set(ids)) == len(ids) == 3


def test_the_stepper_shows_the_source(timeline, run):
    run("%guard on\na = pt.dvector('a')\nb = pt.log(a)\nf = pytensor.function([a], b)")
    view = run("%step f(np.array([1.0, -1.0]))").result
    view.timeline.value = 1
    run("%guard off")
    assert re.search(r"<b>-> +3  b = pt.log\(a\)</b>", view.shown.value)


def test_the_stepper_shows_what_a_node_raises(timeline, run):
    run("a = pt.dvector('a')\nf = pytensor.function([x, a], x + a, mode='CVM')")
    view = run("%step f(bad, np.ones(3))").result
    view.timeline.value = 1
    assert '<pre class="tg-wrong">ValueError:' in view.shown.value


# -- the plot of a watch


@pytest.fixture
def training():
    """A watch, and a step of a training whose weights grow with each."""
    w = pytensor.shared(np.array([1.0, -1.0]), name="<w>")
    x = pt.dscalar("x")
    watch = theanoguard.training.Watch([w], batches_per_epoch=3)
    (g,) = watch.gradients([pytensor.grad((x * w).sum(), w)])
    f = pytensor.function([x], updates={w: w * 2.0 + g}, mode="CVM")

    def step(value=1.0):
        with watch.step():
            f(value)

    return watch, step


def test_a_watch_is_a_plot(shell, training):
    watch, step = training
    assert "Norms of weights: nothing yet." in html_shown(shell, watch)
    for _ in range(4):
        step()
    found = Page(html_shown(shell, watch))
    assert found.tags.count("polyline") == 2
    assert found.tags.count("line") == 2  # (of the legend)
    assert found.tags.count("rect") == 2 * 4
    assert "step 4\n<w>: 31.02" in found.text
    step(np.nan)
    found = Page(html_shown(shell, watch))
    assert found.tags.count("line") == 2 + 2 * len(watch.events) > 2
    assert "<w> (bad)" in found.text
    assert "nan in <w>, epoch 2, batch 2" in found.text
    # The lines break where there is no norm.
    assert found.tags.count("polyline") == 2


def test_a_record_is_a_plot_with_what_is_bad_first(shell):
    w, v = (pytensor.shared(np.full(3, n), name=name) for name, n in (("W", 1.0), ("V", 9.0)))
    f = pytensor.function(
        [x := pt.dvector("x")],
        updates={w: w * x, v: v * 0.99},
        mode=GuardMode(history=True, action="record"),
    )
    recording = recording_of(f)
    for step in range(40):
        f(np.full(3, 1e5 if step == 36 else 1.0))
    f(np.full(3, np.nan))
    found = Page(html_shown(shell, recording))
    assert "Since call 37: the input x reaches" in found.text
    assert found.text.index("W (bad)") < found.text.index("V")
    assert "step 36\nW: 1.732\nV: 10.86" in found.text


def test_the_colors_of_lines_differ_in_luminance():
    from theanoguard.notebook.plotting import COLORS

    def luminance(color):
        parts = np.array([int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)])
        return np.where(parts > 0.04, ((parts + 0.055) / 1.055) ** 2.4, parts / 12.92) @ WEIGHTS

    WEIGHTS = [0.2126, 0.7152, 0.0722]
    found = [luminance(color) + 0.05 for color in COLORS]
    assert min(b / a for a, b in zip(found, found[1:], strict=False)) > 1.3


def test_the_plot_follows_the_training(widgets, shell, training):
    from theanoguard.notebook.plotting import WatchPlot

    watch, step = training
    plot = WatchPlot(watch, seconds=0.01)
    step()
    step()
    end = time.monotonic() + 60
    while "<polyline" not in plot.shown.value and time.monotonic() < end:
        time.sleep(0.01)
    plot.stop()
    drawn = plot.shown.value
    assert "<polyline" in drawn
    step()
    assert plot.shown.value == drawn


def test_the_magic_shows_the_plot_at_once(widgets, run, shell, training):
    shell.user_ns["watched"] = training[0]
    result = run("%watch watched\nprint('then')")
    assert ["application/vnd.jupyter.widget-view+json" in data for data in result.shown] == [True]
    assert "write the name of a theanoguard.training.Watch" in run("%watch x").text


# -- notebooks


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_example_notebooks_run(path, tmp_path):
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed")
    pytest.importorskip("graphviz_anywidget", reason="graphviz-anywidget is not installed")
    nbformat = pytest.importorskip("nbformat")
    notebook = nbformat.read(path, as_version=4)
    assert all(not cell.outputs for cell in notebook.cells if cell.cell_type == "code")
    here = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=600, resources=here).execute()
    nbformat.validate(notebook)
    shown = [o for c in notebook.cells if c.cell_type == "code" for o in c.outputs]
    assert any("text/html" in output.get("data", {}) for output in shown)


def test_a_failed_cell_keeps_its_report(tmp_path):
    """Also where a program runs the notebook, which shows only the reply of the kernel."""
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed")
    nbformat = pytest.importorskip("nbformat")
    lines = [
        "%load_ext theanoguard",
        "import pytensor, pytensor.tensor as pt, theanoguard",
        "x = pt.dvector('x')",
        "f = pytensor.function([x], pt.log(x), mode=theanoguard.GuardMode())",
        "f([-1.0])",
    ]
    cell = nbformat.v4.new_code_cell("\n".join(lines))
    notebook = nbformat.v4.new_notebook(cells=[cell])
    here = {"metadata": {"path": str(tmp_path)}}
    client = nbclient.NotebookClient(notebook, timeout=600, resources=here, kernel_name="python3")
    with pytest.raises(nbclient.exceptions.CellExecutionError) as caught:
        client.execute()
    assert "NaN in" in str(caught.value)
    html = [output.get("data", {}).get("text/html", "") for output in cell.outputs]
    [shown] = [Page(each).text for each in html if "NaN in" in each]
    assert "cell 1, line 5\n    f([-1.0])" in shown  # (of the traceback)
    assert "ipykernel_" not in shown


def test_there_are_example_notebooks():
    assert NOTEBOOKS


@pytest.mark.parametrize(
    ("theme", "scheme"),
    [
        ('[data-jp-theme-light="false"]', "dark"),
        ('[data-jp-theme-light="true"]', "light"),
        (".vscode-dark", "dark"),
        (".vscode-light", "light"),
        (".vscode-high-contrast", "dark"),
        (".vscode-high-contrast-light", "light"),
    ],
)
def test_the_editor_chooses_the_colors(theme, scheme):
    rules = re.findall(r"body:is\((.*?)\) :is\(.*?\) \{(.*?)\}", page.STYLE, re.DOTALL)
    of_theme = "".join(body for themes, body in rules if theme in themes.split(", "))
    assert f"color-scheme: {scheme};" in of_theme
    if theme.startswith(".vscode"):
        assert "--tg-text: var(--vscode-editor-foreground)" in of_theme
        assert "--tg-back: var(--vscode-editor-background)" in of_theme
    # A selected row is more than a shade of the background.
    assert ("--tg-marked" in of_theme) == ("high-contrast" in theme)


def test_the_system_chooses_every_color_where_it_forces_colors():
    names = set(re.findall(r"--tg-(\w+): light-dark", page.STYLE))
    forced = page.STYLE.partition("@media (forced-colors: active)")[2].partition("\n}")[0]
    given = dict(re.findall(r"--tg-(\w+): (\w+)", forced))
    assert names <= set(given)
    assert {given[name] for name in names} <= {"Canvas", "CanvasText", "LinkText"}
