"""What ``theano.sandbox.linalg`` has beyond ``theano.tensor``."""

from pytensor.graph.rewriting.basic import copy_stack_trace
from pytensor.tensor.basic import as_tensor_variable, trace
from pytensor.tensor.math import Dot

from ...gof.opt import local_optimizer
from ...tensor.nlinalg import MatrixInverse
from ...tensor.slinalg import solve, solve_symmetric


@local_optimizer(None)
def inv_as_solve(node):
    """Write a product with an inverse as the solution of a system; no mode includes this."""
    if not isinstance(node.op, Dot):
        return None
    left, right = node.inputs
    if left.owner and isinstance(left.owner.op, MatrixInverse):
        new = solve(left.owner.inputs[0], right)
    elif right.owner and isinstance(right.owner.op, MatrixInverse):
        (x,) = right.owner.inputs
        is_symmetric = getattr(x.tag, "symmetric", None) is True
        new = solve_symmetric(x, left.T).T if is_symmetric else solve(x.T, left.T).T
    else:
        return None
    copy_stack_trace(node.outputs[0], new)
    return [new]


def psd(v):
    """Return `v`: that a matrix is positive semi-definite makes no difference here."""
    return v


def spectral_radius_bound(X, log2_exponent):
    """Return an upper bound of the largest eigenvalue of a symmetric matrix.

    It is the trace of ``X ** (2 ** log2_exponent)``, of which the root is taken again.

    Parameters
    ----------
    X : matrix, shape (n, n), symmetric
    log2_exponent : int
        How often to square; the bound becomes tighter with each time.

    Raises
    ------
    TypeError
        If `X` is no matrix, or `log2_exponent` no integer.
    ValueError
        If `log2_exponent` is not positive.
    """
    X = as_tensor_variable(X)
    if X.ndim != 2:
        raise TypeError("spectral_radius_bound requires a matrix argument", X)
    if not isinstance(log2_exponent, int):
        raise TypeError("spectral_radius_bound requires an integer exponent", log2_exponent)
    if log2_exponent <= 0:
        raise ValueError(
            "spectral_radius_bound requires a strictly positive exponent", log2_exponent
        )
    power = X
    for _ in range(log2_exponent):
        power = power @ power
    return trace(power) ** (2.0**-log2_exponent)
