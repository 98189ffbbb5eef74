"""What Numba compiles for the checks; loaded with Numba, when a graph is compiled for it."""

from functools import partial
from hashlib import sha256
from importlib import resources

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numba.np.arrayobj import make_array
from pytensor.link.numba.cache import compile_numba_function_src
from pytensor.link.numba.dispatch.basic import (
    numba_funcify_and_cache_key,
    numba_funcify_ensure_cache,
    numba_njit,
    register_funcify_and_cache_key,
    register_funcify_default_op_cache_key,
)
from pytensor.scalar.basic import ScalarType

from theanoguard._pytensor import CheckedBody, inner_graphs_for_numba, is_sparse
from theanoguard.guard.graph import checks
from theanoguard.guard.graph.checks import Check, CountStep, floor_to
from theanoguard.guard.numba.ops import CheckIf, InBlocks, Stop, Until
from theanoguard.guard.reporting import Tripped

# Part of the key of what Numba keeps on disk: another source is another check.
SOURCE = resources.files("theanoguard.guard.numba").joinpath("code.py").read_text("utf-8")


inner_graphs = partial(inner_graphs_for_numba, compiled_by=numba_funcify_and_cache_key.dispatch)


@register_funcify_default_op_cache_key(CountStep)
def numba_funcify_count_step(op, **kwargs):
    first, column = op.first, checks.STEP

    @numba_njit
    def count_step(ledger, row):
        ledger[row, column] = 0.0 if first else ledger[row, column] + 1.0
        return ledger

    return count_step


@register_funcify_and_cache_key(CheckedBody)
def numba_funcify_checked_body(op, node=None, ofg_memo=None, storage_map=None, **kwargs):
    return numba_funcify_and_cache_key(
        op.fgraph, squeeze_output=True, fgraph_name="checked_body", **kwargs
    )


def bad_element(op, dtype):
    """Return a function that tells whether one element is bad, as ``Policy.mask`` does."""
    kind = np.dtype(dtype).kind
    if kind in "iu":
        limit = op.limit
        return numba_njit(lambda v: abs(np.float64(v)) > limit)
    if kind not in "fc":
        return numba_njit(lambda v: False)
    real = np.empty(0, dtype).real.dtype.type
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


VECTOR = 64  # bytes that are looked at in one step; LLVM splits them as the processor needs


def excess(builder, op, bits, size):
    """Return a number, or vector, that is negative where the bits of a float are a bad value.

    Without their sign the bits of floats are ordered as their magnitudes, NaN above Inf, so that
    integers are compared: no options for fast arithmetic can remove that.
    """
    real = np.dtype(f"float{size}").type
    integer = bits.type.element if isinstance(bits.type, ir.VectorType) else bits.type

    def constant(number):
        one = ir.Constant(integer, int(number))
        if bits.type is integer:
            return one
        return ir.Constant(bits.type, [one] * bits.type.count)

    def bits_of(number):
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


def scan_function(module, op, size):
    """Return the LLVM function that tells whether any of `n` floats in a row is bad."""
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

    def look(builder, at, kind):
        place = builder.bitcast(builder.gep(data, [at]), kind.as_pointer())
        return excess(builder, op, builder.load(place, align=1), size)

    def any_negative(builder, numbers):
        nothing = ir.Constant(numbers.type, None)
        mask = builder.bitcast(
            builder.icmp_signed("<", numbers, nothing), ir.IntType(numbers.type.count)
        )
        return builder.icmp_unsigned("!=", mask, ir.Constant(mask.type, 0))

    builder = ir.IRBuilder(entry)
    builder.cbranch(builder.icmp_unsigned("<", n, step), short, long)

    # whole vectors, and the last ones again as a vector
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

    # fewer than one vector: its halves in the same way, or one by one
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


