"""Compiled functions with Theano's face: defaults, values by name, dict outputs."""

import copy
import copyreg
import warnings
from contextlib import contextmanager

from pytensor.compile.aliasing import (
    Supervisor,
    alias_root,
    infer_reuse_pattern,
    insert_deepcopy,
    view_tree_set,
)
from pytensor.compile.executor import DUPLICATE, AliasedMemoryError, _pickle_Function
from pytensor.compile.executor import Function as PyTensorFunction
from pytensor.compile.maker import FunctionMaker as PyTensorFunctionMaker
from pytensor.compile.mode import get_mode
from pytensor.compile.rebuild import UnusedInputError
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.utils import get_variable_trace_string
from pytensor.link.basic import Container

from theanoguard._collecting import seldom_collecting

from .._words import translate
from .io import In, SymbolicInput, SymbolicOutput

__all__ = [
    "AliasedMemoryError",
    "Function",
    "FunctionMaker",
    "Supervisor",
    "SymbolicInput",
    "SymbolicOutput",
    "UnusedInputError",
    "alias_root",
    "convert_function_input",
    "get_info_on_inputs",
    "infer_reuse_pattern",
    "insert_deepcopy",
    "orig_function",
    "register_checker",
    "std_fgraph",
    "view_tree_set",
]


class _Containers:
    """``f.container``: the containers of a function's inputs by index, name or variable."""

    def __init__(self, function):
        self.function = function

    def __getitem__(self, item):
        return self.function.finder[item]

    def __contains__(self, item):
        return item in self.function.finder


class _Values(_Containers):
    """``f.value``: what stands in the containers."""

    def find(self, item, hint=""):
        """Return the container, or raise TypeError for a name that is unknown or ambiguous."""
        try:
            found = self.function.finder[item]
        except KeyError:
            raise TypeError(f"Unknown input or state: {item}. {hint}") from None
        if found is DUPLICATE:
            raise TypeError(
                f"Ambiguous name: {item} - please check the names of the inputs of your function "
                "for duplicates."
            )
        return found

    def __getitem__(self, item):
        return self.find(item).value

    def __setitem__(self, item, value):
        function = self.function
        container = self.find(
            item, get_info_on_inputs(function._named_inputs, function._n_unnamed_inputs)
        )
        container.value = value
        container.provided += 1


