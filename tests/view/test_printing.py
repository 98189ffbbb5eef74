"""Graphs as text, as pictures and as tables."""

import io
import re
import shutil
import subprocess
import sys
import warnings
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytensor
import pytensor.printing
import pytensor.tensor as pt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytensor import config
from pytensor.compile.debug.profiling import ProfileStats

import theanoguard
from theanoguard import GuardMode, debugprint, inspect_graph
from theanoguard import events_of as guard_events
from theanoguard._provenance import TRACK_PROVENANCE, SourceLine
from theanoguard.view.debugprint import source_text
from theanoguard.view.model import graph_model
from theanoguard.view.pictures import GraphvizError

pytestmark = pytest.mark.on_33

MODE = pytensor.compile.mode.get_mode("CVM").register(TRACK_PROVENANCE)

needs_dot = pytest.mark.skipif(
    shutil.which("dot") is None, reason="Graphviz' program `dot` is not installed"
)


def small_graph():
    x = pt.vector("x", dtype="float64")
    y = pt.exp(x)
    y.name = "y"
    z = pt.log(y / y.sum())
    return x, y, z


@pytest.fixture(scope="module")
def trained():
    x = pt.matrix("x", dtype="float64")
    w = pytensor.shared(np.ones((3, 2)), name="w")
    cost = pt.log(1 + pt.exp(pt.dot(x, w))).mean()
    cost.name = "cost"
    update = [(w, w - pt.grad(cost, w))]
    with warnings.catch_warnings(), config.change_flags(profile=True, profile_memory=True):
        warnings.filterwarnings("ignore", message="CVM does not support memory profiling")
        f = pytensor.function(
            [x], cost, updates=update, mode=MODE, profile=ProfileStats(atexit_print=False)
        )
        f(np.ones((40, 3)))
        f(np.ones((50, 3)))
    return f


# --------------------------------------------------------------------------------------
# debugprint


@pytest.mark.parametrize(
    "kwargs",
    [
        {},
        {"depth": 2},
        {"print_type": True},
        {"print_shape": True},
        {"id_type": "int"},
        {"id_type": ""},
        {"stop_on_name": True},
        {"print_storage": True},
        {"print_destroy_map": True, "print_view_map": True},
        {"print_memory_map": True},
        {"print_fgraph_inputs": True},
        {"print_op_info": True},
    ],
    ids=str,
)
def test_plain_call_prints_what_pytensor_prints(trained, kwargs):
    _, _, z = small_graph()
    for graph in (z, z.owner, [z, z.sum()], trained, trained.maker.fgraph):
        if kwargs.get("print_storage") and graph is not trained:
            continue
        expected = pytensor.printing.debugprint(graph, file="str", **kwargs)
        assert debugprint(graph, file="str", **kwargs) == expected


def test_theanos_arguments():
    _, y, z = small_graph()
    expected = pytensor.printing.debugprint(z, file="str", id_type="int")
    assert debugprint(obj=z, file="str", ids="int") == expected
    used_ids = {}
    debugprint(z, file="str", used_ids=used_ids)
    assert used_ids[z.owner] == "[id A]"
    lines = debugprint(z, file="str", print_clients=True).splitlines()
    (shared,) = [line for line in lines if " 'y'" in line and "[id C]" in line][:1]
    assert shared.endswith("| clients:Sum{axes=None}[0], True_div[0]")


def test_prints_to_a_file_and_to_the_terminal(capsys):
    _, _, z = small_graph()
    out = io.StringIO()
    assert debugprint(z, file=out) is out
    debugprint(z)
    assert capsys.readouterr().out == out.getvalue() != ""
    out = io.StringIO()
    assert debugprint(z, file=out, print_source=True) is out
    debugprint(z, print_source=True)
    assert capsys.readouterr().out == out.getvalue() != ""


def test_a_terminal_that_is_not_in_utf_8(monkeypatch):
    x = pt.dvector("größe\u2192")
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="latin-1"))
    debugprint(pt.log(x), events={x: "here"})
    sys.stdout.flush()
    lines = written.getvalue().decode("latin-1").splitlines()
    assert lines[1].startswith(" `- größe\\u2192")


