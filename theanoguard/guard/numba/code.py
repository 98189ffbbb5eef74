"""The Numba code of the guard's operations; imported only when a graph is compiled for Numba."""

from collections.abc import Callable, Iterator
from functools import cache, partial, reduce
from hashlib import sha256
from importlib import resources
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.scalar.basic import ScalarType

from theanoguard._pytensor import CheckedBody, config, inner_graphs_for_numba, is_sparse
from theanoguard._pytensor.numba import (
    compile_numba_function_src,
    numba_funcify,
    numba_funcify_and_cache_key,
    numba_funcify_default_op_cache_key,
    numba_njit,
    register_funcify_and_cache_key,
    register_funcify_default_op_cache_key,
)
from theanoguard.guard.graph.checks import floor_to
from theanoguard.guard.numba.flags import call_apart, clear_flags, read_flags
from theanoguard.guard.numba.ops import (
    COUNTING,
    CUT,
    FLAGS,
    FOUND,
    Bracketed,
    InBlocks,
    InDomain,
    IsBad,
    SaveRows,
    Stop,
    Stopped,
    Unsaved,
    Until,
    Watch,
    WatchEmpty,
    WatchRows,
    WatchTrue,
    Within,
)
from theanoguard.guard.partly import COUNT, LENGTH, SAVED

# Part of the key of Numba's cache on disk, so that a change of these files compiles the checks
# again.
SOURCE = "".join(
    resources.files("theanoguard.guard.numba").joinpath(name).read_text("utf-8")
    for name in ("code.py", "flags.py", "ops.py")
)


inner_graphs = partial(inner_graphs_for_numba, compiled_by=numba_funcify_and_cache_key.dispatch)


def runs_in_python(op: Any) -> bool:
    """Whether an operation has no Numba implementation, so that Numba calls Python."""
    return all(
        dispatcher.dispatch(type(op)) is dispatcher.dispatch(object)
        for dispatcher in (
            numba_funcify,
            numba_funcify_and_cache_key,
            numba_funcify_default_op_cache_key,
        )
    )


@register_funcify_and_cache_key(CheckedBody)
def numba_funcify_checked_body(
    op: Any, node: Apply | None = None, ofg_memo: Any = None, storage_map: Any = None, **kwargs: Any
) -> tuple[Callable, str | None]:
    return numba_funcify_and_cache_key(
        op.fgraph, squeeze_output=True, fgraph_name="checked_body", **kwargs
    )


def bad_element(op: Any, dtype: str) -> Callable:
    """Return a function that returns whether one element is bad, by the rule of ``Policy.mask``."""
    kind = np.dtype(dtype).kind
    if kind in "iu":
        limit = op.limit
        return numba_njit(lambda v: abs(np.float64(v)) > limit)
    if kind not in "fc":
        return numba_njit(lambda v: False)
    real: Any = np.empty(0, dtype).real.dtype.type
    limit = floor_to(op.limit, real) if op.big else np.finfo(real).max
    if kind == "c" and not op.big:
        size = numba_njit(lambda v: max(abs(v.real), abs(v.imag)))
    else:
        size = numba_njit(lambda v: abs(v))
    if not (op.inf or op.big):
        return numba_njit(lambda v: v != v)
    if op.nan and kind == "f":
        return numba_njit(lambda v: not (abs(v) <= limit))
    if op.nan:
        return numba_njit(lambda v: v != v or not (size(v) <= limit))
    return numba_njit(lambda v: v == v and size(v) > limit)


VECTOR = 64  # bytes checked in one step; LLVM splits them to fit the processor's registers


def excess(builder: Any, op: Watch, bits: Any, size: int) -> Any:
    """Return an integer, or a vector of them, that is negative if the bits of a float are bad.

    Without the sign bit, the bits of floats have the same order as their magnitudes, with NaN
    above Inf.  Integers are compared because fast-math options cannot remove that comparison.
    """
    real = np.dtype(f"float{size}").type
    integer = bits.type.element if isinstance(bits.type, ir.VectorType) else bits.type

    def constant(number: Any) -> Any:
        one = ir.Constant(integer, int(number))
        if bits.type is integer:
            return one
        return ir.Constant(bits.type, [one] * bits.type.count)

    def bits_of(number: Any) -> int:
        return np.array(number, real).view(f"int{size}").item()

    infinity = bits_of(np.inf)
    if not (op.inf or op.big):
        limit = infinity
    else:
        limit = bits_of(floor_to(op.limit, real) if op.big else np.finfo(real).max)
    magnitude = builder.and_(bits, constant(2 ** (size - 1) - 1))
    found = builder.sub(constant(limit), magnitude)
    if not op.nan:
        found = builder.and_(found, builder.not_(builder.sub(constant(infinity), magnitude)))
    return found


