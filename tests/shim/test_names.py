"""The names of Theano 1.0.5 resolve under the shim.

The names are those that public legacy projects use and that have a meaning without a GPU, and all
of ``theano.tensor``.
"""

import importlib
import json
import re
from pathlib import Path

import numpy as np
import pytest

NAMES = {
    "theano": """
        Apply In Mode Op OrderedUpdates Variable __version__ _asarray change_flags clone
        config dot foldl foldr function gof grad gradient map printing sandbox scalar scan
        shared sparse tensor
    """,
    "theano.__spec__": """
        submodule_search_locations
    """,
    "theano.compat": """
        OrderedDict exc_message get_unbound_function
    """,
    "theano.compile": """
        SharedVariable ViewOp function function_module get_default_mode nanguardmode optdb
        view_op
    """,
    "theano.compile.builders": """
        OpFromGraph
    """,
    "theano.compile.debugmode.default_make_thunk": """
        append
    """,
    "theano.compile.function_module": """
        UnusedInputError
    """,
    "theano.compile.mode": """
        get_default_mode get_mode
    """,
    "theano.compile.nanguardmode": """
        NanGuardMode
    """,
    "theano.compile.ops": """
        as_op
    """,
    "theano.compile.optdb": """
        register
    """,
    "theano.compile.profiling": """
        ProfileStats
    """,
    "theano.compile.sharedvalue": """
        SharedVariable
    """,
    "theano.config": """
        compiledir compute_test_value cxx device floatX mode profile profile_memory
        warn_float64
    """,
    "theano.config.warn": """
        subtensor_merge_bug sum_div_dimshuffle_bug
    """,
    "theano.configparser": """
        AddConfigVar StrParam
    """,
    "theano.gof": """
        Apply Constant MissingInputError Op OpRemove OpWiseCLinker TopoOptimizer Type
        Variable compilelock graph local_optimizer utils
    """,
    "theano.gof.Op": """
        __init__
    """,
    "theano.gof.TopoOptimizer": """
        warn_inplace
    """,
    "theano.gof.cmodule": """
        get_lib_extension
    """,
    "theano.gof.compilelock": """
        get_lock release_lock
    """,
    "theano.gof.graph": """
        Constant Variable ancestors inputs io_toposort is_same_graph
    """,
    "theano.gof.op": """
        PureOp debug_assert debug_error_message get_debug_values
    """,
    "theano.gof.op.PureOp": """
        _get_test_value
    """,
    "theano.gof.type": """
        Type
    """,
    "theano.gradient": """
        DisconnectedInputError DisconnectedType NullTypeGradError disconnected_grad grad
        grad_clip grad_not_implemented verify_grad
    """,
    "theano.ifelse": """
        ifelse
    """,
    "theano.misc.strutil": """
        render_string
    """,
    "theano.printing": """
        Print _TagGenerator debugprint min_informative_str var_descriptor
    """,
    "theano.sandbox": """
        rng_mrg
    """,
    "theano.sandbox.rng_mrg": """
        MRG_RandomStreams
    """,
    "theano.sandbox.softsign": """
        softsign
    """,
    "theano.scalar": """
        Identity UnaryScalarOp all_types identity sgn upcast upgrade_to_float
        upgrade_to_float_no_complex
    """,
    "theano.scalar.basic": """
        Identity all_types
    """,
    "theano.scalar.basic_scipy": """
        GammaLn Psi
    """,
    "theano.scan_module": """
        until
    """,
    "theano.scan_module.scan_op": """
        Scan
    """,
    "theano.scan_module.scan_utils": """
        equal_computations until
    """,
    "theano.sparse": """
        CSM CSR SparseType SparseVariable as_sparse as_sparse_variable cast csc_from_dense
        csc_matrix csm_properties csr_from_dense csr_matrix dense_from_sparse dot
        enable_sparse hstack matrix mul structured_dot
    """,
    "theano.sparse.SparseType": """
        dtype_set
    """,
    "theano.sparse.basic": """
        _is_sparse_variable as_sparse hstack structured_dot vstack
    """,
    "theano.sparse.sandbox.sp2": """
        sampling_dot
    """,
    "theano.tensor": """
        ARange AdvancedBooleanIncSubtensor AdvancedBooleanIndexingError
        AdvancedBooleanSubtensor AdvancedIncSubtensor AdvancedIncSubtensor1
        AdvancedIndexingError AdvancedSubtensor AdvancedSubtensor1 Alloc AllocDiag
        AllocEmpty Apply Argmax AsTensorError BaseAdvancedIncSubtensor
        BaseAdvancedSubtensor CAReduce Choose Constant Default DiffOp DimShuffle
        DisconnectedType Dot Elemwise EmptyConstantError ExtractDiag Eye Flatten
        IncSubtensor Join LoadFromDisk Lop
         MakeSlice MaxAndArgmax Mean NoneConst NoneTypeT
        Nonzero NotScalarConstantError Op PermuteRowElements Rebroadcast Reshape Rop
        ScalarFromTensor Shape ShapeError SliceConstant SliceType SpecifyShape Split
        Subtensor SubtensorPrinter Sum Tensor TensorConstant TensorConstantSignature
        TensorFromScalar TensorType TensorVariable Tile Tri Type Variable abs_ add
        addbroadcast advanced_boolean_inc_subtensor
        advanced_boolean_set_subtensor advanced_boolean_subtensor advanced_inc_subtensor
        advanced_inc_subtensor1 advanced_set_subtensor advanced_set_subtensor1
        advanced_subtensor advanced_subtensor1 all all_dtypes allclose alloc
         and_ angle any arange arccos arccosh arcsin arcsinh arctan
        arctan2 arctanh argmax argmin argsort argtopk
        as_int_none_variable as_tensor as_tensor_variable bartlett basic batched_dot
        batched_tensordot bcol bincount bitwise_and bitwise_not bitwise_or bitwise_xor
        blas blas_c blas_scipy bmatrix brow bscalar btensor3 btensor4
        btensor5 btensor6 btensor7 bvector cast ccol ceil ceil_intdiv
         check_and_normalize_axes
        check_equal_numpy chi2sf choose clip cmatrix col cols complex complex_dtypes
        complex_from_polar complex_matrix_types complex_scalar_types complex_types
        complex_vector_types concatenate config conj consider_constant constant
         constructor continuous_dtypes cos cosh cov crow cscalar ctensor3
        ctensor4 ctensor5 ctensor6 ctensor7 cumprod cumsum cvector dcol dcols
        default deg2rad diag diagonal discrete_dtypes div_proxy divmod dmatrices dmatrix
        dot drow drows dscalar dscalars dtensor3 dtensor3s dtensor4 dtensor4s dtensor5
        dtensor5s dtensor6 dtensor6s dtensor7 dtensor7s dvector dvectors elemwise
        elemwise_cgen eq erf erfc erfcinv erfcx erfinv exp exp2 expm1 extra_ops
        extract_constant eye fcol fcols fill fill_diagonal fill_diagonal_offset
        flatnonzero flatten float16_atol float16_rtol float32_atol float32_rtol
        float64_atol float64_rtol float_dtypes float_matrix_types float_scalar_types
        float_types float_vector_types floor floor_div fmatrices fmatrix frow frows
        fscalar fscalars ftensor3 ftensor3s ftensor4 ftensor4s ftensor5 ftensor5s ftensor6
        ftensor6s ftensor7 ftensor7s fvector fvectors gamma gammainc gammaincc gammal
        gammaln gammau ge get_canonical_form_slice get_idx_list get_scalar_constant_value
         get_vector_length grad grad_not_implemented
        grad_undefined gt hashtype hessian horizontal_stack i0 i1 icol icols identity_like
        imag imatrices imatrix inc_subtensor int32 int_div int_dtypes
        int_matrix_types int_scalar_types int_types int_vector_types integer_dtypes inv
        inverse_permutation invert io iround irow irows is_flat iscalar iscalars
        isclose isinf isinf_ isnan isnan_ itensor3 itensor3s itensor4 itensor4s
        itensor5 itensor5s itensor6 itensor6s itensor7 itensor7s iv ivector ivectors j0 j1
        jacobian join join_ jv largest lcol lcols le lmatrices lmatrix load log
        log10 log1p log2 lrow lrows lscalar lscalars lt ltensor3 ltensor3s ltensor4
        ltensor4s ltensor5 ltensor5s ltensor6 ltensor6s ltensor7 ltensor7s lvector
        lvectors makeKeepDims make_slice matrices matrix max max_and_argmax
        maximum mean mgrid min minimum mod mod_check mpi_enabled
            mul neg neq nlinalg
        nnet none_type_t nonzero nonzero_values numeric_grad numpy_diagonal_return_view
        numpy_scalar ogrid ones ones_like opt opt_uncanonicalize or_ outer
        patternbroadcast permute_row_elements pow power prod psi ptp python_all python_any
        python_complex rad2deg ravel_multi_index raw_random real register_transfer
        repeat reshape roll round round_half_away_from_zero round_half_to_even row rows
        scal scalar scalar_from_tensor scalars second set_subtensor setdefault sgn
        shape shape_padaxis shape_padleft shape_padright shared_randomstreams sharedvar
        sin sinh slicetype slinalg smallest sort specify_shape split sqr
        sqrt square squeeze stack stacklists std sub subtensor sum swapaxes switch take
        tan tanh tensor tensor3 tensor3s tensor4 tensor4s tensor5 tensor5s tensor6
        tensor6s tensor7 tensor7s tensor_copy tensor_from_scalar tensordot tile topk
        topk_and_argtopk transfer transpose tri tri_gamma tril triu true_div trunc type
        type_other uint_dtypes unbroadcast unravel_index utils
        values_eq_approx_always_true var vector vectors verify_grad vertical_stack wcol
        where wmatrix wrow wscalar wtensor3 wtensor4 wtensor5 wtensor6 wtensor7 wvector
        xlogx xor zcol zeros zeros_like zmatrix zrow zscalar ztensor3 ztensor4 ztensor5
        ztensor6 ztensor7 zvector
    """,
    "theano.tensor.basic": """
        DimShuffle Elemwise TensorConstant _allclose
    """,
    "theano.tensor.config": """
        floatX
    """,
    "theano.tensor.extra_ops": """
        cumprod cumsum repeat to_one_hot
    """,
    "theano.tensor.nlinalg": """
        SVD det diag eigh extract_diag matrix_dot matrix_inverse trace
    """,
    "theano.tensor.nnet": """
        Softmax abstract_conv binary_crossentropy bn categorical_crossentropy conv conv2d
        conv3d elu h_softmax hard_sigmoid relu sigmoid softmax softmax_with_bias softplus
        ultra_fast_sigmoid
    """,
    "theano.tensor.nnet.abstract_conv": """
        AbstractConv2d_gradInputs AbstractConv2d_gradWeights AbstractConv3d_gradInputs
        bilinear_upsampling get_conv_output_shape
    """,
    "theano.tensor.nnet.bn": """
        batch_normalization batch_normalization_test batch_normalization_train
    """,
    "theano.tensor.nnet.conv": """
        ConvOp conv2d
    """,
    "theano.tensor.nnet.conv.ConvOp": """
        getOutputShape
    """,
    "theano.tensor.nnet.conv3d2d": """
        conv3d
    """,
    "theano.tensor.nnet.nnet": """
        softsign
    """,
    "theano.tensor.nnet.sigm": """
        ScalarSigmoid
    """,
    "theano.tensor.opt": """
        Assert register_canonicalize
    """,
    "theano.tensor.shared_randomstreams": """
        RandomStateSharedVariable RandomStreams
    """,
    "theano.tensor.sharedvar": """
        ScalarSharedVariable SharedVariable TensorSharedVariable
    """,
    "theano.tensor.signal": """
        pool
    """,
    "theano.tensor.signal.pool": """
        Pool pool_2d pool_3d
    """,
    "theano.tensor.signal.pool.Pool": """
        out_shape
    """,
    "theano.tensor.slinalg": """
        Cholesky Solve cholesky kron solve solve_lower_triangular solve_upper_triangular
    """,
    "theano.tensor.subtensor": """
        Subtensor
    """,
    "theano.tensor.var": """
        TensorVariable
    """,
    "theano.tensor.xlogx": """
        xlogx xlogy0
    """,
    "theano.tests": """
        disturb_mem unittest_tools
    """,
    "theano.tests.disturb_mem": """
        disturb_mem
    """,
    "theano.tests.record": """
        Record RecordMode
    """,
    "theano.tests.unittest_tools": """
        assert_allclose verify_grad
    """,
    "theano.version": """
        version
    """,
}


