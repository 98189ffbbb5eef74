"""The stable functions, written in PyTensor's own operations, so every backend compiles them.

Nothing is hidden: NaN stays NaN.  Python numbers take the dtype of the arguments, so float32 is
not upcast.
"""

import math
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.gradient import disconnected_grad
from pytensor.graph.basic import Variable

from theanoguard._arguments import checked, refuse
from theanoguard.ops.asserts import TensorLike

Axis = int | Sequence[int] | None
WithEps = Literal["log", "divide", "sqrt"]

# Powers of the smallest normal number.
_EXPONENTS = {"log": 0.5, "divide": 0.25, "sqrt": 1.0}


@checked
def default_eps(function: WithEps, dtype: str) -> float:
    """Return the default `eps` of a function.

    Parameters
    ----------
    function : {"log", "divide", "sqrt"}
    dtype : str
        A floating dtype.

    Returns
    -------
    float
        A power of the smallest normal number of the dtype, which is 1.2e-38 in float32 and 2.2e-308
        in float64.  For ``log`` it is the square root, so that the gradient ``1 / x`` and its
        square are finite.  For ``divide`` it is the fourth root, so that the gradient ``x / y **
        2`` is finite up to ``x = 1 / eps ** 2``.  For ``sqrt`` it is the number itself.

    Examples
    --------
    >>> [f"{default_eps(name, 'float32'):.1e}" for name in ("log", "divide", "sqrt")]
    ['1.1e-19', '3.3e-10', '1.2e-38']
    >>> [f"{default_eps(name, 'float64'):.1e}" for name in ("log", "divide", "sqrt")]
    ['1.5e-154', '1.2e-77', '2.2e-308']
    """
    if dtype not in pt.type.float_dtypes:
        raise refuse("default_eps", "dtype", dtype, "dtype must be a floating dtype")
    return float(np.finfo(dtype).tiny) ** _EXPONENTS[function]


@checked
def log(x: TensorLike, eps: float | None = None) -> Variable:
    """Return the logarithm, with `eps` in place of every smaller argument.

    Parameters
    ----------
    x : TensorVariable
        The domain is ``x >= 0``.  A negative `x` also counts as `eps`.  If it can be a mistake,
        check it with :func:`theanoguard.ops.assert_in_range`.
    eps : float, optional
        Default: :func:`default_eps`.

    Returns
    -------
    TensorVariable
        For ``x >= eps``, PyTensor's logarithm, with an error of at most 2 ulp, and the gradient
        ``1 / x``.  Below `eps`, the value is ``log(eps)``, which is -43.7 in float32 and -354 in
        float64, and the gradient is 0.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> from theanoguard import stable
    >>> stable.log(pt.as_tensor([0.0, 1.0])).eval().round(2)
    array([-354.2,    0. ])
    """
    x = _as_float(x)
    return pt.log(pt.maximum(x, _eps("log", eps, x)))


@checked
def divide(x: TensorLike, y: TensorLike, eps: float | None = None) -> Variable:
    """Return a quotient whose divisor is at least `eps` away from 0.

    Parameters
    ----------
    x, y : TensorVariable
        They are broadcast against each other.
    eps : float, optional
        Default: :func:`default_eps`.

    Returns
    -------
    TensorVariable
        For ``abs(y) >= eps``, the quotient with an error of at most 0.5 ulp.  Nearer to 0, `y`
        counts as `eps` with the sign of `y`.  0 counts as positive, so 0 / 0 is 0.  The gradient by
        `x` is at most ``1 / eps``.  The gradient by `y` is at most ``abs(x) / eps ** 2``, and 0 if
        `y` is nearer to 0 than `eps`.

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


@checked
def sqrt(x: TensorLike, eps: float | None = None) -> Variable:
    """Return the square root, with `eps` in place of every smaller argument.

    Parameters
    ----------
    x : TensorVariable
        The domain is ``x >= 0``.  An argument that rounding made negative counts as `eps`.
    eps : float, optional
        Default: :func:`default_eps`.

    Returns
    -------
    TensorVariable
        For ``x >= eps``, the root with an error of at most 0.5 ulp, and the gradient ``0.5 /
        sqrt(x)``.  Below `eps`, the value is ``sqrt(eps)``, which is 1.1e-19 in float32 and
        1.5e-154 in float64, and the gradient is 0.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> from theanoguard import stable
    >>> stable.sqrt(pt.as_tensor([-1e-17, 4.0])).eval()
    array([1.49166815e-154, 2.00000000e+000])
    """
    x = _as_float(x)
    return pt.sqrt(pt.maximum(x, _eps("sqrt", eps, x)))


@checked
def norm(x: TensorLike, axis: Axis = None, keepdims: bool = False) -> Variable:
    """Return the Euclidean norm.  Its squares neither overflow nor underflow.

    Parameters
    ----------
    x : TensorVariable
        Not empty along the axes.
    axis : int or tuple of int, optional
        By default all axes.
    keepdims : bool
        Whether to keep the axes, with length 1.

    Returns
    -------
    TensorVariable
        The norm, with an error of at most 3 ulp for four elements, and the gradient ``x / norm``.
        For zeros, value and gradient are 0.  For an infinite element, the norm is Inf and its
        gradient is NaN.  A norm below the smallest normal number has fewer digits.  PyTensor
        computes the gradient as a quotient, whose numerator is `x` times the gradient by the norm.

    Notes
    -----
    The function squares ``x / 2**k``, where 2**k is near the largest element, so it rounds as
    ``sqrt(sum(x ** 2))`` does where no square overflows or underflows.  The result does not depend
    on the divisor, so the gradient does not go through it.

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
    size = _power_of_two(pt.max(pt.abs(x), axis=axis, keepdims=True))
    result = _scaled_root(size, pt.sum(pt.sqr(x / size), axis=axis, keepdims=True))
    return result if keepdims else _without(result, axis)


