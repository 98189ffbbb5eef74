"""``scan``, with the updates that Theano gives: PyTensor's leaves some of them out."""

import warnings
from contextlib import contextmanager

from pytensor.graph.basic import Variable
from pytensor.graph.traversal import graph_inputs
from pytensor.scan.basic import get_updates_and_outputs
from pytensor.scan.basic import scan as pytensor_scan
from pytensor.tensor.basic import get_scalar_constant_value
from pytensor.tensor.exceptions import NotScalarConstantError

from .._words import theanos_words
from ..tensor import as_tensor_variable, unbroadcast
from ..tensor._one_node import inside_of_loop
from ..updates import OrderedUpdates
from .scan_utils import until

# What PyTensor says about arguments and results that it wants to be others.
_NOISE = ("Scan return signature will change", "The `mode` argument of `scan` is deprecated")


@contextmanager
def _no_advice():
    with warnings.catch_warnings():
        for message in _NOISE:
            warnings.filterwarnings("ignore", message=message)
        yield


def _fixed_steps(n_steps):
    """Return the number of steps if it is known, else None."""
    if type(n_steps) is float:  # which PyTensor cuts off
        raise TypeError(f"Expected an integer, not n_steps={n_steps}")
    try:
        return None if n_steps is None else int(get_scalar_constant_value(n_steps))
    except NotScalarConstantError:
        return None


class _Step:
    """The function of one step, which returns default updates beside its own.

    Parameters
    ----------
    fn : callable
    n_outer : int
        How many of the arguments, at the end, are variables of the graph around the loop.

    Attributes
    ----------
    defaults : dict
        The default updates that were found.
    """

    def __init__(self, fn, n_outer):
        self.fn = fn
        self.n_outer = n_outer
        self.defaults = {}
        self._arguments = ()

    def __call__(self, *args):
        self._arguments = args
        condition, outputs, updates = get_updates_and_outputs(self.fn(*args))
        own = [update for update in updates.values() if isinstance(update, Variable)]
        read = self._inputs(outputs + own)
        # An update may read further variables that have one.
        for variable in read:
            update = getattr(variable, "default_update", None)
            if update is not None and variable not in updates:
                self.defaults[variable] = update
                read += [x for x in self._inputs([update]) if x not in read]
        result = [outputs, updates | self.defaults]
        return result if condition is None else [*result, until(condition)]

    def _inputs(self, outputs):
        """Return what the step computes `outputs` from: its arguments and shared variables."""
        return list(dict.fromkeys(graph_inputs(outputs, blockers=self._arguments)))

    def is_inside(self, update):
        """Whether a default update depends on what only the body of the loop has."""
        placeholders = self._arguments[: len(self._arguments) - self.n_outer]
        return any(x in placeholders for x in self._inputs([update]))


@theanos_words()
def scan(
    fn,
    sequences=None,
    outputs_info=None,
    non_sequences=None,
    n_steps=None,
    truncate_gradient=-1,
    go_backwards=False,
    mode=None,
    name=None,
    profile=False,
    allow_gc=None,
    strict=False,
    return_list=False,
):
    """Apply a function once per step, to what earlier steps returned and to elements of sequences.

    A shared variable that has a default update, as the state of a random stream has, goes on
    from step to step; from call to call it goes on by one step's update, unless the returned
    updates are passed to ``theano.function``.

    Parameters
    ----------
    fn : callable
        Takes the elements of the sequences, the earlier outputs and the `non_sequences`, and
        returns outputs, updates and an `until`, in this order, of which each may be left out.
    sequences : variable, dict or list of these, optional
        What to go through; ``dict(input=x, taps=[-1, 0])`` for several elements at a time.
    outputs_info : variable, dict, None or list of these, optional
        The first values of the outputs; None for what is not fed back;
        ``dict(initial=x, taps=[-2, -1])`` for several earlier outputs.
    non_sequences : variable or list of variables, optional
    n_steps : int or scalar variable, optional
        The length of the shortest sequence, if not given.
    truncate_gradient : int
        How many steps the gradient goes back; -1 for all.
    go_backwards : bool
        Whether to go through the sequences from their ends.
    mode : str or Mode, optional
        How to compile the step.
    name : str, optional
    profile : bool or str
        Whether to profile the loop, or the name of the profile.
    allow_gc : bool, optional
        Whether to free memory between steps; as the flag ``scan.allow_gc`` says, if None.
    strict : bool
        Whether all the shared variables must be among the arguments.
    return_list : bool
        Whether a single output is returned in a list, too.

    Returns
    -------
    outputs : variable or list of variables
        The values of all steps, along the first axis; None if there is no output.
    updates : OrderedUpdates
        Of the shared variables that the steps update.

    Raises
    ------
    ValueError
        If the number of steps is unknown, or arguments or results of `fn` do not fit.
    TypeError
        If an output has another type than its first value, or `n_steps` is a float.

    Examples
    --------
    >>> import theanoguard
    >>> theano = theanoguard.shim.install_theano()
    >>> powers, updates = theano.scan(lambda x: 2 * x, outputs_info=theano.shared(1), n_steps=4)
    >>> theano.function([], powers, updates=updates)().tolist()
    [2, 4, 8, 16]
    >>> theanoguard.shim.uninstall_theano()
    """
    steps = _fixed_steps(n_steps)
    if steps is not None and steps < -1:  # Theano raises this when the function is called
        raise IndexError(f"Scan was asked to run for negative number of step {steps}")
    is_single = steps in (1, -1)
    if non_sequences is None:
        non_sequences = []
    elif not isinstance(non_sequences, list | tuple):
        non_sequences = [non_sequences]
    outer = [x if isinstance(x, Variable) else as_tensor_variable(x) for x in non_sequences]
    step = fn if is_single else _Step(fn, len(outer))
    with _no_advice(), inside_of_loop():
        outputs, updates = pytensor_scan(
            step,
            sequences=sequences,
            outputs_info=outputs_info,
            non_sequences=outer,
            n_steps=1 if is_single else n_steps,
            truncate_gradient=truncate_gradient,
            go_backwards=go_backwards,
            mode=mode,
            name=name,
            profile=profile,
            allow_gc=allow_gc,
            strict=strict,
            return_list=return_list,
        )
    if is_single:
        return _any_length(outputs), OrderedUpdates(updates)
    for variable, default in step.defaults.items():
        # PyTensor takes it away from variables that `fn` has made.
        variable.default_update = updates[variable] if step.is_inside(default) else default
    return outputs, OrderedUpdates(updates)


def _any_length(outputs):
    """Forget that there was one step: the first axis is not broadcastable."""
    if isinstance(outputs, list):
        return [_any_length(x) for x in outputs]
    is_tensor = hasattr(outputs.type, "broadcastable")
    return unbroadcast(outputs, 0) if is_tensor else outputs