def look(context, builder, op, kind, value, fallback):
    """Write code that tells whether a value is bad; return the flag.

    Parameters
    ----------
    context, builder
        Numba's.
    op : Check
    kind : numba.types.Type
        Of the value.
    value : llvmlite.ir.Value
    fallback : callable
        ``fallback(builder, value)`` writes such code for any array of this kind.
    """
    is_array = isinstance(kind, types.Array)
    dtype = kind.dtype if is_array else kind
    flag = ir.IntType(1)

    def look_anywhere():
        return builder.icmp_unsigned("!=", fallback(builder, value), ir.Constant(flag, 0))

    in_a_row = not is_array or kind.layout in "CF"
    if not isinstance(dtype, types.Float) or not (in_a_row or kind.ndim == 1):
        return look_anywhere()
    size = dtype.bitwidth
    integer = ir.IntType(size)
    if is_array:
        array = make_array(kind)(context, builder, value)
        data = builder.bitcast(array.data, integer.as_pointer())
        if kind.ndim:
            scan = scan_function(builder.module, op, size)
            if in_a_row:
                return builder.call(scan, [data, array.nitems])
            return look_along(builder, scan, data, array, size // 8, look_anywhere)
        bits = builder.load(data)
    else:
        bits = builder.bitcast(value, integer)
    return builder.icmp_signed("<", excess(builder, op, bits, size), ir.Constant(integer, 0))


def look_along(builder, scan, data, vector, itemsize, look_anywhere):
    """Scan a vector of any layout if its elements lie in a row, from either end, else look at each.

    What was reversed begins with its last element.
    """
    stride, n = builder.extract_value(vector.strides, 0), vector.nitems
    forwards, backwards = (
        builder.icmp_signed("==", stride, ir.Constant(stride.type, step))
        for step in (itemsize, -itemsize)
    )
    found = []
    with builder.if_else(builder.or_(forwards, backwards), likely=True) as (in_a_row, apart):
        with in_a_row:
            zero, one = (ir.Constant(n.type, k) for k in (0, 1))
            lowest = builder.select(forwards, zero, builder.sub(one, n))
            result = builder.call(scan, [builder.gep(data, [lowest]), n])
            found.append((result, builder.block))
        with apart:
            found.append((look_anywhere(), builder.block))
    either = builder.phi(ir.IntType(1))
    for result, block in found:
        either.add_incoming(result, block)
    return either


def called(context, typingctx, function, *kinds):
    """Return what writes a call of a function that Numba compiles, and that raises nothing.

    Numba would keep references to its arguments, for what follows an error.
    """
    signature = typingctx.resolve_function_type(function, kinds, {})
    compiled = function.dispatcher.get_compile_result(signature)

    def write(builder, *args):
        context.active_code_library.add_linking_library(compiled.library)
        _, result = context.call_internal_no_propagate(builder, compiled.fndesc, signature, args)
        return result

    return write


def looking(op):
    """Return ``is_bad(value, any_array)``, which Numba writes in its place.

    `any_array` does the same for arrays of any layout.  An intrinsic, since a function of Numba's
    own counts references to what it is passed, which takes longer than to look at a small array.
    """

    @intrinsic
    def is_bad(typingctx, value, any_array):
        def codegen(context, builder, signature, args):
            fallback = called(context, typingctx, any_array, value)
            return look(context, builder, op, value, args[0], fallback)

        return types.boolean(value, any_array), codegen

    return is_bad


def checking(op, is_conditional):
    """Return ``check(value, ledger, place, condition, any_array, note)``, likewise."""

    @intrinsic
    def check_value(typingctx, value, ledger, place, condition, any_array, note):
        def codegen(context, builder, signature, args):
            fallback = called(context, typingctx, any_array, value)
            write_note = called(context, typingctx, note, value, ledger, place)
            wanted = args[3] if is_conditional else ir.Constant(ir.IntType(1), 1)
            with builder.if_then(wanted, likely=not is_conditional):
                found = look(context, builder, op, value, args[0], fallback)
                with builder.if_then(found, likely=False):
                    write_note(builder, *args[:3])
            return context.get_constant(types.int64, 0)

        return types.int64(value, ledger, place, condition, any_array, note), codegen

    return check_value


def parts_of(dtype):
    """Return a function that splits a number into two that a float64 holds exactly."""
    kind = np.dtype(dtype).kind
    if kind == "c":
        return numba_njit(lambda v: (v.real, v.imag))
    if kind in "iu":
        widest = np.int64 if kind == "i" else np.uint64
        low = widest(2**32 - 1)
        return numba_njit(lambda v: (float(widest(v) >> widest(32)), float(widest(v) & low)))
    return numba_njit(lambda v: (v, 0.0))


def looker(op, value_type):
    """Return the function that tells whether a value of any layout is bad."""
    bad_one = bad_element(op, value_type.dtype)
    if isinstance(value_type, ScalarType):
        return numba_njit(lambda value: bad_one(value))

    @numba_njit
    def any_in(elements):
        found = False
        for v in elements:  # (no way out of a loop: it is vectorised)
            found |= bad_one(v)
        return found

    if is_sparse(value_type):
        return numba_njit(lambda value: any_in(value.data.flat))
    if value_type.ndim == 0:  # Numba's `flat` of an array without dimensions may have no element.
        return numba_njit(lambda value: bad_one(value[()]))

    @numba_njit
    def any_bad(value):
        return any_in(value.T.flat) if value.flags.f_contiguous else any_in(value.flat)

    return any_bad


@register_funcify_and_cache_key(Check)
def numba_funcify_check(op, node, **kwargs):
    """One compiled check for each kind of array; which place it is, is data."""
    value_type = node.inputs[0].type
    dtype, ndim = value_type.dtype, getattr(value_type, "ndim", 0)
    is_scalar = isinstance(value_type, ScalarType)
    sparse = is_sparse(value_type)
    by_row = sparse and value_type.format == "csr"
    bad_one, any_bad, halves = bad_element(op, dtype), looker(op, value_type), parts_of(dtype)
    ORDER, SIZE, NAN, POSINF, NEGINF, BIG, INDEX, REAL, IMAG, NDIM, N_LOOPS = range(checks.COLUMNS)
    COLUMNS, FOUND, STEP = checks.COLUMNS, checks.FOUND, checks.STEP

    @numba_njit
    def count(v, row, position):
        """Count one element, and keep the first that is bad."""
        if v != v:
            row[NAN] += 1
        elif np.isinf(v):
            if v.real < 0:
                row[NEGINF] += 1
            else:
                row[POSINF] += 1
        elif bad_one(v):
            row[BIG] += 1
        if row[INDEX] < 0 and bad_one(v):
            row[INDEX] = position
            row[REAL], row[IMAG] = halves(v)

    if ndim == 0:
        one = numba_njit((lambda value: value) if is_scalar else (lambda value: value[()]))

        @numba_njit
        def describe(value, row, first):
            row[SIZE] = 1
            count(one(value), row, 0)
    elif sparse:

        @numba_njit
        def describe(value, row, first):
            row[SIZE] = value.data.size
            for i, v in enumerate(value.data.flat):
                count(v, row, i)
            at = int(row[INDEX])
            major, minor = np.searchsorted(value.indptr, at, "right") - 1, value.indices[at]
            along, across = (major, minor) if by_row else (minor, major)
            row[INDEX] = along * value.shape[1] + across
            row[first], row[first + 1] = value.shape
    else:

        @numba_njit
        def describe(value, row, first):
            row[SIZE] = value.size
            for i, v in enumerate(value.flat):
                count(v, row, i)
            for i in range(ndim):
                row[first + i] = value.shape[i]

    @numba_njit
    def note(value, ledger, place):
        row = ledger[place]
        if row[ORDER] == 0.0:  # else it has been noted at an earlier step
            ledger[0, FOUND] += 1.0
            row[:N_LOOPS] = 0.0
            row[ORDER] = ledger[0, FOUND]
            row[INDEX] = -1.0
            row[NDIM] = ndim
            n_loops = int(row[N_LOOPS])
            for i in range(COLUMNS, COLUMNS + n_loops):
                row[i + n_loops] = ledger[int(row[i]), STEP]
            describe(value, row, COLUMNS + 2 * n_loops)

    is_conditional = isinstance(op, CheckIf)
    check_value = checking(op, is_conditional)
    if is_conditional:

        @numba_njit
        def check(value, ledger, place, condition):
            return check_value(value, ledger, place, condition, any_bad, note)
    else:

        @numba_njit
        def check(value, ledger, place):
            return check_value(value, ledger, place, True, any_bad, note)

    settings = (type(op), op._props_dict(), dtype, ndim, is_scalar, sparse and value_type.format)
    return check, sha256(str((SOURCE, *settings)).encode()).hexdigest()


@register_funcify_default_op_cache_key(Stop)
def numba_funcify_stop(op, **kwargs):
    found = checks.FOUND

    @numba_njit
    def stop(ledger):
        if ledger[0, found] != 0.0:
            raise Tripped
        return 0

    return stop


@register_funcify_default_op_cache_key(Until)
def numba_funcify_until(op, **kwargs):
    found = checks.FOUND

    @numba_njit
    def until(condition, ledger):
        return np.array(condition.item() or ledger[0, found] != 0.0)

    return until


BLOCK = 16384  # bytes of each operand, so that some of them fit into the first cache


@register_funcify_and_cache_key(InBlocks)
def numba_funcify_in_blocks(op, node, **kwargs):
    """Write the loop over blocks; the operation itself is compiled as any other."""
    into_node = op.into(node)
    into, key = numba_funcify_ensure_cache(into_node.op, node=into_node)
    *results, _ = node.outputs
    inputs = [f"i{k}" for k in range(len(node.inputs))]
    outputs = [f"o{k}" for k in range(len(results))]
    dtypes = ["bool_" if v.type.dtype == "bool" else v.type.dtype for v in results]
    cut = [i for i, v in zip(inputs, node.inputs, strict=True) if not all(v.type.broadcastable)]
    looked_at = {f"i{k}": node.inputs[k] for k in op.inputs}
    looked_at |= {f"o{k}": results[k] for k in op.outputs}
    first = cut[0]

    def statements(suffix):
        def block(name):
            return name + suffix if name in cut or name in outputs else name

        operands = ", ".join(map(block, [*inputs, *outputs]))
        found = " | ".join(f"is_bad({block(v)}, any_{v})" for v in looked_at)
        return f"into({operands})", found

    whole, whole_found = statements("")
    part, part_found = statements("_part")
    contiguous = " and ".join(f"{v}.flags.c_contiguous and {v}.shape == shape" for v in cut)
    lines = [
        f"def in_blocks({', '.join(inputs)}):",
        f"    shape = {first}.shape",
        *(f"    {o} = np.empty(shape, np.{d})" for o, d in zip(outputs, dtypes, strict=True)),
        f"    n, size = shape[0], {first}.size * {first}.itemsize",
        f"    if size <= BLOCK or not ({contiguous}):",
        f"        {whole}",
        f"        return {', '.join(outputs)}, {whole_found}",
        "    found = False",
        "    rows = max(1, n * BLOCK // size)",
        "    for start in range(0, n, rows):",
        *(f"        {v}_part = {v}[start : start + rows]" for v in (*cut, *outputs)),
        f"        {part}",
        f"        found |= {part_found}",
        f"    return {', '.join(outputs)}, found",
    ]
    names = {f"any_{name}": looker(op.check, v.type) for name, v in looked_at.items()}
    names |= {"np": np, "BLOCK": BLOCK, "into": into, "is_bad": looking(op.check)}
    source = "\n".join(lines)
    in_blocks = numba_njit(compile_numba_function_src(source, "in_blocks", {**globals(), **names}))
    settings = (source, op.check._props_dict(), [v.type.dtype for v in looked_at.values()], key)
    return in_blocks, key and sha256(str((SOURCE, *settings)).encode()).hexdigest()
