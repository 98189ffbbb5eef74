"""The picture of a graph: what it shows, and where everything stands."""

import base64
import gc
import json
import re
import zlib
from itertools import combinations
from xml.etree import ElementTree

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from guarding import guarded
from hypothesis import given, settings
from hypothesis import strategies as st
from pytensor.compile.mode import Mode
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.traversal import graph_inputs

from theanoguard import GuardError, GuardMode, inspect_graph, track_provenance
from theanoguard.view.inspecting.groups import MOST, Group, grouped
from theanoguard.view.inspecting.layout import layers_of, place
from theanoguard.view.inspecting.picture import Drawing
from theanoguard.view.model import graph_model

SVG = "{http://www.w3.org/2000/svg}"


def parsed(svg):
    """A drawing as XML, which has to be well formed."""
    if not svg.startswith("<svg"):
        svg = f'<svg xmlns="http://www.w3.org/2000/svg">{svg}</svg>'
    return ElementTree.fromstring(svg)


def with_class(drawing, name):
    return [e for e in parsed(drawing).iter() if name in e.get("class", "").split()]


def boxes(drawing, *names):
    """The boxes that have all these classes, each as its lines."""
    found = [e for e in with_class(drawing, "tg-box") if e.find(f"{SVG}text") is not None]
    found = [e for e in found if set(names) <= set(e.get("class").split())]
    return [tuple(text.text for text in e.findall(f"{SVG}text")) for e in found]


def hints(drawing, name):
    return [e.find(f"{SVG}title").text for e in with_class(drawing, name)]


def dense(x, n):
    w, b = pytensor.shared(np.eye(2), name=f"W{n}"), pytensor.shared(np.zeros(2), name=f"b{n}")
    return pt.tanh(pt.dot(x, w) + b)


def score(h):
    loss = pt.log(h.sum() - 9)
    loss.name = "loss"
    return loss


@pytest.fixture(scope="module")
def net():
    """A loss of three calls of the user's functions."""
    with track_provenance():
        h = dense(pt.dmatrix("x"), 1)
        h = dense(h, 2)
        return score(h)


@pytest.fixture(scope="module")
def large():
    """A graph of more nodes than are drawn at a time."""
    with track_provenance():
        h = pt.dmatrix("x")
        for n in range(40):
            h = dense(h, n)
        return score(h)


# -- where boxes stand


@st.composite
def graphs(draw):
    """Sizes of boxes, edges from earlier to later ones, and boxes in frames in frames."""
    count = draw(st.integers(1, 12))
    sizes = {i: (draw(st.integers(10, 200)), draw(st.integers(10, 60))) for i in range(count)}
    pairs = list(combinations(range(count), 2))
    edges = draw(st.lists(st.sampled_from(pairs), max_size=20)) if pairs else []
    tree = [(i, None) for i in sizes]
    for name in "abcd"[: draw(st.integers(0, 4))]:
        chosen = draw(st.sets(st.sampled_from(range(len(tree))), min_size=1))
        inside = [item for i, item in enumerate(tree) if i in chosen]
        tree = [item for i, item in enumerate(tree) if i not in chosen] + [(name, inside)]
    return sizes, edges, tree


def inside_of(tree):
    """The boxes and frames in each frame."""
    found = {}
    for key, within in tree:
        if within is not None:
            deeper = inside_of(within)
            found |= deeper | {key: {k for k, _ in within}.union(*deeper.values())}
    return found


def meet(one, other):
    (x, y, w, h), (to_x, to_y, to_w, to_h) = one, other
    apart = x + w <= to_x or to_x + to_w <= x or y + h <= to_y or to_y + to_h <= y
    return not apart


