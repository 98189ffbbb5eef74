"""Methods of old code's classes, called as PyTensor calls them."""

import inspect
from functools import update_wrapper

from pytensor.gradient import DisconnectedType, disconnected_type
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import FromFunctionNodeRewriter

# NumPy 2 hides the fields of a descriptor from C code that does not ask for its interface.
NUMPY_FLAG = "-DNPY_TARGET_VERSION=NPY_2_0_API_VERSION"

_transform = FromFunctionNodeRewriter.transform


def wraps(method):
    """Like ``functools.wraps``, but the signature that is seen is the wrapper's own."""

    def dress(function):
        update_wrapper(function, method)
        del function.__wrapped__
        return function

    return dress


def _parameters(function):
    return list(inspect.signature(function).parameters.values())


def _positional(function):
    """Count the positional parameters; None if there is a ``*args``."""
    parameters = _parameters(function)
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return None
    return sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters)


def drop_keywords(method):
    """``c_headers(self)``, where PyTensor passes ``c_compiler``; or ``c_headers(self, c)``."""
    parameters = _parameters(method)
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return method
    known = {p.name for p in parameters}
    needed = sum(p.default is p.empty for p in parameters) - 1

    @wraps(method)
    def adapted(self, *args, **kwargs):
        named = {key: value for key, value in kwargs.items() if key in known}
        if not args and not named:
            args = list(kwargs.values())[:needed]
        return method(self, *args, **named)

    return adapted


def last_arguments(count):
    """``infer_shape(self, node, shapes)``, where PyTensor may pass the graph first."""

    def adapt(method):
        if _positional(method) != count + 1:
            return method

        @wraps(method)
        def adapted(self, *args):
            return method(self, *args[-count:])

        return adapted

    return adapt


def give_params(method):
    """``perform(self, node, inputs, outputs, params)``, where PyTensor passes no params."""
    if _positional(method) != 5:
        return method

    @wraps(method)
    def adapted(self, node, inputs, outputs, params=None):
        if params is None and getattr(self, "params_type", None) is not None:
            params = self.params_type.filter(self.get_params(node))
        return method(self, node, inputs, outputs, params)

    return adapted


def skip_fgraph(method):
    """``transform(self, node)`` of a rewrite, where PyTensor passes the graph first."""
    if _positional(method) != 2:
        return method

    @wraps(method)
    def adapted(self, *args, **kwargs):
        args = args[1:] if args and isinstance(args[0], FunctionGraph) else args
        return method(self, *args)

    return adapted


def transform_of_function(rewrite, fgraph, node=None, **options):
    """``transform`` of a rewrite that is made from a function, also as ``transform(node)``."""
    if node is None:
        fgraph, node = getattr(fgraph, "fgraph", None), fgraph
    return _transform(rewrite, fgraph, node, **options)


def see_descriptors(method):
    """``c_compile_args(self)`` of an operation whose C code says ``PyArray_DESCR(x)->elsize``."""
    method = drop_keywords(method)

    @wraps(method)
    def adapted(self, *args, **kwargs):
        found = list(method(self, *args, **kwargs))
        return found if NUMPY_FLAG in found else [*found, NUMPY_FLAG]

    return adapted


ADAPTERS = dict.fromkeys(
    [
        "c_extract",
        "c_extract_out",
        "c_header_dirs",
        "c_headers",
        "c_init_code",
        "c_lib_dirs",
        "c_libraries",
        "c_no_compile_args",
        "c_support_code",
    ],
    drop_keywords,
) | {
    "c_compile_args": see_descriptors,
    "infer_shape": last_arguments(2),
    "do_constant_folding": last_arguments(1),
    "perform": give_params,
}


def pullback_by_l_op(self, inputs, outputs, gradients):
    return self.L_op(inputs, outputs, gradients)


def pullback_by_grad(self, inputs, outputs, gradients):
    return self.grad(inputs, gradients)


BY_OLD_METHODS = (pullback_by_l_op, pullback_by_grad)


def pushforward_by_r_op(self, inputs, outputs, tangents):
    points = [None if isinstance(t.type, DisconnectedType) else t for t in tangents]
    return [disconnected_type() if r is None else r for r in self.R_op(inputs, points)]


# What PyTensor calls, by what old code defines instead; the first that is found counts.
DERIVATIVES = (
    ("pullback", "L_op", pullback_by_l_op),
    ("pullback", "grad", pullback_by_grad),
    ("pushforward", "R_op", pushforward_by_r_op),
)


def adapt_class(cls, adapters=ADAPTERS, derivatives=DERIVATIVES):
    """Wrap those methods that a class defines itself with a signature of old."""
    own = vars(cls)
    for name, adapt in adapters.items():
        method = own.get(name)
        if inspect.isfunction(method):
            adapted = adapt(method)
            if adapted is not method:
                setattr(cls, name, adapted)
    for name, old, method in derivatives:
        if old in own and name not in own:
            setattr(cls, name, method)
