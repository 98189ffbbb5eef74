"""The model of a graph that every rendering reads."""

import json

import numpy as np
import pytensor
import pytensor.printing
import pytensor.tensor as pt
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from theanoguard._provenance import TRACK_PROVENANCE
from theanoguard.view.model import SCHEMA, GraphModel, Statistics, graph_model, statistics

pytestmark = pytest.mark.on_33

MODE = pytensor.compile.mode.get_mode("CVM").register(TRACK_PROVENANCE)


@pytest.fixture(scope="module")
def trained():
    x = pt.matrix("x")
    w = pytensor.shared(np.ones((3, 2)), name="w")
    unused = pt.vector("unused")
    cost = pt.log(1 + pt.exp(pt.dot(x, w))).mean()
    cost.name = "cost"
    f = pytensor.function(
        [x, unused],
        cost,
        updates=[(w, w - pt.grad(cost, w))],
        mode=MODE,
        profile=pytensor.compile.debug.profiling.ProfileStats(atexit_print=False),
        on_unused_input="ignore",
        name="train",
    )
    f(np.ones((4, 3)), [0.0])
    return f


@pytest.fixture(scope="module")
def model(trained):
    return graph_model(trained)


def test_nodes_and_edges_are_those_of_the_graph(trained, model):
    fgraph = trained.maker.fgraph
    order = fgraph.toposort()
    assert [model.objects[n.key] for n in model.in_order()] == order
    for shown in model.nodes.values():
        node = model.objects[shown.key]
        assert [model.objects[key] for key in shown.inputs] == node.inputs
        assert [model.objects[key] for key in shown.outputs] == node.outputs
    assert [model.objects[key] for key in model.inputs] == fgraph.inputs
    assert [model.objects[key] for key in model.outputs] == fgraph.outputs
    assert {id(v) for v in map(model.objects.get, model.variables)} >= set(
        map(id, fgraph.variables)
    )
    assert model.name == "train"


def test_what_stands_on_a_variable(model):
    by_name = {v.name: v for v in model.variables.values() if v.name}
    assert by_name["x"].kind == "input"
    assert (by_name["x"].dtype, by_name["x"].shape) == (pytensor.config.floatX, [None, None])
    assert by_name["w"].kind == "shared"
    assert by_name["unused"].key in model.inputs
    update = next(v for v in model.variables.values() if v.update_of)
    assert update.update_of == by_name["w"].key and update.is_output
    assert by_name["cost"].is_output and by_name["cost"].owner in model.nodes
    constants = [v for v in model.variables.values() if v.kind == "constant"]
    assert constants and all(v.value for v in constants)


def test_fused_nodes_are_models_of_their_own_with_lines(model):
    composites = [n for n in model.nodes.values() if n.op.startswith("Composite")]
    assert composites
    for node in composites:
        (inner,) = node.inner.values()
        assert all(n.provenance.source.file == __file__ for n in inner.nodes.values())
    assert len(list(model.walk())) == 1 + len(composites)


def test_profile_is_read(model):
    assert all(n.seconds is not None and n.calls == 1 for n in model.nodes.values())


def test_maps_of_memory(model):
    gemm = next(n for n in model.nodes.values() if n.op.startswith("Gemm"))
    assert gemm.destroy_map == {0: [0]}


def test_json_and_back(model):
    data = json.loads(json.dumps(model.to_dict()))
    again = GraphModel.from_dict(data)
    assert again == model
    assert again.objects == {}


def test_unknown_schema_is_refused(model):
    data = model.to_dict()
    data["schema"] = SCHEMA + 1
    with pytest.raises(ValueError, match=f"schema {SCHEMA + 1}"):
        GraphModel.from_dict(data)


def test_values_events_and_times():
    x = pt.vector("x")
    y = pt.log(x)
    model = graph_model(
        y, values={y: [np.nan, 1.0]}, events={y: "bad", y.owner: ["one", "two"]}, times={y.owner: 2}
    )
    (shown,) = (model.variables[key] for key in model.outputs)
    assert (shown.statistics.n_bad, shown.statistics.max) == (1, 1.0)
    assert shown.events == ["bad"]
    node = model.nodes[shown.owner]
    assert (node.events, node.seconds) == (["one", "two"], 2)


def test_inner_graph_of_a_scan():
    x = pt.vector("x")
    y = pytensor.scan(lambda v: pt.exp(v), sequences=[x], return_updates=False)
    model = graph_model(y)
    (scan,) = (n for n in model.nodes.values() if n.op_type == "Scan")
    (inner,) = scan.inner.values()
    assert [n.op for n in inner.in_order()] == ["Exp"]


def test_several_graphs_share_their_nodes():
    x = pt.vector("x")
    y = pt.exp(x)
    model = graph_model([y.sum(), y.owner, y.max()])
    assert sorted(n.op for n in model.nodes.values()) == ["Exp", "Max{axes=None}", "Sum{axes=None}"]
    assert len(model.outputs) == 3


def test_something_without_a_graph_is_refused():
    with pytest.raises(TypeError, match="A str has no graph"):
        graph_model("x")


@pytest.mark.skipif(
    not hasattr(pytensor.printing, "build_graph_model"), reason="this PyTensor has no such model"
)
def test_keys_are_those_of_pytensors_own_model():
    x = pt.matrix("x")
    y = pt.exp(x)
    values, indices = pt.max(y, axis=0), pt.argmax(y, axis=0)
    out = (y / y.sum() + values).sum() + indices.sum()
    theirs = pytensor.printing.build_graph_model(out).flattened()
    ours = graph_model(out)
    for key, node in theirs.items():
        assert ours.variables[key].owner == node.get("owner_key")
        if "op" in node:
            assert ours.nodes[node["owner_key"]].op == node["op"]


def test_a_long_chain_is_no_recursion():
    x = pt.scalar("x")
    y = x
    for _ in range(3000):
        y = pt.sin(y)
    model = graph_model(y, with_provenance=False)
    assert len(model.nodes) == 3000


@given(
    hnp.arrays(
        st.sampled_from(["float32", "float64"]),
        hnp.array_shapes(min_dims=0, max_dims=3, max_side=5),
        elements=st.floats(width=32),
    )
)
def test_statistics_are_those_of_the_finite_elements(value):
    found = statistics(value)
    finite = value[np.isfinite(value)]
    assert found.n_bad == value.size - finite.size
    assert found.shape == value.shape
    if finite.size:
        assert (found.min, found.max) == (finite.min(), finite.max())
        assert found.min <= found.mean <= found.max or np.isclose(found.mean, found.min)
    else:
        assert found.min is found.max is found.mean is None


@pytest.mark.parametrize(
    "value, expected",
    [
        (True, Statistics("bool", (), 1.0, 1.0, 1.0, 0)),
        (np.array([1, 2], dtype="int8"), Statistics("int8", (2,), 1.0, 2.0, 1.5, 0)),
        (np.array([1j, np.nan]), Statistics("complex128", (2,), None, None, None, 1)),
        (np.zeros((0, 3)), Statistics("float64", (0, 3), None, None, None, 0)),
        ("text", None),
        (None, None),
    ],
)
def test_statistics_of_other_things(value, expected):
    assert statistics(value) == expected


def test_statistics_of_a_sparse_matrix():
    found = statistics(scipy.sparse.csr_matrix([[0.0, np.inf], [2.0, 0.0]]))
    assert (found.shape, found.n_bad, found.min) == ((2, 2), 1, 2.0)
