"""Gradients within bounds."""

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from theanoguard._arguments import Positive, checked
from theanoguard.ops.asserts import Assert
from theanoguard.training.ops import scale_each, squared_norms


class NormAssert(Assert):
    """An :class:`Assert` that comes before anything is overwritten."""

    holds_back = True


@checked
def clip_grad_value(grads: Iterable[Variable], value: Variable | Positive) -> list[Variable]:
    """Clip every element of every gradient to an interval around zero.

    Parameters
    ----------
    grads : sequence of TensorVariable
        Gradients of any shape and floating dtype.
    value : float or TensorVariable
        Elements are clipped to the interval from ``-value`` to ``value``.

    Returns
    -------
    list of TensorVariable
        NaN stays NaN.  Use `clip_grad_norm` or `guarded_updates` against NaN.

    Raises
    ------
    ValueError
        If `value` is a number that is not positive.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> from theanoguard.training import clip_grad_value
    >>> (g,) = clip_grad_value([pt.as_tensor([-3.0, 0.5, 2.0])], 1.0)
    >>> g.eval()
    array([-1. ,  0.5,  1. ])
    """
    return [pt.clip(g, -_like(value, g), _like(value, g)) for g in grads]


@checked
def clip_grad_norm(
    grads: Iterable[Variable],
    max_norm: Variable | Positive,
    *,
    norm_type: Positive = 2,
    per_parameter: bool = False,
    nonfinite_action: Literal["raise", "skip"] = "raise",
) -> tuple[list[Variable], Variable]:
    """Scale gradients down so that their norm is at most a bound.

    Parameters
    ----------
    grads : sequence of TensorVariable
        Gradients of any shape, float32 or float64.
    max_norm : float or TensorVariable
    norm_type : float
        The p of the norm: 1, 2, "inf" or any other positive number.
    per_parameter : bool
        False: all gradients have one norm and one factor.  True: each gradient has its own.
    nonfinite_action : {"raise", "skip"}
        The reaction to a norm that is NaN or Inf.  "raise" stops the call before any update.
        "skip" makes the gradients zero.

    Returns
    -------
    clipped : list of TensorVariable
    norm : TensorVariable
        The norm before clipping: a float64 scalar, or with `per_parameter` a float64 vector.

    Raises
    ------
    ValueError
        For arguments out of range.
    AssertionError
        From the compiled function, if the norm is not finite and `nonfinite_action` is "raise".

    Notes
    -----
    The factor is ``min(1, max_norm / (norm + 1e-6))``, as in ``torch.nn.utils.clip_grad_norm_``.  A
    factor of 1 changes no bit.  The norm is summed in float64, so float32 gradients below 1e38
    cannot overflow it.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> from theanoguard.training import clip_grad_norm
    >>> clipped, norm = clip_grad_norm([pt.as_tensor([3.0, 0.0]), pt.as_tensor([4.0])], 1.0)
    >>> norm.eval()
    array(5.)
    >>> clipped[1].eval().round(4)
    array([0.8])
    """
    grads = list(grads)
    if not grads:
        raise ValueError("grads is empty.\nGive at least one gradient.")
    norms = norms_of(grads, norm_type)
    norm = norms if per_parameter else join_norms(norms, norm_type)
    if nonfinite_action == "raise":
        norm = NormAssert("clip_grad_norm: the norm of the gradients is not finite")(
            norm, pt.all(pt.isfinite(norm))
        )
    factor = pt.minimum(1.0, max_norm / (norm + 1e-6))
    if nonfinite_action == "skip":
        factor = pt.switch(pt.isfinite(norm), factor, 0.0)
    return scale_each(pt.atleast_1d(factor), grads), norm


def norms_of(grads: Sequence[Variable], norm_type: float) -> Variable:
    """Return the p-norm of each gradient as one float64 vector."""
    if norm_type == 2:
        return pt.sqrt(squared_norms(*grads))
    sizes = [pt.abs(g).astype("float64") for g in grads]
    if np.isinf(norm_type):
        return pt.stack([s.max() for s in sizes])
    return pt.stack([(s**norm_type).sum() ** (1.0 / norm_type) for s in sizes])


def join_norms(norms: Variable, norm_type: float) -> Variable:
    """Return the p-norm of everything from the p-norms of the parts."""
    if np.isinf(norm_type):
        return norms.max()
    if norm_type == 2:
        return pt.sqrt(pt.sqr(norms).sum())
    return (norms**norm_type).sum() ** (1.0 / norm_type)


def _like(value: Any, gradient: Variable) -> Variable:
    """A scalar in the dtype of the gradient, so that nothing is upcast."""
    return pt.cast(value, gradient.type.dtype)