@checked
def logsumexp(x: TensorLike, axis: Axis = None, keepdims: bool = False) -> Variable:
    """Return the logarithm of the sum of exponentials.

    Parameters
    ----------
    x : TensorVariable
        Not empty along the axes.  An element -inf is masked: it adds nothing to the sum.
    axis : int or tuple of int, optional
        By default all axes.
    keepdims : bool
        Whether to keep the axes, with length 1.

    Returns
    -------
    TensorVariable
        For four elements, the error is at most 2 ulp of the value, or of 1 if that is larger.  If
        all elements are masked, the value is -inf and the gradient is 0.

    Notes
    -----
    The formula is ``m + log(sum(exp(x - m)))`` with the maximum m: P. Blanchard, D. J. Higham and
    N. J. Higham, *Accurately computing the log-sum-exp and softmax functions*, IMA J. Numer. Anal.
    41 (2021), https://doi.org/10.1093/imanum/draa038.

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


@checked
def softmax(x: TensorLike, axis: Axis = None) -> Variable:
    """Return the exponentials divided by their sum.

    Parameters
    ----------
    x : TensorVariable
        Not empty along the axes.  An element -inf is masked: its result is 0.
    axis : int or tuple of int, optional
        By default all axes, as in PyTensor.

    Returns
    -------
    TensorVariable
        For four elements, the error is at most 4 ulp for a result near 1.  It grows with the
        distance from the largest element m, to ``4 * (1 + m - x)`` ulp.  If all elements are
        masked, value and gradient are 0.

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


@checked
def log_softmax(x: TensorLike, axis: Axis = None) -> Variable:
    """Return the logarithm of the softmax.

    Parameters
    ----------
    x : TensorVariable
        Not empty along the axes.  An element -inf is masked: its result is -inf.
    axis : int or tuple of int, optional
        By default all axes, as in PyTensor.

    Returns
    -------
    TensorVariable
        For four elements, the error is at most 3 ulp of the value, or of 1 if that is larger.  The
        gradient of a masked element is 0.  Mask every product with the result as well, because 0
        times -inf is NaN.

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


@checked
def binary_crossentropy(
    output: TensorLike, target: TensorLike, *, from_logits: bool = False
) -> Variable:
    """Return the cross-entropy of Bernoulli distributions, element by element.

    Parameters
    ----------
    output : TensorVariable
        Probabilities.  With `from_logits`, the arguments of a sigmoid.  Prefer logits, because a
        probability near 1 has lost digits.
    target : TensorVariable
        Numbers from 0 to 1, broadcast against `output`.
    from_logits : bool

    Returns
    -------
    TensorVariable
        ``-target * log(output) - (1 - target) * log(1 - output)``.  For every finite logit, and for
        probabilities inside of the limits, the error is at most 4 ulp.  Probabilities below
        ``default_eps("log", dtype)`` count as this number, and probabilities of 1 as the largest
        number below 1.  Beyond these limits the gradient by `output` is 0.  So the result is at
        most 43.7 (for a target of 0: 16.6) in float32, and 354 (36.7) in float64.

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


