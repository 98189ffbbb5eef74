"""``pfunc``, by which ``theano.function`` finds shared variables, updates and givens."""

import warnings

from pytensor.compile.debug.profiling import ProfileStats
from pytensor.compile.rebuild import construct_function_ins_and_outs
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.configdefaults import config
from pytensor.graph.basic import Constant, Variable

from .._rebroadcast import rebroadcast, replacements
from .._words import theanos_words
from .function_module import orig_function
from .io import In


class Param(In):
    """An input, under the name that Theano gave up for ``In``: `default` is ``In``'s `value`."""

    def __init__(
        self,
        variable,
        default=None,
        name=None,
        mutable=False,
        strict=False,
        allow_downcast=None,
        implicit=None,
        borrow=None,
    ):
        warnings.warn(
            "The Param class is deprecated. Replace Param(default=N) by theano.In(value=N)",
            stacklevel=2,
        )
        super().__init__(
            variable,
            name=name,
            value=default,
            mutable=mutable,
            strict=strict,
            allow_downcast=allow_downcast,
            implicit=implicit,
            borrow=borrow,
        )


def _profile_for(profile, name):
    """Return what the argument `profile` asks for: a ProfileStats, False or None."""
    if profile is None:
        profile = config.profile or config.print_global_stats or None
    if profile is True:
        return ProfileStats(message=name)
    return ProfileStats(message=profile) if isinstance(profile, str) else profile


@theanos_words()
def pfunc(
    params,
    outputs=None,
    mode=None,
    updates=None,
    givens=None,
    no_default_updates=False,
    accept_inplace=False,
    name=None,
    rebuild_strict=True,
    allow_input_downcast=None,
    profile=None,
    on_unused_input=None,
    output_keys=None,
):
    """Compile a function; the arguments are those of ``theano.function``."""
    if not isinstance(params, list | tuple):
        raise Exception("in pfunc() the first argument must be a list or a tuple")
    inputs = [_pfunc_param_to_in(param, allow_downcast=allow_input_downcast) for param in params]
    inputs, outputs = construct_function_ins_and_outs(
        inputs,
        outputs,
        updates=_checked_updates(updates),
        givens=_checked_givens(givens, rebuild_strict),
        no_default_updates=no_default_updates,
        rebuild_strict=rebuild_strict,
    )
    return orig_function(
        inputs,
        outputs,
        mode,
        accept_inplace=accept_inplace,
        name=name,
        profile=_profile_for(profile, name),
        on_unused_input=on_unused_input,
        output_keys=output_keys,
    )


def _checked_updates(updates):
    """Return pairs in which values are constants of their variables' types.

    PyTensor gives a constant the type of its own shape, and lets a row be updated by a matrix.
    """
    pairs = list(iter_over_pairs(updates or ()))
    if any(isinstance(pair, Variable) or len(pair) != 2 for pair in pairs):
        raise ValueError(
            "The updates parameter must be an OrderedDict/dict or a list of lists/tuples with 2 "
            "elements"
        )
    checked = []
    for variable, new in pairs:
        if isinstance(variable, SharedVariable) and not isinstance(new, Variable):
            new = variable.type.make_constant(variable.type.filter(new))
            if hasattr(variable, "broadcastable"):
                new = rebroadcast(new, dict(enumerate(variable.broadcastable)))
        pattern = getattr(variable, "broadcastable", ())
        new_pattern = getattr(new, "broadcastable", ())
        if any(one and not other for one, other in zip(pattern, new_pattern, strict=False)):
            raise TypeError(
                "An update must have the same type as the original shared variable "
                f"(shared_var={variable}, shared_var.type={variable.type}, update_val={new}, "
                f"update_val.type={new.type}).\nIf the difference is related to the broadcast "
                "pattern, you can call the tensor.unbroadcast(var, axis_to_unbroadcast[, ...]) "
                "function to remove broadcastable dimensions."
            )
        checked.append((variable, new))
    return checked


def _checked_givens(givens, strict):
    """Return the pairs of `givens`; what replaces a tensor has its broadcast pattern."""
    pairs = [
        (old, new if isinstance(new, Variable) else old.type.filter_variable(new))
        for old, new in iter_over_pairs(givens or ())
    ]
    return replacements(pairs) if strict else pairs


def _pfunc_param_to_in(param, strict=False, allow_downcast=None):
    """Return the In that stands for one element of `params`."""
    if isinstance(param, Constant):
        raise TypeError("Constants not allowed in param list", param)
    if isinstance(param, Variable):
        return In(variable=param, strict=strict, allow_downcast=allow_downcast)
    if isinstance(param, In):
        return param
    raise TypeError(f"Unknown parameter type: {type(param)}")


def iter_over_pairs(pairs):
    """Return the pairs of a dict, or the pairs themselves."""
    return pairs.items() if isinstance(pairs, dict) else pairs