def test_columns_add_nothing_but_columns(trained):
    plain = debugprint(trained, file="str").splitlines()
    shown = debugprint(
        trained, file="str", print_source=True, print_rewrites=True, print_clients=True
    ).splitlines()
    assert [line.split("  | ")[0].rstrip() for line in shown] == plain


def test_source_and_rewrites(trained):
    text = debugprint(trained, file="str", print_source=True, print_rewrites=True)
    (dot,) = [line for line in text.splitlines() if "Dot22 [" in line][:1]
    assert "cost = pt.log(1 + pt.exp(pt.dot(x, w))).mean()" in dot
    assert "from Dot by local_dot_to_dot22" in dot
    inner = text[text.index("Inner graphs:") :]
    assert "test_printing.py" in inner
    assert ": gradient of cost through" in text


@pytest.mark.parametrize("columns", [{}, {"print_source": True}], ids=["plain", "columns"])
def test_inner_graphs_can_be_left_out(trained, columns):
    whole, alone = (
        debugprint(trained, file="str", print_inner_graphs=inner, **columns)
        for inner in (True, False)
    )
    # (the columns are beside the widest line)
    whole, alone = ([x.split("  | ")[0].rstrip() for x in t.splitlines()] for t in (whole, alone))
    assert [*alone, "", "Inner graphs:"] == whole[: len(alone) + 2]


def test_values_times_and_events():
    x, y, z = small_graph()
    text = debugprint(
        z,
        file="str",
        values={x: [1.0, 3.0], y: [np.inf, 1.0, np.nan]},
        times={z.owner: 0.25},
        events={y: "overflow", z.owner: ["first", "second"]},
    )
    lines = text.splitlines()
    # The marks come first, and the columns stand below each other.
    assert re.fullmatch(r"Log \[id A\] +\| <<< first  <<< second  time=0.25s", lines[0])
    assert re.search(r"'y' +\| <<< overflow  min=1 max=1 mean=1 bad=2", lines[2])
    assert re.search(r"x \[id D\] +\| min=1 max=3 mean=2 bad=0", text)
    assert len({line.index("  | ") for line in lines if "  | " in line}) == 1


def test_long_places_and_lines_are_cut():
    x = pt.dvector("x")
    y = pt.log(x)
    folder = "/home/somebody/miniconda/envs/project/lib/python3.12/site-packages/net"
    line = SourceLine(f"{folder}/layers.py", 5, "dense", "y = " + " + ".join(["pt.log(x)"] * 30))
    text = source_text(line)
    assert text.startswith(".../net/layers.py:5 in dense: y = pt.log(x) + ")
    assert len(text) < 90
    # An operation with a long name does not push the other columns away.
    x.name = "x" * 200
    lines = debugprint(y, file="str", events={y: "bad", x: "bad"}).splitlines()
    assert lines[0] == "Log [id A]  | <<< bad"


@pytest.fixture(scope="module")
def tripped():
    """A function, its events, and the operation that they are of."""
    x, w = pt.dvector("x"), pytensor.shared(np.ones(2), name="w")
    mode = GuardMode(action="record")
    f = pytensor.function([x], pt.cumsum(pt.log(x)) * w, mode=mode)
    f(np.array([1.0, -1.0]))
    w.set_value(np.array([np.inf, 1.0]))
    f(np.array([1.0, 2.0]))
    return f


def test_events_of_a_guard_mark_what_they_name(tripped):
    found = guard_events(tripped)
    text = debugprint(tripped, file="str", events=found)
    [log] = [line for line in text.splitlines() if "Log" in line]
    assert log.endswith("| <<< nan at [1] in call 1")
    [w] = [line for line in text.splitlines() if " w " in line]
    assert w.endswith("<<< inf at [0] in call 2")
    assert debugprint(tripped, file="str", events=found[0]).count("<<<") == 1


def test_the_way_to_an_event_is_red(tripped):
    model = graph_model(tripped, with_provenance=False)
    text = picture(tripped, events=guard_events(tripped)[0])
    red = {model.nodes[k].op for k in re.findall(r'(?m)^  "(a\d+)" \[.*color="red"', text)}
    assert red == {"Log"}