@given(graphs())
@settings(max_examples=60, deadline=None)
def test_no_box_covers_another_and_edges_lead_down(graph):
    sizes, edges, tree = graph
    found = place(sizes, edges, tree)
    rects = {box: (*found.corners[box], *sizes[box]) for box in sizes} | found.frames
    held = inside_of(tree)
    for a, b in combinations(rects, 2):
        nested = b in held.get(a, ()) or a in held.get(b, ())
        assert meet(rects[a], rects[b]) == nested, (a, b)
    for a, b in edges:
        start, end = found.corners[a][1] + sizes[a][1], found.corners[b][1]
        heights = [start, *(y for _, y in found.bends[a, b]), end]
        assert heights == sorted(heights)
        # An edge passes layers between the boxes.
        if found.bends[a, b]:
            (x, top), (_, bottom) = found.bends[a, b]
            rail = (x, top, 0, bottom - top)
            assert not any(meet(rail, rects[box]) for box in sizes)
    width, height = found.size
    for box in sizes:
        x, y, w, h = rects[box]
        assert x >= -1e-6 and y >= 0
        assert x + w <= width + 1e-6 and y + h <= height + 1e-6


def test_boxes_in_a_circle_are_placed_and_the_edge_back_runs_beside_them():
    sizes = dict.fromkeys("abc", (50, 20))
    found = place(sizes, [("a", "b"), ("b", "c"), ("c", "a")])
    assert [found.corners[box][1] for box in "abc"] == sorted(found.corners[b][1] for b in "abc")
    (x, below), (_, above) = found.bends["c", "a"]
    assert below > above
    assert not any(left <= x <= left + 50 for left, _ in found.corners.values())


def test_an_input_stands_right_above_its_reader():
    layers = layers_of(["x", "a", "b", "w", "c"], [("x", "a"), ("a", "b"), ("b", "c"), ("w", "c")])
    assert [sorted(layer) for layer in layers] == [["x"], ["a"], ["b", "w"], ["c"]]


# -- groups


def test_a_call_of_a_users_function_is_a_group(net):
    whole = grouped(graph_model(net), "net")
    titles = [item.title for item in whole.items if isinstance(item, Group)]
    calls = [title.partition(",")[0] for title in titles]
    assert calls == ["dense", "dense", "score"]
    assert len(set(titles)) == 3
    assert sorted(whole.nodes) == sorted(graph_model(net).nodes)


def test_no_group_has_too_many_items(large):
    h = pt.dvector("x")
    for _ in range(500):
        h = pt.tanh(h)
    for model in (graph_model(h), graph_model(large)):
        todo = [grouped(model, "graph")]
        assert sorted(todo[0].nodes) == sorted(model.nodes)
        while todo:
            group = todo.pop()
            assert len(group.items) <= MOST
            todo += [item for item in group.items if isinstance(item, Group)]


def test_calls_are_alike_wherever_their_lines_come_from():
    """Of a place three calls are kept, of which the outermost has no line."""

    def inner(h):
        return pt.exp(pt.tanh(h))

    def middle(h):
        return pt.log(inner(h) + 1)

    def outer(h):
        return middle(h) * 2 + pt.sqrt(h) * middle(pt.cos(h))

    with track_provenance():
        x = pt.dvector("x")
        whole = grouped(graph_model([outer(x), pt.sin(x)]), "graph")
    [made] = [item for item in whole.items if isinstance(item, Group)]
    assert made.title.startswith("outer, line")
    inside = [item.title.partition(",")[0] for item in made.items if isinstance(item, Group)]
    assert inside == ["middle"]  # (both calls are on one line)


def test_a_training_step_has_its_gradient_beside_what_it_reads():
    with track_provenance():
        x = pt.dmatrix("x")
        loss = score(dense(dense(x, 1), 2))
        parameters = [v for v in graph_inputs([loss]) if isinstance(v, SharedVariable)]
        steps = zip(parameters, pytensor.grad(loss, parameters), strict=True)
        f = pytensor.function([x], loss, updates={p: p - 0.1 * g for p, g in steps})
    for model in (graph_model(f), inspect_graph(f).written):
        view = Drawing(model).first
        titles = [e.find(f"{SVG}text").text for e in with_class(view.svg, "tg-frame")]
        assert any(title.startswith("gradient of loss") for title in titles)
        for edge in with_class(view.svg, "tg-edge"):
            ends = [part for part in edge.findall(f"{SVG}path")[0].get("d").split("C") if part]
            heights = [float(part.replace("V", " ").split()[-1]) for part in ends]
            assert heights == sorted(heights)


# -- what a view shows