def resolve(path):
    """The object of a dotted path: of the longest part that is a module, and attributes of it."""
    parts = path.split(".")
    found = importlib.import_module(parts[0])
    for i, part in enumerate(parts[1:], 2):
        try:
            found = importlib.import_module(".".join(parts[:i]))
        except ImportError:
            found = getattr(found, part)
    return found


@pytest.mark.parametrize("place", sorted(NAMES))
def test_names_resolve(place, shim):
    owner = resolve(place)
    missing = []
    for name in NAMES[place].split():
        try:
            resolve(f"{place}.{name}")
        except (AttributeError, ImportError) as error:
            missing.append(f"{name}: {error}")
    assert owner is not None
    assert not missing


def test_what_the_modules_import_themselves(shim):
    """Legacy code takes that from them, too."""
    names = {}
    exec("from theano import theano; from theano.tensor import *", names)
    assert names["theano"] is shim
    assert names["np"] is np
    assert shim.tensor.nnet.nnet.gof is shim.gof
    assert shim.tensor.config is shim.config


def test_a_missing_name_is_noticed(shim):
    with pytest.raises((AttributeError, ImportError)):
        resolve("theano.tensor.no_such_name")


@pytest.mark.parametrize(
    ("module", "use"),
    [
        ("theano.gof.unify", "PatternSub"),
        ("theano.sandbox.fourier", "theano.tensor.fft"),
        ("theano.scalar.basic_sympy", "theano.tensor"),
    ],
)
def test_a_module_that_is_not_there_says_what_to_use(module, use, shim):
    with pytest.raises(ImportError, match=f"^{module} does not exist on PyTensor.\n.*{use}"):
        importlib.import_module(module)