def test_an_event_in_a_loop_marks_the_loop():
    x = pt.dvector("x")
    states = pytensor.scan(
        lambda v, s: s + pt.log(v),
        sequences=[x],
        outputs_info=[pt.constant(0.0, dtype="float64")],
        return_updates=False,
    )
    mode = GuardMode(action="record").excluding("scan_pushout")
    f = pytensor.function([x], states, mode=mode)
    f(np.array([1.0, 0.0]))
    [event] = guard_events(f)
    text = debugprint(f, file="str", events=event)
    marked = [line for line in text.splitlines() if "<<<" in line]
    assert marked  # (its inner graph has the same line above it)
    assert all("Scan" in line and line.endswith("<<< inf in call 1, step 1") for line in marked)


def test_the_graph_as_written():
    x, w = pt.dmatrix("x"), pytensor.shared(np.zeros((2, 3)), name="w")
    scores = x @ w
    shares = pt.exp(scores) / pt.exp(scores).sum(axis=1, keepdims=True)
    loss = -pt.log(shares - 0.5).mean()
    updates = {w: w - 0.1 * pt.grad(loss, w)}
    fn = pytensor.function([x], loss, updates=updates, mode=GuardMode(action="record"))
    fn(np.ones((4, 2)))
    text = debugprint(fn, file="str", as_written=True, events=guard_events(fn))
    rows = [line.partition(" [id")[0].strip(" │├└─") for line in text.splitlines()]
    assert "Composite" not in "".join(rows)
    assert rows[0] == "loss = -log(shares - 0.5).mean()"
    assert rows.count("exp(scores).sum(axis=1, keepdims=True)") == 1
    assert {"log(shares - 0.5)", "shares - 0.5", "scores = x @ w", "x", "w"} <= {*rows}
    [marked] = [line for line in text.splitlines() if "<<<" in line]
    assert "log(shares - 0.5) [id" in marked and "test_printing.py:" in marked
    assert "compiled: Composite{log(" in marked
    assert "Composite" not in guard_events(fn)[0].title
    assert repr(inspect_graph(fn)).splitlines()[0] == text.splitlines()[0]
    first = debugprint(fn, file="str", as_written=True, depth=1).splitlines()
    updated = "w <- w - 0.1 * grad(loss, w)"
    assert [line.partition(" [id")[0] for line in first] == [rows[0], updated]


@pytest.mark.parametrize("graph", [pt.log(pt.dvector()), pt.dvector("x")], ids=str)
def test_a_graph_that_nobody_recorded_is_not_known_as_written(graph):
    with pytest.raises(ValueError, match="as you wrote it is not known"):
        debugprint(graph, as_written=True)


def test_identifiers_can_be_left_out_with_columns():
    x, _, z = small_graph()
    text = debugprint(z, file="str", id_type="", values={x: [1.0]})
    assert "[id" not in text
    assert "└─ x  | min=1 max=1 mean=1 bad=0" in text


def test_outputs_of_one_node_are_told_apart():
    x = pt.vector("x", dtype="float64")
    a, b = pt.split(x, [1, 2], n_splits=2)
    text = debugprint([a, b], file="str", values={a: [1.0], b: [5.0]})
    assert re.search(r"Split.*\.0 \[id A\]  \| min=1 ", text)
    assert re.search(r"Split.*\.1 \[id A\]  \| min=5 ", text)


def test_wrong_calls_are_named():
    _, _, z = small_graph()
    with pytest.raises(TypeError, match="nothing to print"):
        debugprint()
    with pytest.raises(ValueError, match="cannot add columns to a rich tree"):
        debugprint(z, file="rich", print_source=True)


def test_golden_text(golden):
    x, y, z = small_graph()
    text = debugprint(
        z,
        file="str",
        print_source=True,
        print_clients=True,
        values={x: [1.0, 710.0], y: [np.exp(1.0), np.inf]},
        events={z: "NaN at (1,)"},
    )
    golden("debugprint", re.sub(r"\.py:\d+ in", ".py:LINE in", text))


