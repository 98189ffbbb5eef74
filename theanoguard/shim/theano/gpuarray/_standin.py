"""What stands for the operations of the GPU backend: they can be named, not applied.

On a machine without a GPU, Theano 1.0.5 imports every name of its backend and raises as soon as one
is applied to a variable.
"""

from .. import gof
from .type import ContextNotDefined

# Module: its classes, then its functions and the instances of its classes.
NAMES = {
    "basic_ops": (
        "CGpuKernelBase GpuAlloc GpuAllocEmpty GpuContiguous GpuEye GpuFromHost GpuJoin"
        " GpuKernelBase GpuReshape GpuSplit GpuToGpu GpuTri HostFromGpu Kernel",
        "gpu_contiguous gpu_join host_from_gpu",
    ),
    "blas": (
        "BaseGpuCorr3dMM BaseGpuCorrMM BlasOp GpuCorr3dMM GpuCorr3dMM_gradInputs"
        " GpuCorr3dMM_gradWeights GpuCorrMM GpuCorrMM_gradInputs GpuCorrMM_gradWeights GpuDot22"
        " GpuGemm GpuGemmBatch GpuGemv GpuGer",
        "gpu_dot22 gpugemm_inplace gpugemm_no_inplace gpugemmbatch_inplace gpugemmbatch_no_inplace"
        " gpugemv_inplace gpugemv_no_inplace gpuger_inplace gpuger_no_inplace",
    ),
    "blocksparse": (
        "GpuSparseBlockGemv GpuSparseBlockOuter",
        "gpu_sparse_block_gemv gpu_sparse_block_gemv_inplace gpu_sparse_block_outer"
        " gpu_sparse_block_outer_inplace",
    ),
    "ctc": ("GpuConnectionistTemporalClassification", "gpu_ctc"),
    "dnn": (
        "DnnBase DnnVersion GpuDnnBatchNorm GpuDnnBatchNormGrad GpuDnnBatchNormInference GpuDnnConv"
        " GpuDnnConvDesc GpuDnnConvGradI GpuDnnConvGradW GpuDnnDropoutOp GpuDnnPool GpuDnnPoolBase"
        " GpuDnnPoolDesc GpuDnnPoolGrad GpuDnnRNNGradInputs GpuDnnRNNGradWeights GpuDnnRNNOp"
        " GpuDnnReduction GpuDnnSoftmax GpuDnnSoftmaxBase GpuDnnSoftmaxGrad GpuDnnTransformerGradI"
        " GpuDnnTransformerGradT GpuDnnTransformerGrid GpuDnnTransformerSampler NoCuDNNRaise"
        " RNNBlock",
        "dnn_batch_normalization_test dnn_batch_normalization_train dnn_conv dnn_conv3d"
        " dnn_gradinput dnn_gradinput3d dnn_gradweight dnn_gradweight3d dnn_pool dnn_spatialtf"
        " dropout",
    ),
    "elemwise": (
        "GpuCAReduce GpuCAReduceCPY GpuCAReduceCuda GpuDimShuffle GpuElemwise GpuErfcinv GpuErfinv",
        "gpu_ca_reduce_cuda gpu_erfcinv gpu_erfinv",
    ),
    "extra_ops": ("GpuCumOp GpuCumsumOp", ""),
    "fft": ("CuIRFFTOp CuRFFTOp", "cuirfft cuirfft_op curfft curfft_op"),
    "linalg": (
        "GpuCholesky GpuCublasTriangularSolve GpuCusolverSolve GpuMagmaBase GpuMagmaCholesky"
        " GpuMagmaEigh GpuMagmaMatrixInverse GpuMagmaQR GpuMagmaSVD",
        "gpu_cholesky gpu_matrix_inverse gpu_qr gpu_solve gpu_solve_lower_triangular"
        " gpu_solve_upper_triangular gpu_svd",
    ),
    "multinomial": (
        "GPUAChoiceFromUniform GPUAMultinomialFromUniform GPUAMultinomialWOReplacementFromUniform",
        "",
    ),
    "neighbours": ("GpuImages2Neibs", ""),
    "nnet": (
        "GpuCrossentropySoftmax1HotWithBiasDx GpuCrossentropySoftmaxArgmax1HotWithBias GpuSoftmax"
        " GpuSoftmaxWithBias",
        "gpu_crossentropy_softmax_1hot_with_bias_dx"
        " gpu_crossentropy_softmax_argmax_1hot_with_bias gpu_softmax gpu_softmax_with_bias",
    ),
    "opt": (
        "ConvMetaOptimizer GraphToGPU GraphToGPUDB InputToGpuOptimizer",
        "op_lifter register_inplace register_opt register_opt2 safe_to_cpu safe_to_gpu"
        " tensor_to_gpu",
    ),
    "pool": (
        "GpuAveragePoolGrad GpuDownsampleFactorMaxGradGrad GpuMaxPoolGrad GpuMaxPoolRop GpuPool",
        "",
    ),
    "reduction": ("GpuMaxAndArgmax", ""),
    "rng_mrg": ("GPUA_mrg_uniform", ""),
    "sort": ("GpuTopKOp", ""),
    "subtensor": (
        "BaseGpuAdvancedIncSubtensor BaseGpuAdvancedSubtensor GpuAdvancedBooleanIncSubtensor"
        " GpuAdvancedBooleanSubtensor GpuAdvancedIncSubtensor GpuAdvancedIncSubtensor1"
        " GpuAdvancedIncSubtensor1_dev20 GpuAdvancedSubtensor GpuAdvancedSubtensor1 GpuAllocDiag"
        " GpuExtractDiag GpuIncSubtensor GpuSubtensor",
        "",
    ),
}


class GpuOp(gof.Op):
    """An operation on a GPU: it can be made and asked for, and not applied."""

    def __init__(self, *args, **kwargs):
        pass

    def make_node(self, *inputs):
        raise refusal(f"{type(self).__module__}.{type(self).__name__}")


def refusal(name):
    """The error for an operation that is applied."""
    return ValueError(
        f"Could not infer context from inputs: {name} works on a GPU, and there is none here.\n"
        "Use its counterpart in theano.tensor."
    )


def make_function(module, name):
    """Return a function that refuses to be called."""

    def function(*args, **kwargs):
        raise refusal(f"{module}.{name}")

    function.__name__ = function.__qualname__ = name
    function.__module__ = module
    return function


def stand_ins(module):
    """Return what stands for the names of a module of the GPU backend."""
    classes, functions = NAMES[module.rpartition(".")[2]]
    made = {name: type(name, (GpuOp,), {"__module__": module}) for name in classes.split()}
    made |= {name: make_function(module, name) for name in functions.split()}
    return made


def as_gpuarray_variable(x, context_name):
    """Raise a `ContextNotDefined`: there is no GPU."""
    raise ContextNotDefined(f"context name {context_name} not defined")


def infer_context_name(*vars):
    """Raise a ValueError: there is no GPU."""
    raise ValueError("Could not infer context from inputs")