PUBLIC = json.loads(Path(__file__).with_name("public_names.json").read_text("utf-8"))


def test_every_public_name_is_there_or_says_what_to_use(shim):
    absent = 0
    for module, names in PUBLIC.items():
        for name in names.split():
            try:
                exec(f"from {module} import {name}", {})
            except ImportError as error:
                absent += 1
                first, *use = str(error).splitlines()
                assert re.fullmatch(rf"{module}(\.{name})? does not exist on PyTensor\.", first)
                assert len(use) == 1
    assert absent < 220


def test_the_package_has_the_functions_of_basic(shim):
    # What another module of the package imports must not take their place.
    package, basic = vars(shim.tensor), vars(shim.tensor.basic)
    names = {name for name in package.keys() & basic.keys() if not name.startswith("_")}
    assert len(names) > 400
    assert {name for name in names if package[name] is not basic[name]} == set()


def test_indices_are_printed_as_by_theano(shim):
    T = shim.tensor
    x, i, k, rows = T.dmatrix("x"), T.iscalar("i"), T.lscalar("k"), T.ivector("iv")
    printed = {
        x[i]: "x[ScalarFromTensor(i)]",
        x[i:k]: "x[int32:int64]",
        x[:, i]: "x[:, ScalarFromTensor(i)]",
        x[::2]: "x[::int64]",
        x[-1]: "x[Constant{-1}]",
        x[rows]: "AdvancedSubtensor1(x, iv)",
        x[[0, 1]]: "AdvancedSubtensor1(x, TensorConstant{[0 1]})",
        x[rows, rows]: "AdvancedSubtensor(x, iv, iv)",
        x[x > 0]: "AdvancedBooleanSubtensor(x, gt(x, TensorConstant{0}))",
        T.inc_subtensor(x[rows], 1): (
            "AdvancedIncSubtensor1{no_inplace,inc}(x, TensorConstant{1}, iv)"
        ),
        T.set_subtensor(x[rows, rows], 1): (
            "AdvancedIncSubtensor{inplace=False,  set_instead_of_inc=True}"
            "(x, TensorConstant{1}, iv, iv)"
        ),
        T.concatenate([x, x], axis=1): "join(TensorConstant{1}, x, x)",
        T.join(0, x, x): "join(TensorConstant{0}, x, x)",
        T.set_subtensor(
            x[i], 1
        ): "IncSubtensor{Set;int32}(x, TensorConstant{1}, ScalarFromTensor(i))",
    }
    assert [shim.pp(variable) for variable in printed] == list(printed.values())