def scan_function(module: Any, op: Watch, size: int) -> ir.Function:
    """Return the LLVM function that returns whether any of `n` contiguous floats is bad."""
    count = VECTOR * 8 // size
    integer, index, flag = ir.IntType(size), ir.IntType(64), ir.IntType(1)
    vector, half = ir.VectorType(integer, count), ir.VectorType(integer, count // 2)
    settings = (op.nan, op.inf, op.big, op.limit, size)
    name = "theanoguard_scan_" + sha256(str(settings).encode()).hexdigest()[:16]
    if name in module.globals:
        return module.globals[name]
    kind = ir.FunctionType(flag, [integer.as_pointer(), index])
    function = ir.Function(module, kind, name)
    function.linkage = "linkonce_odr"
    function.attributes.add("noinline")
    data, n = function.args
    zero, one, half_step, step = (ir.Constant(index, k) for k in (0, 1, count // 2, count))
    entry, long, body, last, short, halves, few, single, done = (
        function.append_basic_block(block)
        for block in ("entry", "long", "body", "last", "short", "halves", "few", "single", "done")
    )

    def look(builder: Any, at: Any, kind: Any) -> Any:
        place = builder.bitcast(builder.gep(data, [at]), kind.as_pointer())
        return excess(builder, op, builder.load(place, align=1), size)

    def any_negative(builder: Any, numbers: Any) -> Any:
        nothing = ir.Constant(numbers.type, None)
        mask = builder.bitcast(
            builder.icmp_signed("<", numbers, nothing), ir.IntType(numbers.type.count)
        )
        return builder.icmp_unsigned("!=", mask, ir.Constant(mask.type, 0))

    builder = ir.IRBuilder(entry)
    builder.cbranch(builder.icmp_unsigned("<", n, step), short, long)

    # At least one whole vector: check the whole vectors, then the last elements.  The last vector
    # may overlap the one before it.
    builder.position_at_end(long)
    end = builder.sub(n, step)
    builder.branch(body)
    builder.position_at_end(body)
    at, found = builder.phi(index), builder.phi(vector)
    new = builder.or_(found, look(builder, at, vector))
    at.add_incoming(zero, long)
    found.add_incoming(ir.Constant(vector, None), long)
    after = builder.add(at, step)
    at.add_incoming(after, body)
    found.add_incoming(new, body)
    builder.cbranch(builder.icmp_unsigned("<", after, end), body, last)
    builder.position_at_end(last)
    any_of_vector = any_negative(builder, builder.or_(new, look(builder, end, vector)))
    builder.branch(done)

    # Less than one vector: check two overlapping half vectors, or the elements one by one.
    builder.position_at_end(short)
    builder.cbranch(builder.icmp_unsigned("<", n, half_step), few, halves)
    builder.position_at_end(halves)
    first, second = (look(builder, at, half) for at in (zero, builder.sub(n, half_step)))
    any_of_halves = any_negative(builder, builder.or_(first, second))
    builder.branch(done)
    builder.position_at_end(few)
    builder.cbranch(builder.icmp_unsigned("==", n, zero), done, single)
    builder.position_at_end(single)
    at, found = builder.phi(index), builder.phi(integer)
    new = builder.or_(found, look(builder, at, integer))
    after = builder.add(at, one)
    at.add_incoming(zero, few)
    at.add_incoming(after, single)
    found.add_incoming(ir.Constant(integer, 0), few)
    found.add_incoming(new, single)
    any_single = builder.icmp_signed("<", new, ir.Constant(integer, 0))
    builder.cbranch(builder.icmp_unsigned("<", after, n), single, done)

    builder.position_at_end(done)
    result = builder.phi(flag)
    result.add_incoming(any_of_vector, last)
    result.add_incoming(any_of_halves, halves)
    result.add_incoming(ir.Constant(flag, 0), few)
    result.add_incoming(any_single, single)
    builder.ret(result)
    return function


def strided_scan_function(module: Any, op: Watch, size: int) -> ir.Function:
    """Return the LLVM function that does so for a vector with any number of bytes between floats.

    The first element of a reversed vector has the highest address.  Its scan goes from the lowest
    address upwards, so it begins at the vector's last element.
    """
    scan = scan_function(module, op, size)
    name = scan.name + "_strided"
    if name in module.globals:
        return module.globals[name]
    integer, index, flag = ir.IntType(size), ir.IntType(64), ir.IntType(1)
    kind = ir.FunctionType(flag, [integer.as_pointer(), index, index])
    function = ir.Function(module, kind, name)
    function.linkage = "linkonce_odr"
    function.attributes.add("noinline")
    data, n, stride = function.args
    zero, one = (ir.Constant(index, k) for k in (0, 1))
    entry, in_a_row, apart, body, done = (
        function.append_basic_block(block)
        for block in ("entry", "in_a_row", "apart", "body", "done")
    )
    builder = ir.IRBuilder(entry)
    forwards, backwards = (
        builder.icmp_signed("==", stride, ir.Constant(index, step))
        for step in (size // 8, -size // 8)
    )
    builder.cbranch(builder.or_(forwards, backwards), in_a_row, apart)
    builder.position_at_end(in_a_row)
    lowest = builder.select(forwards, zero, builder.sub(one, n))
    builder.ret(builder.call(scan, [builder.gep(data, [lowest]), n]))
    builder.position_at_end(apart)
    start = builder.ptrtoint(data, index)
    builder.cbranch(builder.icmp_signed("==", n, zero), done, body)
    builder.position_at_end(body)
    at, left, found = builder.phi(index), builder.phi(index), builder.phi(integer)
    bits = builder.load(builder.inttoptr(at, integer.as_pointer()), align=1)
    new = builder.or_(found, excess(builder, op, bits, size))
    fewer = builder.sub(left, one)
    at.add_incoming(start, apart)
    at.add_incoming(builder.add(at, stride), body)
    left.add_incoming(n, apart)
    left.add_incoming(fewer, body)
    found.add_incoming(ir.Constant(integer, 0), apart)
    found.add_incoming(new, body)
    builder.cbranch(builder.icmp_signed("==", fewer, zero), done, body)
    builder.position_at_end(done)
    result = builder.phi(integer)
    result.add_incoming(ir.Constant(integer, 0), apart)
    result.add_incoming(new, body)
    builder.ret(builder.icmp_signed("<", result, ir.Constant(integer, 0)))
    return function


def look(
    context: Any,
    builder: Any,
    op: Watch,
    kind: Any,
    value: Any,
    fallback: Callable[[Any, Any], Any],
) -> Any:
    """Write LLVM code that checks whether a value is bad; return its flag.

    - `context`, `builder`: Numba's context and LLVM builder.
    - `kind`: Numba type of the value.
    - `fallback`: ``fallback(builder, value)`` writes such code for an array of this type in any
      layout.
    """
    is_array = isinstance(kind, types.Array)
    dtype = kind.dtype if is_array else kind
    in_a_row = not is_array or kind.layout in "CF"
    if not isinstance(dtype, types.Float) or not (in_a_row or kind.ndim == 1):
        return builder.icmp_unsigned("!=", fallback(builder, value), ir.Constant(ir.IntType(1), 0))
    size = dtype.bitwidth
    integer = ir.IntType(size)
    if is_array:
        array = make_array(kind)(context, builder, value)
        data = builder.bitcast(array.data, integer.as_pointer())
        if kind.ndim and in_a_row:
            return builder.call(scan_function(builder.module, op, size), [data, array.nitems])
        if kind.ndim:
            scan, stride = strided_scan_function(builder.module, op, size), array.strides
            given = [data, array.nitems, builder.extract_value(stride, 0)]
            return builder.call(scan, given)
        bits = builder.load(data)
    else:
        bits = builder.bitcast(value, integer)
    return builder.icmp_signed("<", excess(builder, op, bits, size), ir.Constant(integer, 0))


def called(context: Any, typingctx: Any, function: Any, *kinds: Any) -> Callable[..., Any]:
    """Return a function that writes the call of a compiled function that never raises.

    For a call that may raise, Numba would count references to the arguments for error handling.
    """
    signature = typingctx.resolve_function_type(function, kinds, {})
    compiled = function.dispatcher.get_compile_result(signature)

    def write(builder: Any, *args: Any) -> Any:
        context.active_code_library.add_linking_library(compiled.library)
        _, result = context.call_internal_no_propagate(builder, compiled.fndesc, signature, args)
        return result

    return write


def looking(op: Watch) -> Callable:
    """Return the intrinsic ``look_at(value, signals, any_array)``, which signals if it is bad.

    `any_array` returns whether an array of any layout is bad.  An ordinary Numba function counts
    references to its arguments, which takes longer than checking a small array.  Numba does not
    count in a function without a branch, so this is an intrinsic, and its code has no branch.
    """

    @intrinsic
    def look_at(typingctx: Any, value: Any, signals: Any, any_array: Any) -> tuple:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            def fallback(builder: Any, number: Any) -> Any:  # it is compiled only where it is used
                return called(context, typingctx, any_array, value)(builder, number)

            found = look(context, builder, op, value, args[0], fallback)
            data = make_array(signals)(context, builder, args[1]).data
            place = builder.gep(data, [ir.Constant(ir.IntType(64), FOUND)])
            before = builder.load(place)
            builder.store(builder.or_(before, builder.zext(found, before.type)), place)
            return context.get_constant(types.int64, 0)

        return types.int64(value, signals, any_array), codegen

    return look_at


def looker(op: Watch, value_type: Any) -> Callable:
    """Return the function that returns whether a value of any layout is bad."""
    bad_one = bad_element(op, value_type.dtype)
    if isinstance(value_type, ScalarType):
        return numba_njit(lambda value: bad_one(value))

    @numba_njit
    def any_in(elements: Any) -> bool:
        found = False
        for v in elements:  # (no early exit, so that LLVM vectorises the loop)
            found |= bad_one(v)
        return found

    if is_sparse(value_type):
        return numba_njit(lambda value: any_in(value.data.flat))
    if value_type.ndim == 0:  # Numba's `flat` of a 0-d array may have no element.
        return numba_njit(lambda value: bad_one(value[()]))

    @numba_njit
    def any_bad(value: Any) -> Any:
        return any_in(value.T.flat) if value.flags.f_contiguous else any_in(value.flat)

    return any_bad


def signalling(op: Watch, value_type: Any) -> tuple[Callable, str]:
    """Return the function ``watch(value, signals)``, and its cache key."""
    ndim = getattr(value_type, "ndim", 0)
    return _signalling(op, value_type.clone(shape=(None,) * ndim) if ndim else value_type)


@cache  # Numba compiles a function once for each type of array, in whatever graph it is called
def _signalling(op: Watch, value_type: Any) -> tuple[Callable, str]:
    look_at, any_array = looking(op), looker(op, value_type)

    @numba_njit
    def watch(value: Any, signals: Any) -> Any:
        return look_at(value, signals, any_array)

    is_scalar, sparse = isinstance(value_type, ScalarType), is_sparse(value_type)
    ndim = getattr(value_type, "ndim", 0)
    settings = (op._props_dict(), value_type.dtype, ndim, is_scalar, sparse and value_type.format)
    return watch, sha256(str((SOURCE, *settings)).encode()).hexdigest()


@register_funcify_and_cache_key(Watch)
def numba_funcify_watch(op: Any, node: Apply, **kwargs: Any) -> tuple[Callable, str]:
    """Compile one function for each type of array."""
    return signalling(op, node.inputs[0].type)


@register_funcify_and_cache_key(WatchRows)
def numba_funcify_watch_rows(op: Any, node: Apply, **kwargs: Any) -> tuple[Callable, str]:
    watch, key = signalling(op.watch, node.inputs[0].type)

    @intrinsic
    def is_bad_row(typingctx: Any, array: Any, row: Any) -> tuple:
        """Whether a row of an array in C order is bad.  No reference is counted."""

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            size, index = array.dtype.bitwidth, ir.IntType(64)
            scan = scan_function(builder.module, op.watch, size)
            whole = make_array(array)(context, builder, args[0])
            lengths = cgutils.unpack_tuple(builder, whole.shape, array.ndim)
            n = reduce(builder.mul, lengths[1:], ir.Constant(index, 1))
            data = builder.bitcast(whole.data, ir.IntType(size).as_pointer())
            found = builder.call(scan, [builder.gep(data, [builder.mul(args[1], n)]), n])
            return builder.zext(found, index)

        return types.int64(array, types.int64), codegen

    @numba_njit
    def watch_rows(array: Any, rows: Any, signals: Any) -> int:
        n, found = len(array), 0
        for i in range(rows.size):
            row = np.int64(rows[i])
            if row < 0:
                row += n
            if not 0 <= row < n:
                continue  # no element of the array
            if array.flags.c_contiguous:
                found |= is_bad_row(array, row)
            else:
                watch(array[row : row + 1], signals)
        signals[FOUND] |= found
        return 0

    return watch_rows, sha256(str((SOURCE, "rows", key)).encode()).hexdigest()


@intrinsic
def copy_row(typingctx: Any, array: Any, row: Any, size: Any, memory: Any, place: Any) -> tuple:
    """Copy the bytes of a row into a vector.  No reference is counted."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        byte = ir.IntType(8).as_pointer()
        whole = make_array(array)(context, builder, args[0])
        start = builder.mul(args[1], builder.extract_value(whole.strides, 0))
        source = builder.gep(builder.bitcast(whole.data, byte), [start])
        goal = builder.gep(make_array(memory)(context, builder, args[3]).data, [args[4]])
        cgutils.raw_memcpy(builder, builder.bitcast(goal, byte), source, args[2], 1)
        return context.get_constant(types.int64, 0)

    integer = types.int64
    return integer(array, integer, integer, memory, integer), codegen


@register_funcify_and_cache_key(SaveRows)
def numba_funcify_save_rows(op: Any, **kwargs: Any) -> tuple[Callable, str]:
    return save_rows, sha256(str((SOURCE, "save_rows")).encode()).hexdigest()


@numba_njit
def save_rows(array: Any, rows: Any, memory: Any) -> int:
    if memory.size == 1:
        return 0
    size, in_a_row = array.itemsize, True  # bytes of a row, and whether they lie in one piece
    for axis in range(array.ndim - 1, 0, -1):
        in_a_row &= array.strides[axis] == size or array.shape[axis] == 1
        size *= array.shape[axis]
    n, words = len(array), (size + 7) // 8
    first = SAVED + rows.size
    memory[LENGTH] = (first + rows.size * words) if in_a_row else 0
    if not in_a_row or memory.size < memory[LENGTH]:
        raise Unsaved
    for i in range(rows.size):
        row = np.int64(rows[i])
        if row < 0:
            row += n
        if not 0 <= row < n:
            raise IndexError("an index is out of bounds")
        memory[SAVED + i] = row
        copy_row(array, row, size, memory, first + i * words)
    memory[COUNT] = rows.size
    return 0


@register_funcify_and_cache_key(IsBad)
def numba_funcify_is_bad(op: Any, node: Apply, **kwargs: Any) -> tuple[Callable, str]:
    size = np.dtype(node.inputs[0].type.dtype).itemsize * 8

    @intrinsic
    def sign(typingctx: Any, number: Any) -> tuple:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            integer = ir.IntType(size)
            found = excess(builder, op.watch, builder.bitcast(args[0], integer), size)
            return builder.ashr(found, ir.Constant(integer, size - 1))

        return getattr(types, f"int{size}")(number), codegen

    @numba_njit
    def is_bad(number: Any) -> Any:
        return sign(number)

    key = (SOURCE, "is_bad", tuple(op.watch._props_dict().items()), size)
    return is_bad, sha256(str(key).encode()).hexdigest()


@register_funcify_default_op_cache_key(WatchTrue)
def numba_funcify_watch_true(op: Any, **kwargs: Any) -> Callable:
    @numba_njit
    def watch_true(value: Any, signals: Any) -> int:
        if np.any(value):
            signals[FOUND] = 1
        return 0

    return watch_true


@register_funcify_default_op_cache_key(Within)
def numba_funcify_within(op: Any, node: Apply, **kwargs: Any) -> Callable:
    axis, batch = op.axis, op.batch
    error: type[Exception] = IndexError
    text = "an index is out of bounds"
    if op.is_count:
        error = ValueError
        text = "a sequence of a Scan is shorter than its number of steps"

    # Negative if the index is below -n or above n - 1: LLVM has no faster vector code for it.
    excess_of = numba_njit(lambda i, n: (np.int64(i) + n) | (n - 1 - np.int64(i)))
    index_type = node.inputs[1].type
    if index_type.dtype == "uint64":  # (Numba takes no row from the end for one above 2**63)
        excess_of = numba_njit(lambda i, n: np.int64(i) | (n - 1 - np.int64(i)))
    if op.is_count:
        excess_of = numba_njit(lambda i, n: n - np.int64(i))
    ndim = index_type.ndim
    if ndim == 0:
        worst = numba_njit(lambda index, n: excess_of(index[()], n))
    else:

        @numba_njit
        def worst(index: Any, n: int) -> int:
            found = 0
            for i in index if ndim == 1 else index.flat:  # (no early exit, so that it vectorises)
                found |= excess_of(i, n)
            return found

    @numba_njit
    def within(array: Any, index: Any) -> int:
        if worst(index, array.shape[axis]) < 0 and 0 not in array.shape[:batch]:
            raise error(text)
        return 0

    return within


@register_funcify_default_op_cache_key(InDomain)
def numba_funcify_in_domain(op: Any, node: Apply, **kwargs: Any) -> Callable:
    low, high = op.low, op.high
    is_scalar = node.inputs[0].type.ndim == 0
    is_outside = numba_njit(lambda v: v < low or v > high)
    if op.is_open:
        is_outside = numba_njit(lambda v: v <= low or v > high)

    @numba_njit
    def in_domain(value: Any) -> int:
        found = is_outside(value[()]) if is_scalar else False
        if not is_scalar:
            for v in value.flat:
                found |= is_outside(v)
        if found:
            raise ValueError("a parameter is out of its domain")
        return 0

    return in_domain


@register_funcify_default_op_cache_key(WatchEmpty)
def numba_funcify_watch_empty(op: Any, **kwargs: Any) -> Callable:
    @numba_njit
    def watch_empty(value: Any, signals: Any) -> int:
        if value.size == 0:
            signals[FOUND] = 1
        return 0

    return watch_empty


@register_funcify_and_cache_key(Bracketed)
def numba_funcify_bracketed(op: Any, node: Apply, **kwargs: Any) -> tuple[Callable, str | None]:
    inner = Apply(op.op, node.inputs[:-1], [v.type() for v in node.outputs])
    compute, key = numba_funcify_and_cache_key(op.op, node=inner, **kwargs)
    n = len(inner.inputs)
    names = ", ".join(f"i{k}" for k in range(n))
    # (Elementwise operations are Numba overloads.  `call_apart` needs a compiled function, so this
    # one calls them.)
    apart = compile_numba_function_src(
        f"def apart({names}):\n    return compute({names})\n", "apart", {"compute": compute}
    )
    source = f"""
def bracketed({names}{", " if n else ""}signals):
    signals[FLAGS] |= read_flags()
    result = call_apart(apart, ({names}{"," if n else ""}))
    clear_flags()
    return result
"""
    env = {**NAMES, "apart": numba_njit(apart)}
    bracketed = numba_njit(compile_numba_function_src(source, "bracketed", env))
    return bracketed, key and sha256(str((SOURCE, source, key)).encode()).hexdigest()


@numba_njit
def is_suspect(signals: Any) -> bool:
    """Whether a check has found a bad value, or a relevant exception flag was raised, so far."""
    if signals[FOUND] != 0 or signals[FLAGS] & signals[COUNTING] != 0:
        return True
    return read_flags() & signals[COUNTING] != 0


@register_funcify_and_cache_key(Stop)
def numba_funcify_stop(op: Any, **kwargs: Any) -> tuple[Callable, str]:
    @numba_njit
    def stop(signals: Any) -> int:
        if is_suspect(signals):
            signals[CUT] = 1
            raise Stopped
        return 0

    return stop, sha256(str((SOURCE, "stop")).encode()).hexdigest()


@register_funcify_default_op_cache_key(Until)
def numba_funcify_until(op: Any, **kwargs: Any) -> Callable:
    @numba_njit
    def until(condition: Any, signals: Any) -> Any:
        ends = condition.item()
        if not ends and is_suspect(signals):
            signals[CUT] = 1
            ends = True
        return np.array(ends)

    return until


# The names that the generated sources below refer to.
NAMES = {
    "__name__": __name__,
    "np": np,
    "FLAGS": FLAGS,
    "call_apart": call_apart,
    "clear_flags": clear_flags,
    "read_flags": read_flags,
}

WHOLE = 2**62  # rows: more than any array has
BLOCK = 16384  # bytes of each operand, so that the blocks of several operands fit into L1 cache


@register_funcify_and_cache_key(InBlocks)
def numba_funcify_in_blocks(op: Any, node: Apply, **kwargs: Any) -> tuple[Callable, str | None]:
    """Write the loop over blocks.  The operation itself is compiled like any other."""
    into_node = op.into(node)
    into, key = numba_funcify_and_cache_key(into_node.op, node=into_node)
    operands = op.operands(node.inputs)
    inputs = [f"i{k}" for k in range(len(operands))]
    spares = {f"o{k}": f"s{k}" for k in op.spared}
    outputs = [f"o{k}" for k in range(len(node.outputs))]
    dtypes = ["bool_" if v.type.dtype == "bool" else v.type.dtype for v in node.outputs]
    cut = [i for i, v in zip(inputs, operands, strict=True) if not all(v.type.broadcastable)]
    read = {f"i{k}": (operands[k], watch) for k, watch in op.inputs}
    read |= {f"o{k}": (node.outputs[k], watch) for k, watch in op.outputs}
    first = cut[0]
    overwritten = {f"o{k}": f"i{i}" for k, i in op.elemwise.inplace_pattern.items()}
    beside = [f"o{k}" for k in op.beside(node)]

    def part(name: str) -> str:
        return f"{name}_part" if name in cut or name in outputs else name

    reads = {name: f"        watch_{name}({part(name)}, signals)" for name in read}

    def place(output: str, dtype: str) -> Iterator[str]:
        """Yield the statements that say what an output is written into."""
        if output in overwritten:
            yield f"    {output} = {overwritten[output]}"
        elif output in spares:
            spare = spares[output]
            fresh = f"np.empty(shape, np.{dtype})"
            yield f"    {output} = {spare} if {spare}.shape == shape else {fresh}"
        else:
            yield f"    {output} = np.empty(shape, np.{dtype})"

    contiguous = " and ".join(f"{v}.flags.c_contiguous and {v}.shape == shape" for v in cut)
    lines = [
        f"def in_blocks({', '.join([*inputs, *spares.values()])}, signals):",
        f"    shape = {first}.shape",
        *(line for o, d in zip(outputs, dtypes, strict=True) for line in place(o, d)),
        f"    n, size = max(1, shape[0]), {first}.size * {first}.itemsize",
        f"    is_whole = size <= BLOCK or not ({contiguous})",
        "    rows = WHOLE if is_whole else max(1, n * BLOCK // size)",
        "    for start in range(0, n, rows):",
        *(f"        {v}_part = {v}[start : start + rows]" for v in (*cut, *outputs)),
        *(line for name, line in reads.items() if name in inputs),  # (before an overwrite)
        f"        into({', '.join(map(part, [*inputs, *beside]))})",
        *(line for name, line in reads.items() if name in outputs),
        f"    return {', '.join(outputs)}",
    ]
    watches = {f"watch_{name}": signalling(watch, v.type) for name, (v, watch) in read.items()}
    names: dict[str, Any] = {name: watch for name, (watch, _) in watches.items()}
    names |= {"BLOCK": BLOCK, "WHOLE": WHOLE, "into": into}
    source = "\n".join(lines)
    in_blocks = numba_njit(compile_numba_function_src(source, "in_blocks", {**NAMES, **names}))
    keys = [watch_key for _, watch_key in watches.values()]
    return in_blocks, key and sha256(str((SOURCE, source, keys, key)).encode()).hexdigest()


def compile_flagged(graph: FunctionGraph, takes_signals: bool) -> Callable:
    """Return a function that computes a graph and records the exception flags that this raised.

    - `takes_signals`: whether the last input of the graph is the signals.
    - Returns: it takes the values of the inputs and the signals, and returns the values of the
      outputs.
    """
    compute, key = numba_funcify_and_cache_key(graph)
    n = len(graph.inputs) - takes_signals
    names = "".join(f"i{k}, " for k in range(n))
    returned = "results" if graph.outputs else "()"  # PyTensor's code would return None
    source = f"""
def flagged({names}signals):
    clear_flags()
    results = call_apart(compute, ({names}{"signals," if takes_signals else ""}))
    signals[FLAGS] |= read_flags()
    return {returned}
"""
    env = {**NAMES, "compute": compute}
    cache_key = key and sha256(str((SOURCE, source, key)).encode()).hexdigest()
    fast = f"_fastmath{int(config.numba__fastmath)}"
    function = compile_numba_function_src(
        source, "flagged", env, cache_key=cache_key and cache_key + fast
    )
    return numba_njit(function, final_function=True, cache=cache_key is not None)