def test_pp_and_min_informative_str():
    x, y, z = small_graph()
    assert theanoguard.view.pp(y + x) == pytensor.printing.pp(y + x) == "(Exp(x) + x)"
    assert (
        theanoguard.view.min_informative_str(z)
        == "A. Log\n B. True_div\n  C. y\n  D. ExpandDims{axis=0}\n   E. Sum{axes=None}\n    <C>"
    )


# --------------------------------------------------------------------------------------
# Pictures


def picture(graph, format="dot", **kwargs):
    return theanoguard.view.pydotprint(graph, format=format, return_image=True, **kwargs).decode()


def dot_lines(graph, **kwargs):
    return picture(graph, **kwargs).splitlines()


def test_picture_shows_nodes_variables_and_edges():
    x, y, z = small_graph()
    text = picture(z)
    model = graph_model(z, with_provenance=False)
    for node in model.nodes.values():
        assert f'"{node.key}" [label="{node.op}", shape="ellipse"' in text
    key = {v.name: v.key for v in model.variables.values() if v.name}
    (exp,) = (n.key for n in model.nodes.values() if n.op == "Exp")
    assert f'  "{key["x"]}" -> "{exp}";' in text
    assert f'  "{exp}" -> "{key["y"]}";' in text
    assert "name=y Vector(float64, shape=(?,))" in text
    assert 'fillcolor="green"' in text and 'fillcolor="lightblue"' in text


def test_compact_leaves_out_what_has_no_name():
    *_, z = small_graph()
    compact, full = (len(dot_lines(z, compact=c)) for c in (True, False))
    assert full > compact


def test_no_ifelse_of_the_name(caplog):
    *_, z = small_graph()
    picture(z, cond_highlight="which")
    assert [r.getMessage() for r in caplog.records] == [
        "pydotprint: cond_highlight is set but there is no IfElse node in the graph"
    ]


def test_options_of_the_labels():
    *_, z = small_graph()
    assert 'label="y"' in picture(z, var_with_name_simple=True)
    assert 'label="Log id=4"' in picture(z, with_ids=True)
    labels = re.findall(r'label="([^"]*)"', picture(z, max_label_size=10))
    assert max(map(len, labels)) == 10
    assert "fillcolor" not in picture(z, high_contrast=False)
    assert 'fillcolor="pink"' in picture(z, colorCodes={"Elemwise": "pink"})
    theanoguard.view.pydotprint(z, format="dot", return_image=True, assert_nb_all_strings=8)
    with pytest.raises(AssertionError, match="different labels, not 3"):
        theanoguard.view.pydotprint(z, format="dot", return_image=True, assert_nb_all_strings=3)


def test_updates_and_destroyed_inputs(trained):
    text = picture(trained)
    assert 'label="UPDATE"' in text
    assert re.search(r'-> "a\d+" \[label="0", color="red"\]', text)
    assert 'fillcolor="cyan"' in text


def test_branches_of_an_ifelse():
    module = "pytensor.conditional.op" if hasattr(pytensor, "conditional") else "pytensor.ifelse"
    ifelse = pytest.importorskip(module).ifelse
    c = pt.iscalar("c")
    x = pt.vector("x")
    both = pt.exp(x)
    z = ifelse(c, pt.sin(both), pt.cos(both), name="choice")
    text = picture(z, cond_highlight="choice")
    key = {n.op: n.key for n in graph_model(z, with_provenance=False).nodes.values()}
    assert f'"cluster_Left" {{ label="Left"; "{key["Sin"]}"; }}' in text
    assert f'"cluster_Right" {{ label="Right"; "{key["Cos"]}"; }}' in text
    assert f'"cluster_Middle" {{ label="Middle"; "{key["Exp"]}"; }}' in text
    assert "cluster" not in picture(z, cond_highlight="another")


def test_way_to_what_is_marked_is_red():
    x = pt.vector("x")
    bad = pt.log(x)
    good = pt.sin(x)
    out = bad + good
    text = picture(out, events={bad: "NaN here"})
    model = graph_model(out, with_provenance=False)
    red = {model.nodes[k].op for k in re.findall(r'(?m)^  "(a\d+)" \[.*color="red"', text)}
    assert red == {"Log"}
    assert picture(out, highlight=bad.owner).count('"red"') == 3


