"""Random graphs, compared with Theano 1.0.5; and classes of faults that they have shown."""

import json
from pathlib import Path

import numpy as np
import pytest
import shim_graphs

RECORDED = json.loads(Path(shim_graphs.__file__).with_suffix(".json").read_text(encoding="utf-8"))

# By the reason, answers that are other ones than Theano's.
REASONS = {
    "Theano looks up an axis that is not there before it checks the dimensions": """
        (((w.astype('float32')) + (T.concatenate([v, c])))[-1:])
        (T.maximum(((T.cumsum(i)).shape[0]), (T.dot((T.argmax(t, axis=0)), (T.nnet.softmax(s))))))
        (T.stack([((T.exp(b)) - (T.stack([b, c]))), ((T.cumsum(i)) // 2)]))
    """,
    "PyTensor takes masks as indices": """
        ((T.take((T.round(r)), (T.eq(i, u)))).dimshuffle('x', 0))
        (T.take((T.tensordot((T.switch(k > 0, k, w)), (T.extra_ops.diff(k)), 1)), ((k % 2) > m)))
    """,
    "zeros of the wrong shape are left out": """
        ((T.tile((T.batched_dot(v, u)), 2)) - (T.sgn((T.zeros_like(t)))))
        (T.inv((T.tril((T.zeros_like(t))))))
    """,
    "Theano's operation fails for a number": "(T.cumsum(s))",
}
DIFFERENT = {line.strip() for lines in REASONS.values() for line in lines.strip().splitlines()}


def is_same(found, recorded):
    """Whether two answers are the same; an exception may be of a class below Theano's."""
    (kind, result), (recorded_kind, expected) = found, recorded
    if isinstance(result, Exception):
        classes = [cls.__name__ for cls in type(result).__mro__]
        return kind == recorded_kind and expected.removeprefix("raises ") in classes
    return found == (recorded_kind, expected)


@pytest.mark.slow
@pytest.mark.on_33
def test_random_graphs(shim):
    assert len(RECORDED) > 200 and RECORDED.keys() >= DIFFERENT
    found = {case: shim_graphs.answer(shim, case) for case in RECORDED}
    differ = [
        f"{case}\n   {found[case]}\n   in Theano: {recorded}"
        for case, recorded in RECORDED.items()
        if is_same(found[case], tuple(recorded)) == (case in DIFFERENT)
    ]
    assert not differ, "\n".join([f"{len(differ)} differ", *differ])


@pytest.mark.parametrize("mode", ["fast_run", "fast_compile"])
def test_an_index_into_a_dimension_of_length_one_is_checked(mode, shim):
    T = shim.tensor
    r, w, i = T.drow("r"), T.dvector("w"), T.lscalar("i")
    results = [(r + w)[i], T.exp(r)[i], (r > w)[i], (r * 2)[i, 0], (r + 1)[T.stack([i, i])]]
    inputs, mode = [r, w, i], shim.Mode("py", mode)
    whole = shim.function(inputs, results, mode=mode, on_unused_input="ignore")
    for index in (0, -1):
        np.testing.assert_array_equal(whole(np.ones((1, 3)), np.ones(3), index)[0], np.full(3, 2.0))
    for result in results:
        f = shim.function(inputs, result, mode=mode, on_unused_input="ignore")
        for index in (1, -2):
            with pytest.raises(IndexError):
                f(np.ones((1, 3)), np.ones(3), index)


def test_triangles_are_of_matrices(shim):
    T, mode = shim.tensor, shim.Mode("py", None)
    m, t, v = T.dmatrix("m"), T.dtensor3("t"), T.dvector("v")
    found = shim.function([m], [T.tril(m), T.triu(m, 1)], mode=mode)(np.ones((2, 3)))
    assert [a.tolist() for a in found] == [[[1, 0, 0], [1, 1, 0]], [[0, 1, 1], [0, 0, 1]]]
    with pytest.raises(IndexError):
        shim.function([v], T.tril(v), mode=mode)(np.ones(3))
    with pytest.raises(ValueError):
        shim.function([t], T.triu(t), mode=mode)(np.ones((2, 3, 3)))


@pytest.mark.parametrize("reduction", ["sum", "prod", "max", "min", "mean", "any", "std"])
def test_axes_of_reductions_are_there(reduction, shim):
    for x, axis in ((shim.tensor.iscalar(), 0), (shim.tensor.ivector(), 1)):
        with pytest.raises(ValueError):
            getattr(x, reduction)(axis=axis)
