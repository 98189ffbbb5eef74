"""Expressions whose results are recorded under Theano 1.0.5 and compared under the shim.

::

    python3.7 tests/shim/shim_cases.py        # with Theano 1.0.5: writes tests/shim/shim_cases.json

Every line of a section is evaluated with the variables of `variables`; what it gives is a
variable, a list of variables, or any other value that JSON knows.
"""

import base64
import importlib
import json
import os
import pickle

import numpy as np

SECTIONS = {
    "tensor": """
        T.max(x, axis=())
        T.min(x, axis=())
        T.argmax(x, axis=())
        T.max_and_argmax(x, axis=1)
        T.max_and_argmax(x, 0, True)
        T.argmin(x)
        x.max(axis=())
        x.min(axis=(0, 1))
        x.argmax(axis=-1)
        T.max(x, axis=2)
        T.max(x, axis=i)
        T.sum(x, axis=())
        T.mean(x, axis=0, keepdims=True)
        T.mean(k, op=True)
        T.mean(x, dtype="float32")
        T.mean(f)
        T.sum(f)
        T.sum(k)
        T.prod(f, axis=1)
        T.stack(v, v)
        T.stack([v, v], 1)
        T.stack([v, v], axis=-1)
        T.stack(tensors=[v, v])
        T.stack([i, 2, 3])
        T.stack()
        T.stack([])
        T.stacklists([[v, v], [v, v]])
        T.flatten(t, outdim=2)
        T.flatten(t, 2)
        T.flatten(x, ndim=1, outdim=1)
        T.flatten(x, 3)
        x.flatten(2)
        T.is_flat(v)
        T.is_flat(x, outdim=2)
        T.tile(x, (2, 1))
        T.tile(x, 2)
        T.tile(x, [2, 1], ndim=3)
        T.tile(v, k[:2], ndim=2)
        T.tile(x, k)
        T.tile(x, [2.5, 1])
        T.tile(x, [1, 1, 1], ndim=2)
        T.split(v, [1, 2], 2)
        T.split(x, [1, 1], 2, 1)
        T.Split(2)(x, 0, [1, 2])
        T.join(0, x, x)
        T.join(-1, x, x)
        T.concatenate([x, x], axis=1)
        T.horizontal_stack(x, x)
        T.vertical_stack(x, x)
        T.reshape(x, (2, 3), 2)
        T.reshape(x, (2, 3), ndim=2)
        x.reshape((6,), 1)
        x.reshape((3, -1))
        x.reshape([1, 6])
        x.reshape((3, 2), 3)
        x.reshape(k[:2], 2)
        x.dimshuffle(1, 0)
        x.dimshuffle("x", 0, 1)
        x.dimshuffle((1, "x", 0))
        x.dimshuffle(0)
        x.dimshuffle(0, 0)
        x.dimshuffle(0, 1, 2)
        r.dimshuffle(1)
        c.dimshuffle(0)
        T.DimShuffle([False, True], [0])(c)
        T.DimShuffle((False, False), (0,))
        T.addbroadcast(x[:, :1], 1)
        T.addbroadcast(x, 5)
        T.unbroadcast(r, 0)
        T.patternbroadcast(r, (False, False))
        T.patternbroadcast(x[:1], (True, False))
        T.Rebroadcast((0, False))(r)
        T.Rebroadcast((0, 1))
        T.Rebroadcast(("0", True))
        T.unbroadcast(T.shape_padleft(v), 0)
        T.shape_padright(v, 2)
        T.shape_padaxis(x, 1)
        T.tensor("float64", (True, False)).broadcastable
        T.tensor("float32", broadcastable=(0, 1)).broadcastable
        T.tensor(dtype="int8", broadcastable=[], name="z").name
        T.TensorType("float64", (False, True))().broadcastable
        T.TensorType("float32", [0, 0])().broadcastable
        T.TensorType("float32", broadcastable=(1, 0), name="z")().dtype
        T.TensorType("float33", (False,))
        T.TensorType("int8", ())().ndim
        x.type.clone(broadcastable=(True, False)).broadcastable
        x.type.clone(dtype="int32").dtype
        isinstance(x.type, T.TensorType)
        T.row("z").broadcastable
        T.col().broadcastable
        T.lrow().dtype
        T.wmatrix().dtype
        T.bscalar().dtype
        T.zvector().dtype
        [z.ndim for z in T.matrices(3)]
        [z.name for z in T.fvectors("a", "b")]
        r.broadcastable
        (r + x).broadcastable
        T.dot(r, x).broadcastable
        x.sum(axis=0, keepdims=True).broadcastable
        T.zeros((1, 3)).broadcastable
        T.ones_like(r).broadcastable
        T.alloc(1.0, 3, 1).broadcastable
        T.as_tensor_variable(np.ones((1, 2))).broadcastable
        theano.shared(np.ones((1, 2))).broadcastable
        bool(x)
        bool(x.sum())
        bool(x > 0)
        bool(v <= v)
        [1 if z else 0 for z in (x, v)]
        list(x)
        T.as_tensor_variable(True)
        T.as_tensor_variable("x")
        T.as_tensor_variable([1, 2])
        T.as_tensor_variable([v, v])
        T.as_tensor_variable(x, ndim=3)
        T.as_tensor_variable(r, ndim=1)
        T.constant(2)
        T.constant(2.5)
        T.constant(300)
        T.constant([1.5, 2])
        T.cast(x, "int8")
        x.astype("float32")
        T.abs_(x)
        abs(x)
        T.inv(x + 10)
        T.sgn(x)
        T.sqr(x)
        T.round(x)
        T.round(x * 2.5, "half_away_from_zero")
        T.iround(x)
        T.ceil_intdiv(k, 2)
        T.clip(x, -1, 1)
        T.switch(T.gt(x, 0), x, -x)
        T.where(x > 0, x, 0)
        T.nonzero(x)
        T.nonzero(x, return_matrix=True)
        T.flatnonzero(x)
        T.nonzero_values(x)
        x.nonzero_values()
        T.eq(k, 3)
        T.neq(k, 3)
        T.isnan(x)
        T.isinf(x)
        T.and_(k, 1)
        T.invert(k)
        ~k
        k / 2
        k // 2
        k % 2
        x % 2
        T.int_div(x, 2)
        T.true_div(k, 2)
        T.divmod(k, 2)
        -k
        k ** 2
        T.pow(x, 2)
        T.outer(v, v)
        T.dot(x, x.T)
        T.tensordot(x, x, [[1], [1]])
        T.tensordot(t, t, axes=[[0, 2], [0, 2]])
        T.batched_dot(t, T.transpose(t, (0, 2, 1)))
        T.batched_dot(x, x)
        T.batched_dot(v, x)
        T.batched_dot(t, x)
        T.batched_dot(i, x)
        T.batched_tensordot(t, t, [[1, 2], [1, 2]])
        T.batched_tensordot(t, t, [[2], [2]])
        T.batched_tensordot(t, T.transpose(t, (0, 2, 1)), 1)
        T.batched_tensordot(t, t, [[0], [0]])
        T.batched_tensordot(t, t, 3)
        T.diag(v)
        T.diag(x)
        T.diag(v, 1)
        T.diag(i)
        T.diagonal(t, 1, 0, 2)
        T.eye(2, 3, 1)
        T.eye(2)
        T.identity_like(x)
        T.tri(3, 2, -1)
        T.tril(x)
        T.triu(x, 1)
        T.arange(5)
        T.arange(1, 5, 2)
        T.arange(1.5, 4)
        T.arange(i)
        T.arange(np.float32(3))
        T.mgrid[0:2, 0:3]
        T.ogrid[0:2, 0:3]
        T.roll(v, 1)
        T.swapaxes(x, 0, 1)
        T.transpose(t, (1, 0, 2))
        x.T
        x.swapaxes(0, 1)
        T.choose(k, [v, v * 10, v * 2, v * 3])
        k.choose([v, v * 10, v * 2, v * 3])
        T.ptp(x, axis=0)
        T.var(x, axis=0, ddof=1)
        T.std(x, axis=0, keepdims=True)
        T.all(x > -100, axis=0)
        T.any(x > 0)
        T.permute_row_elements(x, k[:2] * 0 + [1, 0])
        T.inverse_permutation(T.as_tensor_variable([2, 0, 1]))
        T.default(x, x * 2)
        T.fill(x, 3)
        T.second(x, v.sum())
        T.zeros_like(k)
        T.zeros_like(x, dtype="int32")
        T.ones((2, 2), dtype="float32")
        T.alloc(v[:2], 2, 2)
        T.sort(x, 0)
        T.argsort(v)
        x.sort()
        T.topk(v, 2, sorted=False).sum()
        T.topk(x, -1, axis=1, sorted=False)
        T.argtopk(v, 1, sorted=False)
        T.topk(v, 0, sorted=False)
        T.cumsum(x)
        T.cumprod(x, axis=1)
        T.extra_ops.diff(v, n=1)
        T.extra_ops.DiffOp(1)(v)
        T.repeat(v, 2)
        T.repeat(x, 2, axis=1)
        T.repeat(x, k[:2] * 0 + [1, 2], axis=1)
        T.extra_ops.to_one_hot(k, 4)
        T.extra_ops.squeeze(r)
        T.extra_ops.compress(k, x, 0)
        T.bincount(k)
        T.bincount(k, minlength=6)
        T.fill_diagonal(x, 7)
        T.fill_diagonal_offset(x, 7, 1)
        T.unravel_index(k, (2, 2))
        T.unravel_index(k, k[:2] * 0 + [2, 2], ndim=2)
        T.unravel_index(k, k)
        T.ravel_multi_index((k, k), (4, 4))
        T.extra_ops.searchsorted(v, x[0])
        T.bartlett(5)
        T.erf(x)
        T.erfc(x)
        T.erfinv(x / 10)
        T.gammaln(k + 1)
        T.psi(k + 1.0)
        T.gammainc(k + 1.0, k + 2.0)
        T.chi2sf(k + 1.0, k + 2.0)
        T.j0(x)
        T.i1(x)
        T.jv(2.0, x)
        T.iv(2.0, x)
        T.deg2rad(x)
        T.rad2deg(x)
        T.exp2(x)
        T.expm1(x)
        T.log1p(k)
        T.arctan2(x, 2)
        T.angle(x + 0j)
        T.real(x + 1j)
        T.complex(x, x)
        T.conj(x + 1j)
        T.sqrt(k)
        T.exp(k)
        T.log(b)
        T.exp(f)
        T.largest(x, 0)
        T.smallest(x, 0, -1)
        T.maximum(k, 2.5)
        T.set_subtensor(x[0], 5)
        T.inc_subtensor(x[:, 1], v)
        T.inc_subtensor(v[[0, 0, 1]], 1)
        T.set_subtensor(v[k[:2]], 9)
        T.set_subtensor(x, 0)
        T.take(x, [0, 2], axis=0)
        x.take([1], axis=1)
        x[0]
        x[-1]
        x[1:, 0]
        x[::-1]
        x[:, None, :]
        x[None]
        x[..., 0]
        x[[0, 1], [1, 0]]
        x[k[:2], :]
        x[x > 0]
        x[(x > 0).nonzero()]
        x[0, 0, 0]
        x[[True, False, True]]
        x[i]
        x[1.5]
        v[v.shape[0] - 1]
        x.shape
        x.size
        x.ndim
        T.shape(x)[0]
        T.get_vector_length(T.stack([v[0], v[1]]))
        T.get_vector_length(v)
        T.get_scalar_constant_value(T.constant(3) + 1)
        T.get_scalar_constant_value(v)
        T.extract_constant(T.constant(3))
        T.alloc(0, 3).broadcastable
        T.specify_shape(x, (3, 2))
        x.norm(2)
        x.trace()
        x.diagonal()
        x.squeeze()
        r.squeeze()
        x.cumsum()
        x.ravel()
        v.compress(x, axis=0)
        x.copy(name="z").name
        x.dot(x.T)
        x.var()
        x.clip(0, 1)
        x.repeat(2)
        x.round()
        x.zeros_like()
        x.searchsorted
        T.discrete_dtypes
        T.float_dtypes
        T.integer_dtypes
        T.complex_dtypes
        T.uint_dtypes
        T.all_dtypes
    """,
    "linalg": """
        T.blas.ger(x, T.constant(0.5), x[:, 0], x[0])
        T.blas_c.CGer(False)(x, x[0, 1], x[:, 0], x[0])
        T.nlinalg.QRFull("complete")(s)
        T.nlinalg.QRIncomplete("r")(s)
        [T.Dot() == T.Dot(), T.Split(2) == T.Split(2), T.Split(2) == T.Split(3)]
        T.nlinalg.matrix_inverse(s)
        T.nlinalg.pinv(x)
        T.nlinalg.det(s)
        T.nlinalg.trace(s)
        T.nlinalg.diag(v)
        T.nlinalg.diag(s)
        T.nlinalg.diag(i)
        T.nlinalg.alloc_diag(v)
        T.nlinalg.AllocDiag()(v)
        T.nlinalg.extract_diag(s)
        T.nlinalg.eigh(s)[0]
        T.nlinalg.eigh(s, UPLO="U")[0]
        T.nlinalg.Eigh()(s)[0]
        T.nlinalg.svd(s)[1]
        T.nlinalg.svd(s, 1, 0)
        T.nlinalg.qr(s, mode="r")
        T.nlinalg.matrix_power(s, 3)
        T.nlinalg.matrix_dot(s, s, s)
        T.nlinalg.norm(v, None)
        T.nlinalg.norm(v, 2)
        T.nlinalg.norm(v, 3)
        T.nlinalg.norm(v, 0)
        T.nlinalg.norm(v, "inf")
        T.nlinalg.norm(v, "-inf")
        T.nlinalg.norm(v, "fro")
        T.nlinalg.norm(s, None)
        T.nlinalg.norm(s, "fro")
        T.nlinalg.norm(s, 1)
        T.nlinalg.norm(s, -1)
        T.nlinalg.norm(s, "inf")
        T.nlinalg.norm(s, "-inf")
        T.nlinalg.norm(s, 2)
        T.nlinalg.norm(i, 2)
        T.nlinalg.norm(t, 2)
        T.nlinalg.tensorinv(s, 1)
        T.slinalg.cholesky(s)
        T.slinalg.Cholesky(lower=False)(s)
        T.slinalg.Cholesky(on_error="nan")(-s)
        T.slinalg.cholesky(-s)
        T.slinalg.solve(s, v[:2])
        T.slinalg.solve(s, s)
        T.slinalg.solve(s * 0, s)
        T.slinalg.Solve("lower_triangular", lower=True)(s, s)
        T.slinalg.solve_lower_triangular(s, v[:2])
        T.slinalg.solve_upper_triangular(s, v[:2])
        T.slinalg.solve_symmetric(s, s)
        T.slinalg.Solve("round")
        T.slinalg.eigvalsh(s, T.eye(2))
        T.slinalg.expm(s)
        T.slinalg.kron(s, s)
        T.slinalg.kron(v, s)
        T.slinalg.kron(s, v)
        T.slinalg.kron(v, v)
        T.nlinalg.matrix_inverse(s * 0)
    """,
    "gradient": """
        T.grad((x ** 2).sum(), x)
        T.grad(T.sum(x * v[0]), [x, v])
        T.grad(x.sum(), v)
        T.grad(x.sum(), v, disconnected_inputs="ignore")
        T.grad(x, x)
        T.grad(None, x, known_grads={x: x * 2})
        T.grad(T.max(x), x)
        T.grad(T.max(x, axis=()), x)
        T.grad(T.abs_(x).sum(), x)
        T.grad(T.sqrt(k).sum(), k)
        T.grad(theano.gradient.consider_constant(x).sum() + x.sum(), x)
        T.grad((theano.gradient.disconnected_grad(x) * x).sum(), x)
        T.grad(theano.gradient.zero_grad(x).sum(), x)
        T.grad((theano.gradient.grad_clip(x, -1, 1) ** 2).sum(), x)
        T.grad((theano.gradient.grad_scale(x, 3) ** 2).sum(), x)
        T.grad((x * v[:2]).sum(), x, consider_constant=[v])
        T.Rop(x * 3, x, x + 1)
        T.Rop(T.dot(x, x.T), x, T.ones_like(x))
        T.Rop(x.sum(axis=0), x, x)
        T.Rop([v * v, v.sum()], v, v)
        T.Rop(x, v, v)
        T.Lop(x * 3, x, x + 1)
        T.Lop(T.tanh(v), v, v)
        T.Lop([v ** 2], [v], [v])
        T.jacobian(v ** 2, v)
        T.jacobian((v ** 2).sum(), v)
        T.hessian((v ** 3).sum(), v)
        T.grad(T.unbroadcast(r, 0).sum(), r)
        T.grad(T.addbroadcast(x[:1], 0).sum(), x)
        T.grad(T.batched_dot(t, t[:, :, :1]).sum(), t)
        T.grad(T.stack([v, v * 2]).sum(), v)
        T.grad(T.tile(v, 3).sum(), v)
        T.grad(T.topk(v, 2, sorted=False).sum(), v)
        T.grad(T.nlinalg.det(s), s)
        T.grad(T.slinalg.cholesky(s).sum(), s)
        T.grad(T.slinalg.solve(s, s).sum(), s)
        T.grad(T.nlinalg.matrix_inverse(s).sum(), s)
        T.grad(T.sort(v)[0], v)
        T.grad(T.inc_subtensor(x[0], v[:2]).sum(), [x, v])
        T.grad(T.mean(f), f)
        T.grad(k.sum(), k)
        theano.gradient.format_as(True, False, [1, 2])
        theano.gradient.format_as(False, False, [1])
    """,
    "sparse": """
        S.dense_from_sparse(a)
        S.csr_from_dense(x)
        S.csc_from_dense(x)
        a.type.format
        a.dtype
        a.ndim
        isinstance(a.type, S.SparseType)
        isinstance(a.type, T.TensorType)
        S.SparseType("csr", "float32")().dtype
        S.SparseType("csr", "float33")
        S.SparseType("coo", "float32")
        "float32" in S.SparseType.dtype_set
        S.csr_matrix("z").name
        S.csc_matrix(dtype="int32").dtype
        S.matrix("csc").format
        S.dense_from_sparse(a + a)
        S.dense_from_sparse(a - a)
        S.dense_from_sparse(a * a)
        S.dense_from_sparse(-a)
        a + x
        S.dense_from_sparse(a * x)
        S.dot(a, x.T)
        S.dot(x.T, a)
        S.structured_dot(a, x.T)
        S.dense_from_sparse(S.true_dot(a, a.T))
        S.true_dot(a, x.T)
        S.dot(a, a.T)
        S.dense_from_sparse(a.T)
        S.dense_from_sparse(S.transpose(a))
        S.sp_sum(a)
        S.sp_sum(a, axis=0)
        S.sp_sum(a, axis=1)
        S.dense_from_sparse(S.cast(a, "float32"))
        S.dense_from_sparse(S.hstack([a, a]))
        S.dense_from_sparse(S.vstack([a, a], format="csr"))
        S.csm_properties(a)
        S.csm_data(a)
        S.dense_from_sparse(S.CSR(*S.csm_properties(a)))
        S.diag(S.dot(a, a.T))
        S.dense_from_sparse(S.square_diagonal(v))
        S.dense_from_sparse(S.SquareDiagonal()(v))
        S.dense_from_sparse(S.structured_exp(a))
        S.dense_from_sparse(S.structured_sigmoid(a))
        S.dense_from_sparse(S.structured_add(a, 2))
        S.dense_from_sparse(S.sqrt(a))
        S.dense_from_sparse(S.sgn(a))
        S.dense_from_sparse(S.sin(a))
        S.dense_from_sparse(S.col_scale(a, v[:2]))
        S.dense_from_sparse(S.row_scale(a, v))
        S.dense_from_sparse(S.sp_ones_like(a))
        S.dense_from_sparse(S.sp_zeros_like(a))
        S.dense_from_sparse(S.remove0(a))
        S.dense_from_sparse(S.clean(a))
        S.dense_from_sparse(S.sampling_dot(x, x, S.dot(a, a.T)))
        a[0, 1]
        S.dense_from_sparse(a[1:3])
        S.dense_from_sparse(a[[0, 2]])
        S.dense_from_sparse(S.eq(a, a))
        S.lt(a, x)
        S.dense_from_sparse(S.construct_sparse_from_list(x, T.arange(5), T.arange(3) + 1))
        T.grad(S.sp_sum(a * a, sparse_grad=True), a).type.format
        T.grad(S.structured_dot(a, x.T).sum(), x)
        T.grad(S.dot(a, x.T).sum(), x)
        a.shape
        S.enable_sparse
        S.as_sparse(a).type.format
        S.as_sparse_variable(x)
        S.as_sparse_or_tensor_variable(x).ndim
        S.basic._is_sparse_variable(a)
        S.basic._is_sparse_variable(x)
        S.basic._is_dense_variable(x)
    """,
    "scalar": """
        theano.scalar.upcast("int8", "float32")
        theano.scalar.upcast("int32", "float32")
        theano.scalar.upcast("uint8", "int8")
        theano.scalar.float64("z").dtype
        theano.scalar.Scalar("int8")().dtype
        theano.scalar.get_scalar_type("int16").dtype
        theano.scalar.as_scalar(3).dtype
        theano.scalar.constant(2.5).dtype
        theano.scalar.add(theano.scalar.int8(), theano.scalar.float32()).dtype
        theano.scalar.true_div(theano.scalar.int8(), theano.scalar.int8()).dtype
        theano.scalar.sgn(theano.scalar.float32()).dtype
        theano.scalar.abs_(theano.scalar.float32()).dtype
        theano.scalar.inv(theano.scalar.int64()).dtype
        theano.scalar.deg2rad(theano.scalar.int8()).dtype
        theano.scalar.transfer_type(0)(theano.scalar.int8, theano.scalar.float64)[0].dtype
        theano.scalar.div_proxy(theano.scalar.int8(), theano.scalar.int8()).dtype
        theano.scalar.int_out(theano.scalar.float32)[0].dtype
        theano.scalar.upgrade_to_float(theano.scalar.int8)[0].dtype
        theano.scalar.upgrade_to_float_no_complex(theano.scalar.complex64)
        [z.dtype for z in theano.scalar.all_types] if False else len(theano.scalar.all_types)
        T.Elemwise(theano.scalar.Identity(theano.scalar.same_out))(x)
        T.Elemwise(theano.scalar.add)(x, v[:2])
        T.CAReduce(theano.scalar.maximum, 0)(x)
        T.inplace.exp_inplace.inplace_pattern
    """,
    "nnet": """
        N.softmax(x)
        N.softmax(v)
        N.softmax(f)
        N.softmax(t)
        N.softmax(k)
        N.logsoftmax(x)
        N.logsoftmax(v)
        N.softmax_graph(t)
        N.softmax_with_bias(x, v[:2])
        T.grad(N.softmax(x)[:, 0].sum(), x)
        T.grad(N.logsoftmax(x)[0, 1], x)
        N.sigmoid(x)
        N.sigmoid(k)
        N.hard_sigmoid(x)
        N.hard_sigmoid(f)
        N.ultra_fast_sigmoid(x)
        N.softplus(x)
        N.softsign(x)
        N.softsign(k)
        T.grad(N.softsign(v).sum(), v)
        N.relu(x)
        N.relu(x, 0.1)
        N.relu(f, 0.1)
        N.relu(x, v[:2])
        N.elu(x)
        N.elu(x, 2)
        N.selu(x)
        N.binary_crossentropy(N.sigmoid(x), x > 0)
        N.sigmoid_binary_crossentropy(x, N.sigmoid(-x))
        T.grad(N.sigmoid_binary_crossentropy(x, x * 0 + 0.25).sum(), x)
        N.categorical_crossentropy(N.softmax(x), y)
        N.categorical_crossentropy(N.softmax(x), N.softmax(-x))
        N.categorical_crossentropy(N.softmax(x), i)
        N.categorical_crossentropy(t, x)
        N.categorical_crossentropy(N.softmax(x), b)
        T.grad(N.categorical_crossentropy(N.softmax(x), y).sum(), x)
        N.crossentropy_softmax_1hot(x, y)
        N.crossentropy_softmax_1hot_with_bias(x, v[:2], y)
        N.crossentropy_softmax_argmax_1hot_with_bias(x, v[:2], y)
        N.crossentropy_softmax_max_and_argmax_1hot(x, y)
        N.crossentropy_softmax_1hot_with_bias_dx(v, N.softmax(x), y)
        T.grad(N.crossentropy_softmax_1hot(x, y)[0][1], x)
        N.confusion_matrix(y, k)
        N.confusion_matrix(x, k)
        N.prepend_0_to_each_row(x)
        N.prepend_1_to_each_row(x)
        N.prepend_scalar_to_each_row(5.0, x)
        N.prepend_0_to_each_row(v)
        N.h_softmax(x, 3, 4, 2, 2, x.T[:, :2], v[:2], t[:, :2], s)
        N.h_softmax(x, 3, 4, 2, 2, x.T[:, :2], v[:2], t[:, :2], s, k)
        N.batch_normalization(x, v[:2], v[:2], v[:2], v[1:] ** 2)
        N.batch_normalization(x, v[:2], v[:2], v[:2], v[1:] ** 2, mode="high_mem")
        N.bn.batch_normalization_train(x, v[:2], v[1:])
        N.bn.batch_normalization_train(x, v[:2], v[1:], running_mean=v[:2], running_var=v[1:])
        N.bn.batch_normalization_train(q, v[:2], v[1:], "spatial", 1e-3)
        N.bn.batch_normalization_train(q, v[:2], v[1:], (0, 2))
        N.bn.batch_normalization_train(x, v[:2], v[1:], epsilon=1e-6)
        N.bn.batch_normalization_test(x, v[:2], v[1:], v[:2], v[1:] ** 2)
        T.grad(N.bn.batch_normalization_train(x, v[:2], v[1:])[0][0].sum(), [x, v])
        T.grad(N.bn.batch_normalization_test(x, v[:2], v[1:], v[:2], v[1:] ** 2)[0].sum(), v)
        N.neighbours.images2neibs(q, (2, 3), (1, 1))
        N.neighbours.images2neibs(q, (2, 2))
        N.neighbours.images2neibs(q, (5, 3))
        N.neighbours.images2neibs(q, (3, 3), (1, 1), mode="wrap_centered")
        N.neighbours.images2neibs(q, (3, 3), (1, 1), mode="half")
        N.neighbours.images2neibs(q, (2, 2), (1, 1), mode="full")
        N.neighbours.images2neibs(q, (2, 4), mode="ignore_borders")
        N.neighbours.images2neibs(q, (2, 2), mode="same")
        N.neighbours.neibs2images(N.neighbours.images2neibs(q, (5, 3)), (5, 3), q.shape)
        T.grad((N.neighbours.images2neibs(q, (2, 3), (1, 1)) ** 2).sum(), q)
        T.grad((N.neighbours.images2neibs(q, (5, 3)) ** 2).sum(), q)
        N.ctc.ctc(t, x, v)
    """,
    "conv": """
        N.conv2d(q, w)
        N.conv2d(q, w, border_mode="full")
        N.conv2d(q, w, border_mode="half")
        N.conv2d(q, w, border_mode=1)
        N.conv2d(q, w, border_mode=(2, 0))
        N.conv2d(q, w, border_mode=((1, 0), 2))
        N.conv2d(q, w, border_mode=-1)
        N.conv2d(q, w, border_mode="same")
        N.conv2d(q, w, subsample=(2, 1))
        N.conv2d(q, w, filter_flip=False)
        N.conv2d(q, w, filter_dilation=(1, 2))
        N.conv2d(q, w[:2, :1], num_groups=2)
        N.conv2d(q, w[:1, :1])
        N.conv2d(q, w, (2, 2, 5, 6), (3, 2, 2, 3))
        N.conv2d(q, w, image_shape=(2, 2, 5, 6), input_shape=(2, 2, 5, 6))
        N.conv2d(q, w, imshp_logical=(2, 5, 6))
        N.conv2d(x, w)
        N.conv2d(q, t)
        T.grad((N.conv2d(q, w) ** 2).sum(), [q, w])
        T.grad((N.conv2d(q, w, border_mode="half", subsample=(2, 2)) ** 2).sum(), [q, w])
        T.grad((N.conv2d(q, w[:2, :1], num_groups=2, filter_dilation=(2, 1)) ** 2).sum(), [q, w])
        N.conv2d_transpose(N.conv2d(q, w), w, (2, 2, 5, 6))
        N.conv2d_transpose(N.conv2d(q, w), w, (None, None, 5, 6), border_mode="valid")
        N.conv2d_transpose(N.conv2d(q, w), w, (None, None, 7, 6))
        N.conv2d_grad_wrt_inputs(N.conv2d(q, w), w, (2, 2, 5, 6), (3, 2, 2, 3))
        N.abstract_conv.conv2d_grad_wrt_weights(q, N.conv2d(q, w), (3, 2, 2, 3))
        N.separable_conv2d(q, w[:2, :1], w[:, :, :1, :1], 2)
        N.abstract_conv.causal_conv1d(q[:, :, 0], w[:, :, 0], (3, 2, 3))
        N.abstract_conv.bilinear_upsampling(q, 2)
        N.abstract_conv.bilinear_upsampling(q, 3, use_1D_kernel=False)
        N.abstract_conv.bilinear_upsampling(q, frac_ratio=(3, 2), use_1D_kernel=False)
        N.abstract_conv.bilinear_upsampling(q)
        N.abstract_conv.bilinear_kernel_2D(3)
        N.conv3d(p, o)
        N.conv3d(p, o, border_mode="half", subsample=(1, 2, 1))
        N.conv3d(p, o, border_mode=((1, 0), 0, 0))
        T.grad((N.conv3d(p, o, border_mode="full") ** 2).sum(), [p, o])
        N.conv3d2d.conv3d(p.dimshuffle(0, 2, 1, 3, 4), o.dimshuffle(0, 2, 1, 3, 4))
        N.conv.conv2d(q, w)
        N.conv.conv2d(q, w, (2, 2, 5, 6), (3, 2, 2, 3), "full", (2, 2))
        N.conv.conv2d(q, w, (2, 3, 5, 6), (3, 2, 2, 3))
        N.conv.conv2d(q, w, (3, 2, 5, 6), (3, 2, 2, 3))
        T.grad(N.conv.conv2d(q, w).sum(), [q, w])
        T.grad(N.conv.conv2d(q, w, subsample=(2, 2)).sum(), w)
        N.ConvOp((2, 3, 3), (2, 2), 3, 2, imshp_logical=(2, 5, 5))(q[:, :, :3, :3], w[..., :2])
        N.ConvOp.getOutputShape((28, 28), (5, 5))
        N.ConvOp.getOutputShape((28, 28), (5, 5), (2, 2), "full")
        N.abstract_conv.get_conv_output_shape((2, 2, 5, 6), (3, 2, 2, 3), "half", (1, 2))
        N.abstract_conv.get_conv_output_shape((2, 2, 5, None), (3, 2, 2, 3), (1, (0, 1)), (1, 2))
        C.conv2d(x, s)
        C.conv2d(t, s, border_mode="full")
        C.conv2d(t, t[:, :2], (2, 3, 2), (2, 2, 2))
    """,
    "pool": """
        P.pool_2d(q, (2, 2), ignore_border=True)
        P.pool_2d(q, (2, 2), ignore_border=False)
        P.pool_2d(q, ws=(2, 2))
        P.pool_2d(q, ds=(2, 2), ignore_border=True)
        P.pool_2d(q, (2, 2), ds=(2, 2))
        P.pool_2d(q)
        P.pool_2d(q, (2, 3), True, (1, 2))
        P.pool_2d(q, (2, 3), True, st=(1, 2))
        P.pool_2d(q, (3, 3), False, (1, 2))
        P.pool_2d(q, (2, 2), False, (3, 3))
        P.pool_2d(q, (3, 3), True, (2, 2), (1, 2))
        P.pool_2d(q, (3, 3), True, (2, 2), padding=(1, 1))
        P.pool_2d(q, (2, 2), False, pad=(1, 1))
        P.pool_2d(q, (2, 2), True, pad=(2, 0))
        P.pool_2d(q, (2, 2), True, mode="sum")
        P.pool_2d(q, (3, 3), True, (2, 2), (1, 1), "sum")
        P.pool_2d(q, (3, 3), True, (2, 2), (1, 1), "average_inc_pad")
        P.pool_2d(q, (3, 3), True, (2, 2), (1, 1), "average_exc_pad")
        P.pool_2d(q, (2, 2), False, mode="average_inc_pad")
        P.pool_2d(q, (2, 2), False, mode="average_exc_pad")
        P.pool_2d(q, (2, 2), True, mode="max_deterministic")
        P.pool_2d(q, (2, 2), True, mode="min")
        P.pool_2d(q, (8, 8), True)
        P.pool_2d(x, (2, 2), True)
        P.pool_2d(v, (2, 2), True)
        P.pool_2d(x, (2.0, 2.0), True)
        P.pool_2d(k.dimshuffle("x", 0), (1, 2), False)
        P.pool_3d(p, (2, 2, 2), True)
        P.pool_3d(p, (2, 2, 1), False, (1, 2, 1), mode="average_inc_pad")
        P.pool_3d(x, (2, 2, 2), True)
        P.max_pool_2d_same_size(q, (2, 2))
        P.Pool.out_shape((2, 2, 5, 6), (2, 2))
        P.Pool.out_shape((2, 2, 5, 6), (2, 2), ignore_border=True)
        P.Pool.out_shape((5, 6), (3, 3), True, (2, 2), (1, 1))
        P.Pool.out_shape((2, 2, 5, 6), ds=(2, 2), st=(3, 3))
        P.Pool.out_shape((5,), (2, 2))
        T.grad((P.pool_2d(q, (2, 2), True) ** 2).sum(), q)
        T.grad((P.pool_2d(q, (3, 3), True, (2, 2), (1, 1)) ** 2).sum(), q)
        T.grad((P.pool_2d(q, (2, 2), False, mode="sum") ** 2).sum(), q)
        T.grad((P.pool_2d(q, (3, 3), True, (2, 2), (1, 1), "average_inc_pad") ** 2).sum(), q)
        T.grad((P.pool_2d(q, (2, 2), False, mode="average_exc_pad") ** 2).sum(), q)
        T.grad((P.pool_3d(p, (2, 2, 2), False) ** 2).sum(), p)
        T.grad(T.grad((P.pool_2d(q, (2, 2), True) ** 3).sum(), q).sum(), q)
        T.Rop(P.pool_2d(q, (2, 2), True), q, q * 2)
        T.Rop(P.pool_2d(q, (2, 2), True, mode="sum"), q, q * 2)
    """,
}
PICKLES = {
    "shared": "theano.shared(np.ones((2, 3), 'float32'), 'w')",
    "row": "theano.shared(np.ones((1, 3)), 'r', broadcastable=(True, False))",
    "number": "theano.shared(2.5, 's')",
    "types": "[T.fmatrix, T.drow, theano.scalar.float32, S.csr_matrix().type]",
    "constant": "T.constant(np.arange(3.0))",
    "expression": "T.tanh(T.dmatrix('x').dimshuffle(1, 0) + 1).sum()",
}
VALUES = {
    "x": np.array([[1.5, -2.0], [0.0, 3.25], [-0.5, 2.5]]),
    "f": np.array([[1.5, -2.0], [0.5, 3.25]], dtype="float32"),
    "v": np.array([0.5, -1.0, 2.0]),
    "k": np.array([0, 3, 1], dtype="int64"),
    "b": np.array([1, 2], dtype="int8"),
    "i": np.array(2, dtype="int64"),
    "r": np.array([[1.0, 2.0]]),
    "c": np.array([[1.0], [2.0], [4.0]]),
    "t": np.arange(12.0).reshape(2, 3, 2) / 4,
    "s": np.array([[2.0, 0.5], [0.5, 1.0]]),
    "a": np.array([[0.0, 2.0], [1.0, 0.0], [0.0, 4.0]]),
    "y": np.array([1, 0, 1], dtype="int64"),
    "q": np.sin(np.arange(120.0)).reshape(2, 2, 5, 6).round(3),
    "w": np.cos(np.arange(36.0)).reshape(3, 2, 2, 3).round(3),
    "p": np.sin(np.arange(72.0)).reshape(1, 2, 4, 3, 3).round(3),
    "o": np.cos(np.arange(16.0)).reshape(2, 2, 2, 2, 1).round(3),
}