@checked
def categorical_crossentropy(
    output: TensorLike, target: TensorLike, *, axis: int = -1, from_logits: bool = False
) -> Variable:
    """Return the cross-entropy of categorical distributions.

    Parameters
    ----------
    output : TensorVariable
        Probabilities along `axis`.  With `from_logits`, the arguments of a softmax.  Prefer logits,
        because a small probability underflows.
    target : TensorVariable
        The numbers of the right classes, as integers with one dimension less than `output`, or
        probabilities with as many dimensions.
    axis : int
        The axis of the classes.
    from_logits : bool

    Returns
    -------
    TensorVariable
        ``-sum(target * log(output), axis)``.  A class with the target 0 adds 0, even if a logit of
        -inf masks it.  From four logits, the error is at most 3 ulp of the value, or of 1 if that
        is larger.  From probabilities it is that of :func:`log`.

    Raises
    ------
    ValueError
        If `target` has a wrong number of dimensions.

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


@checked
def logaddexp(x: TensorLike, y: TensorLike) -> Variable:
    """Return the logarithm of the sum of two exponentials.

    Parameters
    ----------
    x, y : TensorVariable
        They are broadcast against each other.

    Returns
    -------
    TensorVariable
        From the larger one, so no exponential overflows.  The error is at most 2 ulp of the value,
        or of 1 if that is larger.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> from theanoguard import stable
    >>> stable.logaddexp(pt.as_tensor([1000.0, 0.0]), -1000.0).eval()
    array([1000.,    0.])
    """
    x = _as_float(x)
    y = _like(y, x)
    return pt.switch(pt.gt(x, y), x + pt.softplus(y - x), y + pt.softplus(x - y))


@checked
def hypot(x: TensorLike, y: TensorLike) -> Variable:
    """Return ``sqrt(x**2 + y**2)``.  The squares neither overflow nor underflow.

    Parameters
    ----------
    x, y : TensorVariable
        They are broadcast against each other.

    Returns
    -------
    TensorVariable
        The error is at most 3 ulp.  For zeros, value and gradient are 0.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> from theanoguard import stable
    >>> stable.hypot(pt.as_tensor(3e200), 4e200).eval()
    array(5.e+200)
    """
    x = _as_float(x)
    y = _like(y, x)
    size = _power_of_two(pt.maximum(pt.abs(x), pt.abs(y)))
    return _scaled_root(size, pt.sqr(x / size) + pt.sqr(y / size))


@checked
def log_erfc(x: TensorLike) -> Variable:
    """Return the logarithm of the complementary error function.

    Parameters
    ----------
    x : TensorVariable

    Returns
    -------
    TensorVariable
        For ``x > 0.5``, ``log(erfcx(x)) - x**2`` with the scaled function erfcx, so it does not
        underflow.  For others, ``log1p(-erf(x))``.  The error is at most 8 ulp.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> from theanoguard import stable
    >>> print(*stable.log_erfc(pt.as_tensor([-1.0, 30.0])).eval().round(2))
    0.61 -903.97
    """
    x = _as_float(x)
    (middle,) = _constants(x, 0.5)
    above = pt.log(pt.erfcx(pt.maximum(x, middle))) - pt.sqr(x)
    return pt.switch(pt.gt(x, middle), above, pt.log1p(-pt.erf(pt.minimum(x, middle))))


@checked
def exprel(x: TensorLike) -> Variable:
    """Return ``expm1(x) / x``, and 1 at 0.

    Parameters
    ----------
    x : TensorVariable

    Returns
    -------
    TensorVariable
        The error is at most 4 ulp.  The gradient at 0 is 1/2.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> from theanoguard import stable
    >>> stable.exprel(pt.as_tensor([0.0, 1e-9])).eval()
    array([1., 1.])
    """
    return _with_series(x, 0.05, lambda y: pt.expm1(y) / y, _EXPREL)


@checked
def log1prel(x: TensorLike) -> Variable:
    """Return ``log1p(x) / x``, and 1 at 0.

    Parameters
    ----------
    x : TensorVariable

    Returns
    -------
    TensorVariable
        The error is at most 4 ulp.  The gradient at 0 is -1/2.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> from theanoguard import stable
    >>> stable.log1prel(pt.as_tensor([0.0, 1e-9])).eval()
    array([1., 1.])
    """
    return _with_series(x, 0.02, lambda y: pt.log1p(y) / y, _LOG1PREL)


@checked
def sinc(x: TensorLike) -> Variable:
    """Return ``sin(x) / x``, and 1 at 0.

    Parameters
    ----------
    x : TensorVariable

    Returns
    -------
    TensorVariable
        The error is at most 4 ulp.  The gradient at 0 is 0.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> from theanoguard import stable
    >>> stable.sinc(pt.as_tensor([0.0, 1e-9])).eval()
    array([1., 1.])
    """
    return _with_series(x, 0.3, lambda y: pt.sin(y) / y, _SINC)


# The coefficients of their Taylor series, from the constant on.
_EXPREL = [1 / math.factorial(n + 1) for n in range(11)]
_LOG1PREL = [(-1) ** n / (n + 1) for n in range(13)]
_SINC = [0.0 if n % 2 else (-1) ** (n // 2) / math.factorial(n + 1) for n in range(15)]


def _with_series(
    x: TensorLike, size: float, formula: Callable, coefficients: Sequence[float]
) -> Variable:
    """Return a formula; near 0, its series.  Each gets operands that are safe for it."""
    x = _as_float(x)
    limit, zero, one = _constants(x, size, 0, 1)
    is_near = pt.lt(pt.abs(x), limit)
    near = pt.switch(is_near, x, zero)
    *rest, total = _constants(x, *coefficients)
    for c in reversed(rest):
        total = c + total * near
    return pt.switch(is_near, total, formula(pt.switch(is_near, one, x)))


# ---------------------------------------------------------------- what they share


def _as_float(x: TensorLike) -> Variable:
    x = pt.as_tensor_variable(x)
    kind = np.dtype(x.type.dtype).kind
    if kind == "c":
        raise TypeError(f"{x} is complex.\nThe stable forms take real numbers.")
    return x if kind == "f" else pt.cast(x, pytensor.config.floatX)


def _like(x: TensorLike, other: Variable) -> Variable:
    """A tensor of `x`, in the dtype of another where it is not floating itself."""
    x = pt.as_tensor_variable(x)
    return x if x.type.dtype.startswith("float") else pt.cast(x, other.type.dtype)


def _is(compare: Callable, x: Variable) -> Variable:
    """How `x` compares with 0.  A gradient through that would be zeros, of another dtype."""
    return compare(disconnected_grad(x), 0)


def _power_of_two(size: Variable) -> Variable:
    """Return a power of two near positive numbers, by which a division does not round."""
    limits = np.finfo(size.type.dtype)
    clipped = pt.clip(size, *_constants(size, limits.tiny, limits.max / 4))
    return disconnected_grad(pt.exp2(pt.floor(pt.log2(clipped))))


def _scaled_root(size: Variable, total: Variable) -> Variable:
    """Return ``size * sqrt(total)``, which is 0 with the gradient 0 for a total of 0."""
    # Less than (smallest number / size) ** 2 = eps ** 2 is 0; divided by this, 0 stays 0.
    zero, least = _constants(total, 0, np.finfo(total.type.dtype).eps ** 2)
    return pt.switch(_is(pt.eq, total), zero, size * pt.sqrt(pt.maximum(total, least)))


def _constants(x: Variable, *values: float) -> list[Variable]:
    return [pt.constant(np.asarray(value, dtype=x.type.dtype)) for value in values]


def _eps(function: WithEps, eps: float | None, x: Variable) -> Variable:
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


def largest_of_groups(x: Variable, groups: Variable, count: Variable) -> Variable:
    """Return the largest row of each group, element by element; any number for an empty group.

    It sorts, since no backend promises which of several rows is written to one place.
    """
    columns = pt.prod(x.shape[1:])
    keys = (groups[:, None] * columns + pt.arange(columns)[None, :]).ravel()
    flat = disconnected_grad(x).ravel()
    order = pt.argsort(keys * flat.shape[0] + pt.argsort(pt.argsort(flat)))
    behind = pt.extra_ops.searchsorted(keys[order], pt.arange(count * columns), side="right")
    top = pt.concatenate([pt.zeros(1, flat.type.dtype), flat[order]])[behind]
    return _finite(top).reshape((count, *[x.shape[i] for i in range(1, x.type.ndim)]))


def _finite(x: Variable) -> Variable:
    limit = np.finfo(x.type.dtype).max
    return pt.clip(x, *_constants(x, -limit, limit))


def _shifted(x: Variable, axis: Axis) -> tuple[Variable, Variable, Variable]:
    """The maximum, ``exp(x - maximum)``, and the sum of that: 0 where all is -inf, else 1 or more.

    The results do not depend on what is subtracted, so that no gradient is taken through it.
    """
    top = _finite(disconnected_grad(pt.max(x, axis=axis, keepdims=True)))
    terms = pt.exp(x - top)
    return top, terms, pt.sum(terms, axis=axis, keepdims=True)


def _at_least_one(total: Variable) -> Variable:
    return pt.maximum(total, *_constants(total, 1))