def test_a_picture_takes_numbers_for_booleans(shim):
    x = shim.tensor.dvector("x")
    settings = {"format": "dot", "return_image": 1}
    picture = shim.printing.pydotprint(x * 2, compact=0, with_ids=1, **settings)
    assert picture == shim.printing.pydotprint(x * 2, compact=False, with_ids=True, **settings)


def test_counts_in_typed_lists_are_floats(shim):
    from theano.typed_list import TypedListType

    known, x = TypedListType(shim.tensor.dvector)(), shim.tensor.dvector()
    counts = known.count(x), known.ind(x)
    found = shim.function([known, x], counts)([np.zeros(1), np.ones(1), np.ones(1)], np.ones(1))
    assert [v.dtype for v in counts] == [v.dtype for v in found] == ["float64", "float64"]
    assert [float(v) for v in found] == [2, 1]


def test_typed_lists(shim):
    from theano.typed_list import TypedListType, append, length

    vectors = TypedListType(shim.tensor.dvector)()
    v = shim.tensor.dvector()
    longer = append(vectors, v)
    f = shim.function([vectors, v], [length(longer), longer.__len__()], mode="FAST_COMPILE")
    assert f([[1.0]], [2.0, 3.0]) == [2, 2]


# What PyMC3 3.10 and 3.11 import of Theano-PyMC.
THEANO_PYMC = """
from theano.graph.basic import Apply, Constant, Variable, ancestors, graph_inputs, walk
from theano.graph.fg import MissingInputError
from theano.graph.op import Op, get_test_value
from theano.graph.utils import TestValueError
from theano.gof.utils import TestValueError as OlderTestValueError
from theano.sandbox.rng_mrg import MRG_RandomStream
from theano.scan import until
import theano.graph.basic, theano.scan.utils, theano.scan.op
"""


