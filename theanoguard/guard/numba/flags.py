"""The processor's exception flags in functions that Numba compiles.

IEEE 754 has an operation raise a flag when it makes a NaN or an Inf.  The flags are sticky and
belong to the thread: they are cleared before a function runs and read after it.  On x86-64 that
takes two instructions; on aarch64 the C library does it.
"""

import platform
from collections.abc import Callable
from functools import lru_cache
from hashlib import sha256
from typing import Any

import numpy as np
import scipy.linalg.blas
from llvmlite import ir
from llvmlite.ir.instructions import CallInstr
from numba.core import cgutils, types
from numba.extending import intrinsic

from theanoguard._pytensor.numba import compile_numba_function_src, numba_njit
from theanoguard.guard.products import losing_shapes

X86 = platform.machine() in ("x86_64", "AMD64")
SUPPORTED = X86 or platform.machine() == "aarch64"

# Invalid operation, division by zero, overflow.
INVALID, DIVIDED, OVERFLOWED = (1, 4, 8) if X86 else (1, 2, 4)
STARRED = (types.StarArgTuple, types.StarArgUniTuple)  # type: ignore[attr-defined]
ALL = INVALID | DIVIDED | OVERFLOWED

_INT32 = ir.IntType(32)


def _mxcsr(builder: Any, name: str, slot: Any) -> None:
    """Store the control word of SSE into memory, or load it from there."""
    address = ir.IntType(8).as_pointer()
    kind = ir.FunctionType(ir.VoidType(), [address])
    function = cgutils.get_or_insert_function(builder.module, kind, f"llvm.x86.sse.{name}")
    builder.call(function, [builder.bitcast(slot, address)])


def _libm(builder: Any, name: str) -> Any:
    """Call a function of the C library that takes a set of flags."""
    kind = ir.FunctionType(_INT32, [_INT32])
    function = cgutils.get_or_insert_function(builder.module, kind, name)
    return builder.call(function, [ir.Constant(_INT32, ALL)])


def _read(builder: Any) -> Any:
    if not X86:
        return _libm(builder, "fetestexcept")
    slot = cgutils.alloca_once(builder, _INT32)
    _mxcsr(builder, "stmxcsr", slot)
    return builder.and_(builder.load(slot), ir.Constant(_INT32, ALL))


def _clear(builder: Any) -> None:
    if not X86:
        _libm(builder, "feclearexcept")
        return
    slot = cgutils.alloca_once(builder, _INT32)
    _mxcsr(builder, "stmxcsr", slot)
    others = ir.Constant(_INT32, 0xFFFFFFFF & ~ALL)
    builder.store(builder.and_(builder.load(slot), others), slot)
    _mxcsr(builder, "ldmxcsr", slot)


@intrinsic
def read_flags(typingctx: Any) -> tuple:
    """Return which flags are raised."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.zext(_read(builder), ir.IntType(64))

    return types.int64(), codegen


@intrinsic
def clear_flags(typingctx: Any) -> tuple:
    """Clear the flags."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _clear(builder)
        return context.get_constant(types.int64, 0)

    return types.int64(), codegen


@intrinsic
def call_apart(typingctx: Any, function: Any, args: Any) -> tuple:
    """Call a function that is not compiled into its caller.

    LLVM knows nothing of the flags: arithmetic of the function itself could be moved to before
    they are cleared, or to after they are read.
    """
    inner = typingctx.resolve_function_type(function, tuple(args), {})
    compiled = function.dispatcher.get_compile_result(inner)

    def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        context.active_code_library.add_linking_library(compiled.library)
        given = cgutils.unpack_tuple(builder, values[1]) if len(args) else []
        if inner.args and isinstance(inner.args[-1], STARRED):
            fixed = len(inner.args) - 1
            rest = context.make_tuple(builder, inner.args[-1], given[fixed:])
            given = [*given[:fixed], rest]
        result = context.call_internal(builder, compiled.fndesc, inner, given)
        for block in builder.function.blocks:
            for instruction in block.instructions:
                if isinstance(instruction, CallInstr) and compiled.fndesc.llvm_func_name == getattr(
                    instruction.callee, "name", None
                ):
                    instruction.attributes.add("noinline")
        return result

    return inner.return_type(function, args), codegen


@lru_cache(maxsize=1)
def _functions() -> tuple[Callable[[], int], Callable[[], int]]:
    """Return functions that Python can call: one reads the flags, one clears them."""

    def read() -> int:
        return read_flags()

    def clear() -> int:
        return clear_flags()

    return numba_njit(read, final_function=True), numba_njit(clear, final_function=True)


def raised() -> int:
    """Return which flags are raised in this thread."""
    return _functions()[0]()


def clear() -> None:
    """Clear the flags of this thread."""
    _functions()[1]()


TEST = """
def compute(x, out):
    for i in range(x.size):
        out[0, i] = np.log(x[i])
        out[1, i] = np.exp(x[i])
        out[2, i] = x[i] * x[i]
        out[3, i] = np.log1p(x[i])
        out[4, i] = x[i] - x[i] * two
        out[5, i] = np.arccos(x[i] / (abs(x[i]) + two))
    return out[0, 0]

def test(x, out):
    clear_flags()
    call_apart(compute_there, (x, out))
    return read_flags()
"""


@lru_cache(maxsize=1)
def are_reliable() -> bool:
    """Whether the flags say the same as the values, in code that Numba compiles here."""
    if not SUPPORTED:
        return False
    key = sha256(TEST.encode()).hexdigest()

    def compiled(name: str, last: bool = False, **names: Any) -> Callable:
        function = compile_numba_function_src(
            TEST,
            name,
            {**globals(), **names, "two": 2.0},
            cache_key=f"theanoguard_{name}_{key}",
        )
        return numba_njit(function, final_function=last, cache=True)

    test = compiled("test", last=True, compute_there=compiled("compute"))
    for dtype in ("float64", "float32"):
        largest = np.finfo(dtype).max
        for special in (0.0, -0.5, -1.0, -2.0, 0.5, 100.0, 800.0, -800.0, largest, -largest):
            for place in (0, 5, 18):
                x: np.ndarray = np.full(19, 1.5, dtype)
                x[place] = special
                out: np.ndarray = np.zeros((6, x.size), dtype)
                flags = test(x, out)
                if bool(flags) == bool(np.isfinite(out).all()):
                    return False
    return True


@lru_cache(maxsize=1)
def products_carry() -> bool:
    """Whether matrix products multiply 0 by NaN and Inf, instead of leaving zeros out."""
    for dtype, prefix in (("float64", "d"), ("float32", "s")):
        dot, gemv, gemm = (
            getattr(scipy.linalg.blas, prefix + name) for name in ("dot", "gemv", "gemm")
        )
        tries = [
            ({0: "k", 1: "k"}, lambda a, dot=dot: dot(a[0], a[1])),
            *(
                ({0: axes, 1: "k"}, lambda a, t=t, gemv=gemv: gemv(1.0, a[0], a[1], trans=t))
                for t, axes in enumerate(("mk", "km"))
            ),
            *(
                (
                    {0: first, 1: second},
                    lambda a, s=s, t=t, gemm=gemm: gemm(1.0, a[0], a[1], trans_a=s, trans_b=t),
                )
                for s, first in enumerate(("mk", "km"))
                for t, second in enumerate(("kn", "nk"))
            ),
        ]
        if any(losing_shapes(axes, {}, run, dtype) for axes, run in tries):
            return False
    return True