def test_a_small_graph_is_shown_whole(net):
    drawing = Drawing(graph_model(net))
    [view] = drawing.views
    frames = [e.find(f"{SVG}text").text for e in with_class(view.svg, "tg-frame")]
    assert [title.partition(",")[0] for title in frames] == ["dense", "dense", "score"]
    assert ("output loss", "Log") in boxes(view.svg)
    assert ("W1", "shared variable") in boxes(view.svg, "tg-root")
    assert any(hint.startswith("W2; float64 (") for hint in hints(view.svg, "tg-root"))
    assert any(hint.startswith("float64 (") for hint in hints(view.svg, "tg-edge"))


def test_a_bad_input_is_drawn_and_so_is_an_input_alone():
    x, y = pt.dvector("x"), pt.dvector("y")
    assert boxes(Drawing(graph_model(x)).first.svg) == [("x", "input")]
    mode = GuardMode(check_inputs=True)
    f = pytensor.function([x, y], pt.exp(x), mode=mode, on_unused_input="ignore")
    with pytest.raises(GuardError) as caught:
        f(np.ones(1), np.array([np.nan]))
    svg = inspect_graph(caught.value).picture().svg()
    assert [lines[0] for lines in boxes(svg, "tg-bad")] == ["y"]


def test_a_large_graph_is_folded_and_every_node_has_its_view(large):
    model = graph_model(large)
    drawing = Drawing(model)
    assert len(drawing.views) > 2
    assert boxes(drawing.first.svg, "tg-group")
    drawn = {}
    for view in drawing.views:
        assert len(boxes(view.svg, "tg-node")) <= 2 * MOST
        for e in with_class(view.svg, "tg-box"):
            if "tg-elsewhere" not in e.get("class"):
                drawn.setdefault(view.number, set()).add(e.get("data-n"))
    keys = {thing["key"]: i for i, thing in enumerate(drawing.things)}
    assert set(model.nodes) <= set(keys)
    for number in keys.values():
        assert str(number) in drawn[drawing.things[number]["view"]]
    for view in drawing.views[1:]:
        assert view.above is not None
    opened = [e.get("data-opens") for v in drawing.views for e in with_class(v.svg, "tg-group")]
    assert {int(n) for n in opened} == {view.number for view in drawing.views[1:]}


def test_a_training_function_of_many_nodes_is_drawn():
    """Gradients and updates, which share nodes with the loss, are in one picture with it."""
    with track_provenance():
        h = x = pt.dmatrix("x")
        for n in range(8):
            h = dense(h, n)
        loss = score(h)
        parameters = [v for v in graph_inputs([loss]) if isinstance(v, SharedVariable)]
        steps = zip(parameters, pytensor.grad(loss, parameters), strict=True)
        updates = {p: p - 0.1 * g for p, g in steps}
        f = pytensor.function([x], loss, updates=updates, mode=Mode("py", None))
    assert len(f.maker.fgraph.apply_nodes) > 2 * MOST
    picture = inspect_graph(f).picture()
    first = parsed(picture.svg())
    assert boxes(picture.svg(), "tg-group")
    # Types appear on hover only.
    assert not [e for e in with_class(picture.svg(), "tg-edge") if e.find(f"{SVG}text") is not None]
    assert first.find(f".//{SVG}title") is not None


def test_it_opens_at_the_bad_node_with_two_steps_around_it(large):
    model = graph_model(large)
    bad = [node for node in model.nodes.values() if node.op == "Tanh"][20]
    bad.events.append("nan in call 3")
    drawing = Drawing(model)
    assert drawing.things[drawing.chosen]["key"] == bad.key
    assert drawing.first.title == "around Tanh"
    [lines] = boxes(drawing.first.svg, "tg-bad")
    assert lines == ("Tanh", "nan in call 3")
    assert {lines[0] for lines in boxes(drawing.first.svg, "tg-node")} >= {"Add", "Dot"}
    assert len(boxes(drawing.first.svg, "tg-node")) < 12
    assert boxes(drawing.first.svg, "tg-path")
    assert with_class(drawing.first.svg, "tg-edge tg-path".split()[1])
    # The way up leads to the whole graph, where what holds the bad node is red.
    view = drawing.first
    while view.above is not None:
        view = view.above
        assert boxes(view.svg, "tg-bad")