def variables(theano, tensor, sparse):
    """The names that the expressions use; `a` is sparse."""
    made = {
        name: tensor.TensorType(value.dtype, [name == "r" and d == 0 for d in range(value.ndim)])(
            name
        )
        for name, value in VALUES.items()
        if name not in ("a", "c")
    }
    made["c"] = tensor.dcol("c")
    made["a"] = sparse.csr_matrix("a", dtype="float64")
    return made


def cases(section):
    """The expressions of a section."""
    return [line.strip() for line in SECTIONS[section].strip().splitlines()]


def namespace(theano, tensor, sparse, made):
    """What the expressions are evaluated with."""
    for name in ["nnet.ctc", "nnet.conv3d2d", "nnet.neighbours", "signal.conv", "signal.pool"]:
        importlib.import_module("theano.tensor." + name)
    return dict(
        made,
        theano=theano,
        T=tensor,
        S=sparse,
        N=tensor.nnet,
        P=tensor.signal.pool,
        C=tensor.signal.conv,
        np=np,
    )


def arguments(theano, made):
    """The inputs of a function of the variables, and their values."""
    import scipy.sparse

    values = dict(VALUES, a=scipy.sparse.csr_matrix(VALUES["a"]))
    return list(made.values()), [values[name] for name in made]


def describe(variable, value):
    """What is recorded of a result; sparse matrices have no pattern."""
    pattern = () if hasattr(variable, "format") else variable.broadcastable
    if hasattr(value, "toarray"):
        value = value.toarray()
    value = np.asarray(value)
    if value.dtype.kind == "c":
        value = np.stack([value.real, value.imag])
    return {
        "dtype": str(variable.dtype),
        "broadcastable": [bool(b) for b in pattern],
        "value": value.tolist(),
    }


