"""Theano's ``theano.gradient``."""

from functools import wraps

from pytensor.gradient import (
    DisconnectedInputError,
    GradientError,
    NullTypeGradError,
    ZeroGrad,
    pullback,
    pushforward,
    zero_grad,
    zero_grad_,
)
from pytensor.gradient import grad as pt_grad
from pytensor.gradient import hessian as pt_hessian
from pytensor.gradient import jacobian as pt_jacobian
from pytensor.gradient import verify_grad as pt_verify_grad
from pytensor.graph.basic import Variable

from ._rebroadcast import rebroadcast
from ._words import theanos_words

DISCONNECTED = (
    "grad method was asked to compute the gradient with respect to a variable that is not part of "
    "the computational graph of the cost, or is used only by a non-differentiable operator.\n"
    "Take it out of wrt, or pass disconnected_inputs='ignore' to get zeros."
)
ConsiderConstant = ZeroGrad
consider_constant = zero_grad
consider_constant_ = zero_grad_


@wraps(pt_grad)
@theanos_words()
def grad(cost, wrt, *args, **kwargs):
    """Return the gradients of `cost`; what is no variable has none."""
    for elem in wrt if isinstance(wrt, list | tuple) else [wrt]:
        if not isinstance(elem, Variable):
            raise TypeError(f"Expected Variable, got {elem} of type {type(elem)}")
    try:
        gradients = pt_grad(cost, wrt, *args, **kwargs)
    except DisconnectedInputError as error:
        if str(error).lstrip().startswith("Backtrace"):
            # Both Theano and PyTensor have a text and raise with the backtrace alone.
            error.args = (f"{DISCONNECTED}{error}",)
        raise
    if isinstance(wrt, list | tuple):
        return type(gradients)(map(_without_ones, gradients, wrt))
    return _without_ones(gradients, wrt)


def _without_ones(gradient, variable):
    """Return a gradient whose dimensions are broadcastable only where those of `variable` are."""
    patterns = (getattr(tensor, "broadcastable", ()) for tensor in (gradient, variable))
    new = [axis for axis, (one, known) in enumerate(zip(*patterns, strict=False)) if one > known]
    return rebroadcast(gradient, dict.fromkeys(new, False)) if new else gradient


@wraps(pt_jacobian)
def jacobian(expression, wrt, *args, **kwargs):
    """Return the Jacobian of `expression`, which is a vector."""
    assert isinstance(expression, Variable), "tensor.jacobian expects a Variable as `expression`"
    assert expression.ndim < 2, (
        "tensor.jacobian expects a 1 dimensional variable as `expression`. If not use flatten to "
        "make it a vector"
    )
    return pt_jacobian(expression, wrt, *args, **kwargs)


@wraps(pt_hessian)
def hessian(cost, wrt, *args, **kwargs):
    """Return the Hessian of `cost`, which is a scalar, by `wrt`, one or more vectors."""
    assert isinstance(cost, Variable), "tensor.hessian expects a Variable as `cost`"
    assert cost.ndim == 0, "tensor.hessian expects a 0 dimensional variable as `cost`"
    for elem in wrt if isinstance(wrt, list | tuple) else [wrt]:
        assert isinstance(elem, Variable), "tensor.hessian expects a (list of) Variable as `wrt`"
        assert elem.ndim == 1, "tensor.hessian expects a (list of) 1 dimensional variable as `wrt`"
    return pt_hessian(cost, wrt, *args, **kwargs)


def Rop(f, wrt, eval_points, disconnected_outputs="raise", return_disconnected="zero"):
    """Return the Jacobian of `f` times `eval_points`.

    By the operations' own ``R_op``, as in Theano; where one of PyTensor's has none, by two
    gradients.
    """
    arguments = (f, wrt, eval_points, disconnected_outputs, return_disconnected)
    try:
        return pushforward(*arguments, use_op_pushforward=True)
    except NotImplementedError:
        pass
    try:
        return pushforward(*arguments)
    except NullTypeGradError as error:
        raise ValueError(str(error)) from error


def Lop(
    f,
    wrt,
    eval_points,
    consider_constant=None,
    disconnected_inputs="raise",
    return_disconnected="zero",
):
    """Return `eval_points` times the Jacobian of `f`."""
    return pullback(
        f,
        wrt,
        cotangents=eval_points,
        consider_constant=consider_constant,
        disconnected_inputs=disconnected_inputs,
        return_disconnected=return_disconnected,
    )


@wraps(pt_verify_grad)
def verify_grad(*args, **kwargs):
    """Compare a gradient with finite differences; raises ``verify_grad.E_grad`` if they differ."""
    return pt_verify_grad(*args, **kwargs)


verify_grad.E_grad = GradientError


def format_as(use_list, use_tuple, outputs):
    """Return `outputs` as a list, as a tuple, or the only one of them alone."""
    assert not (use_list and use_tuple), "Both flags cannot be simultaneously True"
    if use_list or use_tuple:
        return list(outputs) if use_list else tuple(outputs)
    assert len(outputs) == 1, "Wrong arguments. Expected a one element list"
    return outputs[0]