def test_what_is_overwritten_is_dashed():
    x = pt.dvector("x")
    f = guarded([x], pt.set_subtensor(pt.cumsum(x)[0], 100.0))
    assert any(node.op.destroy_map for node in f.maker.fgraph.toposort())
    said = hints(Drawing(graph_model(f)).first.svg, "tg-inplace")
    assert said and all(hint.endswith(", overwritten") for hint in said)


def test_an_inner_graph_is_opened_from_its_node():
    x = pt.dvector("x")
    with track_provenance():
        out = pytensor.scan(
            lambda s, h: pt.log(h) + s,
            sequences=[x],
            outputs_info=[pt.constant(2.0, dtype="float64")],
            return_updates=False,
        )
    drawing = Drawing(graph_model(out))
    inside = [n for thing in drawing.things for _, n in thing.get("inside", ())]
    shown = [boxes(drawing.views[n].svg, "tg-node") for n in inside]
    assert any("Log" in line for lines in shown for each in lines for line in each)


def test_before_and_after_are_linked():
    x = pt.dvector("x")
    f = guarded([x], pt.log(x * 2.0) + 1.0)
    html = inspect_graph(f).picture(before=True).html()
    first, last = (unpacked(part) for part in html.split("<script>")[1:])
    keys = {thing["key"] for thing in last["things"]}
    assert first["linked"] and set().union(*first["linked"].values()) <= keys
    assert "before rewriting" in html and "after rewriting" in html


# -- where it is shown


def unpacked(script):
    data = re.search(r'"([A-Za-z0-9+/=]{100,})"\);', script)[1]
    return json.loads(zlib.decompress(base64.b64decode(data)))


def test_without_scripts_it_is_an_image(net):
    picture = inspect_graph(net).picture()
    bundle = picture._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "text/html", "image/svg+xml"}
    assert bundle["text/plain"].endswith("nodes>")
    image = re.search(r'src="data:image/svg\+xml;base64,([^"]+)"', bundle["text/html"])[1]
    svg = base64.b64decode(image).decode()
    assert svg == bundle["image/svg+xml"] == picture.svg()
    root = parsed(svg)
    # What turns it into other formats knows no variables, and nothing is fetched.
    style = "".join(e.text for e in root.iter(f"{SVG}style"))
    assert "prefers-color-scheme: dark" in style
    assert "var(" not in style and "light-dark" not in style and "url(" not in style
    words = [text.text for text in root.iter(f"{SVG}text")]
    assert {"bad", "on the path", "overwritten in place"} <= set(words)


def test_it_is_saved_as_a_page_and_as_an_image(net, tmp_path):
    picture = inspect_graph(net).picture()
    picture.save(tmp_path / "net.svg")
    picture.save(tmp_path / "net.html")
    assert (tmp_path / "net.svg").read_text() == picture.svg()
    page = (tmp_path / "net.html").read_text()
    assert page.startswith("<!DOCTYPE html>")
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "")


@pytest.mark.parametrize("name", ["</script><b>", "\u202e\x1b[31m", "a\"b'&lt;"])
def test_names_stay_text(name):
    x = pt.dvector(name)
    out = pt.log(x)
    out.name = name
    f = guarded([x], out)
    f.name = name
    with pytest.raises(GuardError) as caught:
        f(np.array([-1.0]))
    for picture in (inspect_graph(f).picture(), inspect_graph(caught.value).picture()):
        shown = "".join(c if c.isprintable() else "\ufffd" for c in name)
        texts = [e.text for e in parsed(picture.svg()).iter(f"{SVG}text")]
        assert shown in " ".join(texts)
        assert "\u202e" not in picture.html()
        assert picture.html().count("</script>") == 1


@pytest.mark.parametrize("collecting", [True, False])
def test_garbage_is_collected_as_before(collecting):
    before = gc.isenabled()
    (gc.enable if collecting else gc.disable)()
    try:
        inspect_graph(pt.log(pt.dvector("x"))).picture()
        assert gc.isenabled() == collecting
    finally:
        (gc.enable if before else gc.disable)()