@needs_dot
@pytest.mark.parametrize(
    "format, start", [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")]
)
def test_real_pictures(trained, tmp_path, capsys, format, start):
    path = tmp_path / "graph"
    assert theanoguard.view.pydotprint(trained, outfile=path, format=format) is None
    written = tmp_path / f"graph.{format}"
    assert written.read_bytes().startswith(start)
    assert [p.name for p in tmp_path.iterdir()] == [written.name]
    assert str(written) in capsys.readouterr().out
    theanoguard.view.pydotprint(trained, outfile=written, format=format, print_output_file=False)
    assert capsys.readouterr().out == ""


@needs_dot
@given(st.text(min_size=1, max_size=30))
def test_any_name_is_shown_as_it_is(name):
    x = pt.vector("x")
    x.name = name
    svg = picture(pt.exp(x), format="svg", var_with_name_simple=True, max_label_size=200)
    texts = [e.text or "" for e in ElementTree.fromstring(svg).iter() if e.tag.endswith("}text")]
    printable = "".join(
        c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in name
    )
    shown = "".join(texts).replace("\N{NO-BREAK SPACE}", " ")
    for line in printable.split("\n"):
        assert line.replace("\N{NO-BREAK SPACE}", " ") in shown


@needs_dot
def test_pictures_of_scans(tmp_path):
    x = pt.vector("x")
    y = pytensor.scan(lambda v: pt.exp(v), sequences=[x], return_updates=False, name="loop")
    theanoguard.view.pydotprint(y, outfile=tmp_path / "g.svg", format="svg", scan_graphs=True)
    (inner,) = (p for p in tmp_path.iterdir() if p.name != "g.svg")
    assert inner.name.startswith("g_loop_")
    assert "Exp" in inner.read_text()


def test_missing_dot_is_named(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    *_, z = small_graph()
    with pytest.raises(GraphvizError, match="apt-get install graphviz"):
        theanoguard.view.pydotprint(z, return_image=True)


@needs_dot
def test_unknown_format_is_named(tmp_path):
    *_, z = small_graph()
    with pytest.raises(GraphvizError, match='knows the format "nonsense"'):
        theanoguard.view.pydotprint(z, outfile=tmp_path / "g", format="nonsense")
    assert list(tmp_path.iterdir()) == []


# --------------------------------------------------------------------------------------
# Time and memory


def test_profile_in_descending_order(trained):
    found = theanoguard.view.profile_nodes(trained)
    assert found.calls == 2
    assert {row.node for row in found.rows} == set(trained.maker.fgraph.apply_nodes)
    seconds = [row.seconds for row in found.by_time()]
    assert seconds == sorted(seconds, reverse=True)
    assert sum(row.percent for row in found.rows) == pytest.approx(100)
    memory = [row.bytes for row in found.by_memory()]
    assert memory == sorted(memory, reverse=True)
    (dot,) = [row for row in found.rows if row.op == "Dot22"]
    assert dot.bytes == 50 * 2 * 8
    assert dot.calls == 2 and dot.seconds_per_call == dot.seconds / 2
    assert dot.source.text == "cost = pt.log(1 + pt.exp(pt.dot(x, w))).mean()"
    (gemm,) = [row for row in found.rows if row.op.startswith("Gemm")]
    assert gemm.bytes == 0


def test_profile_as_text(trained):
    text = str(theanoguard.view.profile_nodes(trained))
    assert text.startswith("function: 2 calls, ")
    assert "Apply table" in text and "Memory table" in text
    assert re.search(r"(?m)^ +800 +\d+  Dot22 ", text)


def test_a_profile_has_the_users_expressions_and_places():
    x, w = pt.dmatrix("x"), pytensor.shared(np.ones((2, 2)), name="w")
    loss = pt.log(pt.exp(x.dot(w)).sum(axis=1)).max()
    mode = GuardMode(optimizer=None)
    f = pytensor.function([x], loss, mode=mode, profile=ProfileStats(atexit_print=False))
    f(np.ones((3, 2)))
    found = theanoguard.view.profile_nodes(f)
    names = {row.op.partition("{")[0].lower(): row.name for row in found.rows}
    assert (names["max"], names["sum"]) == (
        "loss = log(exp(x.dot(w)).sum(axis=1)).max()",
        "exp(x.dot(w)).sum(axis=1)",
    )
    assert names["log"] == f"log({names['sum']})"
    text = str(found)
    assert " (w)" not in text and "loss = pt" not in text


def test_a_memory_table_counts_the_nodes_of_unknown_size():
    x = pt.vector("x", dtype="float64")
    mode = pytensor.compile.mode.Mode("vm", "fast_compile")
    found = profiled(x, pt.cumsum(x).max(), mode)
    assert {row.bytes for row in found.rows} == {None, 8}
    assert " 1 of 2 nodes; the other sizes are not known" in str(found)


def test_a_long_line_is_cut_around_what_made_the_node():
    # fmt: off
    first, p = 5, pt.dvector("p"); second = pt.exp(p) * 2; bad = pt.log(second - first)  # noqa: E702
    # fmt: on
    text = debugprint(bad, file="str", print_source=True)
    assert "pt.log(second - first)" in text.splitlines()[0]


def test_profile_needs_a_profile():
    x = pt.vector("x")
    f = pytensor.function([x], pt.sort(x), mode="FAST_COMPILE")
    with pytest.raises(ValueError, match="not compiled for profiling"):
        theanoguard.view.profile_nodes(f)


def profiled(x, y, mode):
    f = pytensor.function([x], y, mode=mode, profile=ProfileStats(atexit_print=False))
    f([1.0, 2.0])
    return theanoguard.view.profile_nodes(f)


def test_profile_without_memory_says_how_to_get_it():
    x = pt.vector("x", dtype="float64")
    found = profiled(x, pt.sort(x), "FAST_COMPILE")
    assert found.by_memory() == ()
    assert "set pytensor.config.profile and profile_memory" in str(found)


@pytest.mark.parametrize("static, allow_gc", [(2, True), (None, False)])
def test_memory_that_is_known_anyway(static, allow_gc):
    x = pt.tensor("x", dtype="float64", shape=(static,))
    mode = pytensor.compile.mode.Mode("vm" if allow_gc else "vm_nogc", "fast_compile")
    found = profiled(x, pt.cumsum(pt.sort(x)), mode)
    assert {row.op[:4]: row.bytes for row in found.rows} == {"Sort": 16, "Cums": 16}


def test_doctest_of_the_module_needs_no_graphviz():
    code = (
        "import theanoguard.view.pictures, sys; print(sorted({'pydot', 'rich'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_profile_of_scalars():
    """Indices and lengths are scalars of another type, whose size PyTensor gives as a tuple."""
    x, i = pt.dvector("x"), pt.iscalar("i")
    f = pytensor.function(
        [x, i], x[: i + 1].sum(), mode="CVM", profile=ProfileStats(atexit_print=False)
    )
    f([1.0, 2.0], 1)
    rows = theanoguard.view.profile_nodes(f).rows
    assert {row.bytes for row in rows} <= {0, 4, 8, None} and "ScalarFromTensor" in str(rows)


def test_profile_of_the_gradient_of_a_bias():
    """The gradient of a bias is a sum over rows whose lengths are scalars."""
    x = pt.dmatrix("x")
    w, b = pytensor.shared(np.ones((3, 2)), name="w"), pytensor.shared(np.zeros(2), name="b")
    cost = ((pt.dot(x, w) + b) ** 2).mean()
    updates = {p: p - 0.1 * g for p, g in zip([w, b], pytensor.grad(cost, [w, b]), strict=True)}
    with warnings.catch_warnings(), config.change_flags(profile=True, profile_memory=True):
        warnings.simplefilter("ignore")
        profile = ProfileStats(atexit_print=False)
        f = pytensor.function([x], cost, updates=updates, mode="CVM", profile=profile)
        f(np.ones((4, 3)))
    found = theanoguard.view.profile_nodes(f)
    assert {row.node for row in found.rows} == set(f.maker.fgraph.apply_nodes)
    sums = [row for row in found.rows if row.op.startswith("Sum") and row.bytes == 2 * 8]
    assert sums and "Memory table" in str(found)
