"""The stable forms, written in PyTensor's own operations: they compile on every backend.

Nothing is hidden: NaN stays NaN.  Python numbers take the dtype of the arguments, so float32 is
not upcast.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.gradient import disconnected_grad
from pytensor.graph.basic import Variable

Axis = int | Sequence[int] | None

# Powers of the smallest normal number.
_EXPONENTS = {"log": 0.5, "divide": 0.25, "sqrt": 1.0}


def default_eps(function: str, dtype: str) -> float:
    """Return the eps that a form takes when none is given.

    Parameters
    ----------
    function : {"log", "divide", "sqrt"}
    dtype : str
        A floating dtype.

    Returns
    -------
    float
        A power of the smallest normal number of the dtype, 1.2e-38 in float32 and 2.2e-308 in
        float64: its square root for the logarithm, so that the gradient ``1 / x`` and its square
        are finite; its fourth root for division, so that the gradient ``x / y ** 2`` is finite up
        to ``x = 1 / eps ** 2``; itself for the root, whose gradient is ``0.5 / sqrt(x)``.

    Examples
    --------
    >>> [f"{default_eps(name, 'float32'):.1e}" for name in ("log", "divide", "sqrt")]
    ['1.1e-19', '3.3e-10', '1.2e-38']
    >>> [f"{default_eps(name, 'float64'):.1e}" for name in ("log", "divide", "sqrt")]
    ['1.5e-154', '1.2e-77', '2.2e-308']
    """
    return float(np.finfo(dtype).tiny) ** _EXPONENTS[function]


def log(x: Any, eps: float | None = None) -> Variable:
    """Logarithm that takes whatever lies below `eps` for `eps`.

    Parameters
    ----------
    x : TensorVariable
        Of any shape.  The domain is ``x >= 0``; a negative `x` counts as `eps` too: where it
        would be a mistake, check it with :func:`theanoguard.ops.assert_in_range`.
    eps : float, optional
        Default: :func:`default_eps`.

    Returns
    -------
    TensorVariable
        For ``x >= eps`` the logarithm, exactly as PyTensor computes it; below, ``log(eps)``: -43.7
        in float32 and -354 in float64 at 0, in place of -inf.  The gradient is ``1 / x``, at
        most ``1 / eps``, and 0 below `eps`.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> from theanoguard import stable
    >>> stable.log(pt.as_tensor([0.0, 1.0])).eval().round(2)
    array([-354.2,    0. ])
    """
    x = _as_float(x)
    return pt.log(pt.maximum(x, _eps("log", eps, x)))


def divide(x: Any, y: Any, eps: float | None = None) -> Variable:
    """Quotient whose divisor is kept at least `eps` away from 0.

    Parameters
    ----------
    x, y : TensorVariable
        Broadcast against each other.
    eps : float, optional
        Default: :func:`default_eps`.

    Returns
    -------
    TensorVariable
        For ``abs(y) >= eps`` the quotient, exactly; nearer to 0, `y` counts as `eps` with its
        sign (0 counts as positive), so that 0 / 0 is 0.  The gradient by `x` is at most
        ``1 / eps``, that by `y` at most ``abs(x) / eps ** 2``, and 0 where `y` is nearer to 0.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> from theanoguard import stable
    >>> stable.divide(pt.as_tensor([0.0, 1.0, 1.0]), pt.as_tensor([0.0, 0.0, 4.0])).eval()
    array([0.00000000e+00, 8.18...e+76, 2.50000000e-01])
    """
    x, y = _as_float(x), _as_float(y)
    eps = _eps("divide", eps, y)
    return x / pt.switch(_is(pt.lt, y), pt.minimum(y, -eps), pt.maximum(y, eps))


def sqrt(x: Any, eps: float | None = None) -> Variable:
    """Square root that takes whatever lies below `eps` for `eps`.

    Parameters
    ----------
    x : TensorVariable
        Of any shape.  The domain is ``x >= 0``; what rounding has made negative counts as `eps`.
    eps : float, optional
        Default: :func:`default_eps`.

    Returns
    -------
    TensorVariable
        For ``x >= eps`` the root, exactly; below, ``sqrt(eps)``, an error of at most 1.1e-19 in
        float32 and 1.5e-154 in float64.  The gradient is ``0.5 / sqrt(x)``, and 0 below `eps`.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> from theanoguard import stable
    >>> stable.sqrt(pt.as_tensor([-1e-17, 4.0])).eval()
    array([1.49166815e-154, 2.00000000e+000])
    """
    x = _as_float(x)
    return pt.sqrt(pt.maximum(x, _eps("sqrt", eps, x)))


def norm(x: Any, axis: Axis = None, keepdims: bool = False) -> Variable:
    """Euclidean norm, which neither overflows nor underflows on the way.

    Parameters
    ----------
    x : TensorVariable
        Not empty along the axes.
    axis : int or tuple of int, optional
        By default all axes.
    keepdims : bool
        Whether the axes stay, with length 1.

    Returns
    -------
    TensorVariable
        0 for zeros, with the gradient 0; else to rounding the norm, with the gradient
        ``x / norm``, as far as the norm itself can be represented (below the smallest normal
        number, with fewer digits).  There is no eps.  Inf for an infinite element, whose gradient
        is NaN.

    Notes
    -----
    What is squared is ``x / max(abs(x))``, as in BLAS's ``nrm2``.  As the result does not
    depend on that divisor, no gradient is taken through it.

    Examples
    --------
    >>> import numpy as np, pytensor, pytensor.tensor as pt
    >>> from theanoguard import stable
    >>> x = pt.vector("x", dtype="float32")
    >>> f = pytensor.function([x], [stable.norm(x), pytensor.grad(stable.norm(x), x)])
    >>> print(*f(np.float32([4e30, 0])), *f([0, 0]))
    4e+30 [1. 0.] 0.0 [0. 0.]
    """
    x = _as_float(x)
    limits = np.finfo(x.type.dtype)
    size = pt.max(pt.abs(x), axis=axis, keepdims=True)
    size = disconnected_grad(pt.clip(size, *_constants(x, limits.tiny, limits.max)))
    total = pt.sum(pt.sqr(x / size), axis=axis, keepdims=True)
    # Less than (smallest number / size) ** 2 = eps ** 2 is 0; divided by this, 0 stays 0.
    zero, least = _constants(x, 0, limits.eps**2)
    result = pt.switch(_is(pt.eq, total), zero, size * pt.sqrt(pt.maximum(total, least)))
    return result if keepdims else _without(result, axis)


def logsumexp(x: Any, axis: Axis = None, keepdims: bool = False) -> Variable:
    """Logarithm of the sum of exponentials.

    Parameters
    ----------
    x : TensorVariable
        Not empty along the axes.  -inf, as a mask, counts as nothing.
    axis : int or tuple of int, optional
        By default all axes.
    keepdims : bool
        Whether the axes stay, with length 1.

    Returns
    -------
    TensorVariable
        To rounding exact.  -inf where all is masked, with the gradient 0.

    Notes
    -----
    ``m + log(sum(exp(x - m)))`` with the maximum m: P. Blanchard, D. J. Higham and N. J. Higham,
    *Accurately computing the log-sum-exp and softmax functions*, IMA J. Numer. Anal. 41 (2021),
    https://doi.org/10.1093/imanum/draa038.

    Examples
    --------
    >>> import numpy as np, pytensor.tensor as pt
    >>> from theanoguard import stable
    >>> stable.logsumexp(pt.as_tensor([1000.0, 1000.0, -np.inf])).eval().round(2)
    np.float64(1000.69)
    """
    x = _as_float(x)
    top, _, total = _shifted(x, axis)
    masked = pt.switch(_is(pt.eq, total), *_constants(x, -np.inf, 0))
    result = top + pt.log(_at_least_one(total)) + masked
    return result if keepdims else _without(result, axis)


def softmax(x: Any, axis: Axis = None) -> Variable:
    """Exponentials over their sum.

    Parameters
    ----------
    x : TensorVariable
        Not empty along the axes.  -inf, as a mask, gives 0.
    axis : int or tuple of int, optional
        By default all axes, as in PyTensor.

    Returns
    -------
    TensorVariable
        To rounding exact.  0 where all is masked, with the gradient 0.

    Examples
    --------
    >>> import numpy as np, pytensor.tensor as pt
    >>> from theanoguard import stable
    >>> stable.softmax(pt.as_tensor([[0.0, 0.0], [-np.inf, -np.inf]]), axis=1).eval()
    array([[0.5, 0.5],
           [0. , 0. ]])
    """
    _, terms, total = _shifted(_as_float(x), axis)
    return terms / _at_least_one(total)


def log_softmax(x: Any, axis: Axis = None) -> Variable:
    """Logarithm of the softmax.

    Parameters
    ----------
    x : TensorVariable
        Not empty along the axes.  -inf, as a mask, stays -inf.
    axis : int or tuple of int, optional
        By default all axes, as in PyTensor.

    Returns
    -------
    TensorVariable
        To rounding exact.  The gradient of a masked element is 0; mask what is made of the
        result too, for 0 times -inf is NaN.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> from theanoguard import stable
    >>> stable.log_softmax(pt.as_tensor([0.0, 1000.0])).eval()
    array([-1000.,     0.])
    """
    x = _as_float(x)
    top, _, total = _shifted(x, axis)
    return x - top - pt.log(_at_least_one(total))


def binary_crossentropy(output: Any, target: Any, *, from_logits: bool = False) -> Variable:
    """Cross-entropy of Bernoulli distributions, element by element.

    Parameters
    ----------
    output : TensorVariable
        Probabilities, or with `from_logits` what a sigmoid would be taken of: prefer that, as a
        probability near 1 has lost its digits.
    target : TensorVariable
        Broadcasts against `output`; between 0 and 1.
    from_logits : bool

    Returns
    -------
    TensorVariable
        ``-target * log(output) - (1 - target) * log(1 - output)``.  From logits exact to
        rounding for every finite logit.  From probabilities `output` counts as at least
        ``default_eps("log", dtype)`` and at most the largest number below 1, so that the result is
        at most 43.7 (16.6 for a target of 0) in float32 and 354 (36.7) in float64; outside of that
        range the gradient by `output` is 0.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> from theanoguard import stable
    >>> z, t = pt.as_tensor([-800.0, 0.0, 800.0]), pt.as_tensor([0.0, 1.0, 0.0])
    >>> stable.binary_crossentropy(z, t, from_logits=True).eval()
    array([0.00000000e+00, 6.93147181e-01, 8.00000000e+02])
    """
    output = _as_float(output)
    target = _like(target, output)
    if from_logits:
        return target * pt.softplus(-output) + (1 - target) * pt.softplus(output)
    (below_one,) = _constants(output, 1 - np.finfo(output.type.dtype).epsneg)
    return -target * log(output) - (1 - target) * pt.log1p(-pt.minimum(output, below_one))


def categorical_crossentropy(
    output: Any, target: Any, *, axis: int = -1, from_logits: bool = False
) -> Variable:
    """Cross-entropy of categorical distributions.

    Parameters
    ----------
    output : TensorVariable
        Probabilities along `axis`, or with `from_logits` what a softmax would be taken of: prefer
        that, as a small probability underflows.
    target : TensorVariable
        Integers, the numbers of the right classes, with one dimension less than `output`; or
        probabilities, with as many.
    axis : int
        That of the classes.
    from_logits : bool

    Returns
    -------
    TensorVariable
        ``-sum(target * log(output), axis)``; what has the target 0 counts 0, if it is masked by
        a logit of -inf too.  From logits exact to rounding; from probabilities as :func:`log`.

    Raises
    ------
    ValueError
        When the number of dimensions of `target` fits neither.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> from theanoguard import stable
    >>> h = pt.as_tensor([[0.0, 1000.0], [0.0, 0.0]])
    >>> stable.categorical_crossentropy(h, pt.as_tensor([0, 1]), from_logits=True).eval()
    array([1.00000000e+03, 6.93147181e-01])
    """
    output, target = _as_float(output), pt.as_tensor_variable(target)
    if target.type.ndim == output.type.ndim:
        logs = log_softmax(output, axis) if from_logits else log(output)
        target = _like(target, output)
        zero = pt.zeros_like(target * logs)
        return -pt.sum(pt.switch(_is(pt.eq, target), zero, target * logs), axis=axis)
    if target.type.dtype.startswith("float") or target.type.ndim != output.type.ndim - 1:
        raise ValueError(
            f"target is a {target.type} and output a {output.type}.\n"
            "Give integers with one dimension less than output, or probabilities with as many."
        )
    values = log_softmax(output, axis) if from_logits else output
    picked = pt.take_along_axis(values, pt.expand_dims(target, axis), axis=axis)
    picked = pt.squeeze(picked, axis=axis)
    return -picked if from_logits else -log(picked)


# ---------------------------------------------------------------- what they share


def _as_float(x: Any) -> Variable:
    x = pt.as_tensor_variable(x)
    kind = np.dtype(x.type.dtype).kind
    if kind == "c":
        raise TypeError(f"{x} is complex.\nThe stable forms take real numbers.")
    return x if kind == "f" else pt.cast(x, pytensor.config.floatX)


def _like(x: Any, other: Variable) -> Variable:
    """A tensor of `x`, in the dtype of another where it is not floating itself."""
    x = pt.as_tensor_variable(x)
    return x if x.type.dtype.startswith("float") else pt.cast(x, other.type.dtype)


def _is(compare: Callable, x: Variable) -> Variable:
    """How `x` compares with 0.  A gradient through that would be zeros, of another dtype."""
    return compare(disconnected_grad(x), 0)


def _constants(x: Variable, *values: float) -> list[Variable]:
    return [pt.constant(np.asarray(value, dtype=x.type.dtype)) for value in values]


def _eps(function: str, eps: float | None, x: Variable) -> Variable:
    value = default_eps(function, x.type.dtype) if eps is None else eps
    rounded = np.asarray(value, dtype=x.type.dtype)
    if not rounded > 0:
        raise ValueError(
            f"eps is {value!r} in {x.type.dtype}.\nIt must be a positive number there."
        )
    return pt.constant(rounded)


def _without(x: Variable, axis: Axis) -> Variable:
    """`x` without the axes along which it has length 1."""
    return pt.squeeze(x, axis=tuple(range(x.type.ndim)) if axis is None else axis)


def _shifted(x: Variable, axis: Axis) -> tuple[Variable, Variable, Variable]:
    """The maximum, ``exp(x - maximum)``, and the sum of that: 0 where all is -inf, else 1 or more.

    The results do not depend on what is subtracted, so that no gradient is taken through it.
    """
    limit = np.finfo(x.type.dtype).max
    top = pt.max(x, axis=axis, keepdims=True)
    top = disconnected_grad(pt.clip(top, *_constants(x, -limit, limit)))
    terms = pt.exp(x - top)
    return top, terms, pt.sum(terms, axis=axis, keepdims=True)


def _at_least_one(total: Variable) -> Variable:
    return pt.maximum(total, *_constants(total, 1))