def as_plain(result):
    """A result that is no variable, as JSON has it."""
    if isinstance(result, (list, tuple, set, frozenset)):
        return [as_plain(part) for part in result]
    if isinstance(result, dict):
        return {str(key): as_plain(part) for key, part in result.items()}
    if isinstance(result, (np.ndarray, np.generic)):
        return result.tolist()
    if result is None or isinstance(result, (bool, int, float, str)):
        return result
    return type(result).__name__


def record():
    """Evaluate every expression under Theano and return the results by section."""
    import theano
    import theano.sparse as sparse
    import theano.tensor as tensor
    import theano.tensor.inplace
    import theano.tensor.slinalg

    made = variables(theano, tensor, sparse)
    names = namespace(theano, tensor, sparse, made)
    inputs, values = arguments(theano, made)
    recorded = {}
    for section in SECTIONS:
        for case in cases(section):
            try:
                result = eval(case, names)
            except Exception as error:
                found = {"raises": type(error).__name__, "when": "built"}
            else:
                results = result if isinstance(result, (list, tuple)) else [result]
                if results and all(isinstance(part, theano.Variable) for part in results):
                    try:
                        # Theano's convolutions need a compiler, which FAST_COMPILE does not use.
                        mode = "FAST_RUN" if section == "conv" else "FAST_COMPILE"
                        function = theano.function(
                            inputs, list(results), on_unused_input="ignore", mode=mode
                        )
                        computed = function(*values)
                    except Exception as error:
                        found = {"raises": type(error).__name__, "when": "run"}
                    else:
                        pairs = zip(results, computed)  # noqa: B905  (Python 3.7)
                        found = {"results": [describe(*pair) for pair in pairs]}
                else:
                    found = {"plain": as_plain(result)}
            recorded.setdefault(section, {})[case] = found
    pickles = {
        name: base64.b64encode(pickle.dumps(eval(case, names), 2)).decode("ascii")
        for name, case in PICKLES.items()
    }
    return {"theano": theano.__version__, "pickles": pickles, **recorded}


def one_case_per_line(recorded):
    """Return what was recorded as JSON."""
    sections = []
    for section, found in sorted(recorded.items()):
        if isinstance(found, dict):
            cases = [f"{json.dumps(k)}: {json.dumps(v, sort_keys=True)}" for k, v in found.items()]
            found = "{\n" + ",\n".join(sorted(cases)) + "\n}"
        else:
            found = json.dumps(found)
        sections.append(f"{json.dumps(section)}: {found}")
    return "{\n" + ",\n".join(sections) + "\n}\n"


if __name__ == "__main__":
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "shim_cases.json")
    with open(path, "w") as file:
        file.write(one_case_per_line(record()))
