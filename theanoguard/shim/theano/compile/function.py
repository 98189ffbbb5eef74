"""``theano.function``."""

import inspect
import sys

from pytensor.misc.pkl_utils import StripPickler

from .function_module import orig_function
from .pfunc import pfunc


def function(
    inputs,
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
):
    """Compile a graph; see Theano's ``function`` for the arguments.

    Unlike PyTensor's, it takes a dict of outputs, inputs with default values, and returns a
    :class:`Function` whose values can be read and set by index, name or variable.
    """
    if name is None:
        caller = sys._getframe(1)
        name = f"{caller.f_code.co_filename}:{caller.f_lineno}"
    output_keys = None
    if isinstance(outputs, dict):
        if wrong := [key for key in outputs if not isinstance(key, str)]:
            raise AssertionError(f"The keys of outputs are strings, not {wrong[0]!r}.")
        output_keys = sorted(outputs)
        outputs = [outputs[key] for key in output_keys]
    if not isinstance(inputs, list | tuple):
        raise Exception(
            "Input variables of a Theano function should be contained in a list, even when there "
            "is a single input."
        )
    if not any(isinstance(spec, list | tuple) for spec in inputs):
        return pfunc(
            inputs,
            outputs,
            mode=mode,
            updates=updates,
            givens=givens,
            no_default_updates=no_default_updates,
            accept_inplace=accept_inplace,
            name=name,
            rebuild_strict=rebuild_strict,
            allow_input_downcast=allow_input_downcast,
            on_unused_input=on_unused_input,
            profile=profile,
            output_keys=output_keys,
        )
    if profile:
        raise NotImplementedError("profiling not supported in old-style function")
    if updates or givens:
        raise NotImplementedError(
            "In() instances and tuple inputs trigger the old semantics, which disallow using "
            "updates and givens"
        )
    return orig_function(inputs, outputs, mode=mode, accept_inplace=accept_inplace, name=name)


def function_dump(
    filename,
    inputs,
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
    extra_tag_to_remove=None,
):
    """Pickle the arguments of `function` to a file, in a dict: ``function(**pickle.load(f))``."""
    given = locals()
    arguments = {key: given[key] for key in inspect.signature(function).parameters}
    with open(filename, "wb") as file:
        StripPickler(file, -1, extra_tag_to_remove).dump(arguments)