class Function(PyTensorFunction):
    """PyTensor's ``Function`` with what Theano's has besides.

    Inputs may have default values, ``f[x]`` reads and sets the value of an input or a state,
    outputs may be a dict, and a call may ask for some of the outputs.
    """

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._refeeds = []
        self._spared = []  # states that a copy without updates would overwrite
        for container, (_, refeed, value) in zip(self.input_storage, self.defaults, strict=True):
            if value is not None and not isinstance(value, Container):
                container.value = value  # a default passes the same filter as an argument
            if refeed:
                self._refeeds.append((container, value))

    @property
    def fn(self):
        return self.vm

    @fn.setter
    def fn(self, vm):
        self.vm = vm

    @property
    def finder(self):
        return self._finder

    @property
    def inv_finder(self):
        return self._inv_finder

    @property
    def container(self):
        return _Containers(self)

    @property
    def value(self):
        return _Values(self)

    @property
    def indices(self):
        return [[spec, None, [spec]] for spec in self.maker.inputs]

    @property
    def defaults(self):
        return [default_of(spec) for spec in self.maker.inputs]

    @property
    def output_keys(self):
        return getattr(self.maker, "output_keys", None)

    @property
    def n_returned_outputs(self):
        return self._n_returned_outputs

    @property
    def _check_for_aliased_inputs(self):
        return any(not spec.shared and (spec.borrow or spec.mutable) for spec in self.maker.inputs)

    @_check_for_aliased_inputs.setter
    def _check_for_aliased_inputs(self, check):
        if not check:
            self._potential_aliased_input_groups = ()

    @property
    def nodes_with_inner_function(self):
        return [node.op for node in self._nodes_with_inner_function]

    def __contains__(self, item):
        return item in self.value

    def __getitem__(self, item):
        return self.value[item]

    def __setitem__(self, item, value):
        self.value[item] = value

    def _validate_inputs(self, args, kwargs):
        # None is an argument like others: some operations take it.  PyTensor lets it through only
        # where it is given by key, of which an index is one.
        first = next((i for i, arg in enumerate(args) if arg is None), len(args))
        by_key = dict(enumerate(args[first:], first))
        super()._validate_inputs(args[:first], {**by_key, **kwargs})

    def _add_note_to_invalid_argument_exception(self, error, container, argument):
        # Theano puts it before the message, where PyTensor adds a note.
        index = self.input_storage.index(container)
        function = f'theano function with name "{self.name}"' if self.name else "theano function"
        name = getattr(argument, "name", None)
        what = f'argument with name "{name}"' if name else "argument"
        where = get_variable_trace_string(self.maker.inputs[index].variable)
        text = f"Bad input {what} to {function} at index {index} (0-based). {where}"
        if isinstance(error, OverflowError):  # of NumPy 2, for a Python integer that is too large
            raise TypeError(text + str(error)) from error
        if len(error.args) == 1:
            error.args = (text + str(error.args[0]),)
        else:
            error.args = (text, *error.args)

    def copy(self, share_memory=False, swap=None, delete_updates=False, name=None, profile=None):
        """Return a copy, which always returns a list; see PyTensor's ``copy`` for the arguments.

        As in Theano, and other than in PyTensor, a copy without updates leaves the shared
        variables alone, also where the compiled graph computed their updates in place.
        """
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".* will still be mutated ", UserWarning)
            new = super().copy(share_memory, swap, delete_updates, name, profile)
        new.unpack_single = False
        new.maker.output_keys = self.output_keys
        if delete_updates and any(node.op.destroy_map for node in new.maker.fgraph.apply_nodes):
            new._spared = [
                container
                for spec, container in zip(self.maker.inputs, new.input_storage, strict=True)
                if spec.update is not None
            ]
        return new

    @contextmanager
    def _states_kept(self):
        """Give back the defaults, and the states that a copy without updates would overwrite."""
        before = [container.storage[0] for container in self._spared]
        for container, value in zip(self._spared, before, strict=True):
            container.storage[0] = copy.deepcopy(value)
        try:
            yield
        finally:
            for container, value in zip(self._spared, before, strict=True):
                container.storage[0] = value
            for container, value in self._refeeds:
                container.value = value

    def __call__(self, *args, output_subset=None, **kwargs):
        """Compute the outputs.

        Parameters
        ----------
        args, kwargs
            Values of the inputs, by position and by name.
        output_subset : list of int or str, optional
            The indices or keys of the outputs to return.
        """
        try:
            if self._spared or self._refeeds:
                with self._states_kept():
                    outputs = super().__call__(*args, **kwargs)
            else:
                outputs = super().__call__(*args, **kwargs)
        except Exception as error:
            translate(error)
            if hasattr(self.maker.mode, "tell"):  # a NanGuardMode
                self.maker.mode.tell(error, self.maker.fgraph)
            raise
        keys = self.output_keys
        if keys is None and output_subset is None:
            return outputs
        if self.unpack_single:
            outputs = [outputs]
        if keys is None:
            return [outputs[i] for i in output_subset]
        results = dict(zip(keys, outputs, strict=True))
        return results if output_subset is None else {key: results[key] for key in output_subset}

    def sync_shared(self):
        """Do nothing: there is no memory of a device to wait for."""


copyreg.pickle(Function, _pickle_Function)


def default_of(spec):
    """Return (required, refeed, value) of one input, as ``Function.defaults`` has them."""
    value = getattr(spec, "value", None)
    if isinstance(value, SharedVariable):
        value = value.container
    if isinstance(value, Container):
        return (False, False, value)
    return (value is None, value is not None and spec.update is None, value)


def get_info_on_inputs(named_inputs, n_unnamed_inputs):
    """Return a sentence that names the inputs, for messages."""
    return Function._get_info_on_inputs(named_inputs, n_unnamed_inputs)


class FunctionMaker(PyTensorFunctionMaker):
    """PyTensor's maker with Theano's arguments; it makes functions with Theano's face."""

    def __init__(
        self,
        inputs,
        outputs,
        mode=None,
        accept_inplace=False,
        function_builder=Function,
        profile=None,
        on_unused_input=None,
        fgraph=None,
        output_keys=None,
        name=None,
        *,
        function_class=None,
        **kwargs,
    ):
        self.output_keys = output_keys
        super().__init__(
            inputs,
            outputs,
            mode,
            accept_inplace,
            function_class or function_builder,
            profile,
            on_unused_input,
            fgraph,
            name,
            **kwargs,
        )

    @staticmethod
    def wrap_in(input):
        if isinstance(input, list | tuple) and len(input) == 2:
            return In(input[0], update=input[1])
        if isinstance(input, Variable):
            return In(input)
        return PyTensorFunctionMaker.wrap_in(input)

    @property
    def indices(self):
        return [[spec, None, [spec]] for spec in self.inputs]

    @property
    def defaults(self):
        return [default_of(spec) for spec in self.inputs]

    @property
    def refeed(self):
        return [refeed for _, refeed, _ in self.defaults]

    def create(self, input_storage=None, trustme=False, storage_map=None):
        """Make a function; the defaults may be given anew as `input_storage`."""
        return super().create(input_storage, storage_map)