def test_names_of_theano_pymc(shim):
    names = {}
    exec(THEANO_PYMC, names)
    T = shim.tensor
    x = T.dvector("x")
    with pytest.raises(names["TestValueError"]):
        names["get_test_value"](x)
    assert names["OlderTestValueError"] is names["TestValueError"]
    assert names["graph_inputs"]([x + 1])[0] is x
    assert x in list(names["walk"]([x + 1], lambda v: v.owner.inputs if v.owner else None))
    # The package is still the function that it is named after.
    import theano

    doubled, _ = theano.scan(lambda a: (a * 2, names["until"](a > 1)), x)
    ops = [v.owner.op for v in names["ancestors"]([doubled]) if v.owner]
    assert any(isinstance(op, names["theano"].scan.op.Scan) for op in ops)
    np.testing.assert_array_equal(doubled.eval({x: [1.0, 2.0, 3.0]}), [2.0, 4.0])


def test_configuration_of_theano_pymc(shim):
    config = shim.config
    assert config.gcc__cxxflags == config.gcc.cxxflags

    @config.change_flags(compute_test_value="raise", gcc__cxxflags="-O1")
    def changed():
        return config.compute_test_value, config.gcc.cxxflags

    before = config.compute_test_value, config.gcc.cxxflags
    assert changed() == ("raise", "-O1")
    assert (config.compute_test_value, config.gcc.cxxflags) == before