def std_fgraph(input_specs, output_specs, accept_inplace=False):
    """Return the FunctionGraph of some inputs and outputs, and the outputs that are updates."""
    return PyTensorFunctionMaker.create_fgraph(
        input_specs, output_specs, accept_inplace, force_clone=True
    )


_CHECKERS = []


def check_equal(x, y):
    """Compare two values; the checkers of `register_checker` are asked first."""
    for checker in _CHECKERS:
        try:
            return checker(x, y)
        except Exception:
            continue
    return x == y


def register_checker(checker):
    """Have a checker asked before all others, for ``DebugMode``'s sake in old code."""
    _CHECKERS.insert(0, checker)


def convert_function_input(input):
    """Return the In that stands for a variable, a pair of variable and update, or a SymbolicInput.

    A list or tuple may be ``[name,] variable [, value or update]``.
    """
    if isinstance(input, SymbolicInput):
        return input
    if isinstance(input, Constant):
        raise TypeError(f"A Constant instance is not a legal function input: {input}")
    if isinstance(input, Variable):
        return In(input)
    if not isinstance(input, list | tuple):
        raise TypeError(f"Unknown input type: {type(input)}, expected Variable instance")
    original, name = input, None
    if not input:
        raise TypeError(f"Nonsensical input specification: {input}")
    if isinstance(input[0], str):
        name, input = input[0], input[1:]
    if isinstance(input[0], list | tuple):
        if len(input[0]) != 2 or len(input) != 2:
            raise TypeError(
                f"Invalid input syntax: {original} (check documentation or use an In instance)"
            )
        (variable, update), value = input
    elif isinstance(input[0], Variable):
        if len(input) == 1:
            variable, update, value = input[0], None, None
        elif len(input) == 2:
            (variable, value), update = input, None
        else:
            raise TypeError(
                f"Invalid input syntax: {original} (check documentation or use an In instance)"
            )
    elif isinstance(input[0], SymbolicInput):
        if len(input) == 1:
            return input[0]
        if len(input) == 2:
            input, value = input
            if name is not None:
                input.name = name
            input.value = value
            return input
        raise TypeError(f"The input specification is not valid: {input}")
    else:
        raise TypeError(f"Unknown input type: {type(input)}, expected Variable instance")
    if not isinstance(variable, Variable):
        raise TypeError(f"Unknown input type: {type(variable)}, expected Variable instance")
    if update is not None and not isinstance(update, Variable):
        raise TypeError(f"Unknown update type: {type(update)}, expected Variable instance")
    if value is not None and isinstance(value, Variable | SymbolicInput):
        raise TypeError(
            f"The value for input {variable} should not be a Variable or SymbolicInput instance "
            f"(got: {value})"
        )
    return In(variable, name=name, value=value, update=update)


def _unchanged(function_class):
    return function_class


@seldom_collecting()
def orig_function(
    inputs,
    outputs,
    mode=None,
    accept_inplace=False,
    name=None,
    profile=None,
    on_unused_input=None,
    output_keys=None,
):
    """Compile a graph that is not cloned first: what ``theano.function`` ends in.

    Parameters are those of ``theano.function``, but that inputs may also be pairs of a variable
    and its update, and that a list of modes is refused.
    """
    mode = get_mode(mode)
    inputs = [convert_function_input(spec) for spec in inputs]
    maker_class = mode.function_maker
    if maker_class is PyTensorFunctionMaker:
        maker_class = FunctionMaker
    maker = maker_class(
        inputs,
        outputs,
        mode,
        accept_inplace=accept_inplace,
        profile=profile,
        on_unused_input=on_unused_input,
        name=name,
        function_class=getattr(mode, "function_class", _unchanged)(Function),  # of a GuardMode
    )
    maker.output_keys = output_keys
    return maker.create()
