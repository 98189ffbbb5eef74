"""Which term of a PyMC model's log-density, or of its gradient, is bad at a point, and why.

PyMC is an extra: ``pip install "theanoguard[pymc]"``.  Importing this module does not import it.
"""

import textwrap
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytensor
from pytensor.graph.basic import Constant
from pytensor.graph.traversal import graph_inputs, toposort
from pytensor.scalar.basic import LogicalComparison

from theanoguard._event import GuardEvent, Trip
from theanoguard._provenance import SourceLine, source_line, track_provenance
from theanoguard._provenance.places import printable, source_text
from theanoguard._pytensor import Mode, captured_inputs, config
from theanoguard.explain import Explanation, render_text
from theanoguard.explain import explain as explain_trip
from theanoguard.explain.naming import number_text
from theanoguard.guard import GuardMode
from theanoguard.guard.policy import arrays_in, make_policy
from theanoguard.testvalue import eval_intermediate_values

SUM = "the sum of all terms"


@dataclass(frozen=True)
class BadTerm:
    """A term of the log-density, or the gradient of one, that is not finite.

    Parameters
    ----------
    term : str
        Name of the random variable or potential whose term it is.
    by : str or None
        Of a gradient: name of the value variable, such as ``sigma_log__``.
    source : SourceLine or None
        The line of the model that made the variable.
    event : GuardEvent or None
        What is bad in it: which element, how many; None if computing it raised.
    explanation : Explanation or None
        Where in the term the bad value was made, from which operands, and what to do.
    error : str or None
        What computing the term raised.
    checks : tuple of str
        The conditions of the distribution on its parameters that do not hold, as ``sigma > 0``, and
        the value that fails; the log-density is -inf for that alone, and there is no explanation.
    data : str or None
        The observed value that lies outside of the distribution's support, and the support; or the
        initial value that is not finite.  There is no explanation then.

    Examples
    --------
    >>> import theanoguard
    >>> print(theanoguard.pymc.BadTerm("y", None, None, error="LinAlgError: Singular matrix"))
    y cannot be computed: LinAlgError: Singular matrix
    """

    term: str
    by: str | None
    source: SourceLine | None
    event: GuardEvent | None = None
    explanation: Explanation | None = None
    error: str | None = None
    checks: tuple[str, ...] = ()
    data: str | None = None

    @property
    def title(self):
        """What is bad, in a line."""
        name = self.term if self.by is None else f"the gradient of {self.term} by {self.by}"
        if self.event is None:
            return f"{name} cannot be computed: {self.error}"
        index = self.event.first_index
        at = f" at element {list(index)}" if index else ""
        return f"{name} is {number_text(self.event.first_value)}{at}"

    @property
    def heading(self):
        """The title, with the model's line and the conditions that do not hold."""
        lines = [self.title]
        if self.source is not None:
            lines.append(f"  {source_text(self.source)}")
        if self.checks:
            lines.append(f"  the parameters must satisfy: {'; '.join(self.checks)}")
        if self.data:
            lines += [f"  {line}" for line in self.data.splitlines()]
        return "\n".join(map(printable, lines))

    @property
    def report(self):
        """Where in the term the bad value was made; None where that is not explained."""
        return None if self.explanation is None else render_text(self.event, self.explanation)

    def __str__(self):
        report = self.report
        return "\n\n".join([self.heading, *([textwrap.indent(report, "    ")] if report else [])])


@dataclass(frozen=True)
class ModelExplanation:
    """The terms of a log-density at a point.

    Parameters
    ----------
    point : dict of str to ndarray
        By the names of the value variables.
    terms : dict of str to float
        The sum of each term, by the name of its variable; NaN where computing it raised.
    gradient : dict of str to ndarray
        Of the log-density, by the names of the continuous value variables; empty where a term
        could not be computed.
    bad : tuple of BadTerm
        Terms first, in the order of the model, then gradients.
    """

    point: dict[str, Any]
    terms: dict[str, float]
    gradient: dict[str, Any]
    bad: tuple[BadTerm, ...]

    @property
    def ok(self):
        """Whether every term and every gradient is finite."""
        return not self.bad

    def table(self):
        """Return the value of each term, and the largest magnitude in each gradient.

        Returns
        -------
        str
        """
        rows = [("term", "log-density")]
        rows += [(name, f"{value:.6g}") for name, value in self.terms.items()]
        rows += [("gradient by", "largest magnitude")]
        rows += [
            (name, f"{np.max(np.abs(value), initial=0):.6g}")
            for name, value in self.gradient.items()
        ]
        width = max(len(name) for name, _ in rows)
        return "\n".join(printable(f"{name:<{width}}  {value}") for name, value in rows)

    def __str__(self):
        if self.ok:
            total = number_text(sum(self.terms.values()))
            return f"The log-density is {total} here; it and its gradient are finite."
        head = f"{len(self.bad)} bad at this point: {', '.join(b.title for b in self.bad)}."
        head = "\n".join(textwrap.wrap(printable(head), 96))
        blocks, told = [head], set()
        for bad in self.bad:
            # Many gradients go bad by the same value: once is enough.
            first = (bad.report or "").partition("\n")[0]
            blocks.append(f"{bad.heading}\n  as above: {first}" if first in told else str(bad))
            told |= {first} if first else set()
        return "\n\n".join(blocks)


@dataclass(frozen=True)
class Support:
    """Where a distribution has a density.

    Parameters
    ----------
    text : str
    holds : callable
        ``holds(values, *parameters)`` returns which observed values lie inside; for a distribution
        of vectors, one truth value for each.
    """

    text: str
    holds: Callable


def _is_whole(values):
    return np.equal(values, np.floor(values))


_NUMBERS = Support("numbers, not NaN", lambda y, *_: ~np.isnan(y))
_POSITIVE = Support("positive numbers", lambda y, *_: y > 0)
_NONNEGATIVE = Support("numbers of at least 0", lambda y, *_: y >= 0)
_COUNTS = Support("whole numbers of at least 0", lambda y, *_: (y >= 0) & _is_whole(y))
_UP_TO_N = Support("whole numbers from 0 to n", lambda y, n, *_: (y >= 0) & (y <= n) & _is_whole(y))
_UNIT = Support("numbers between 0 and 1", lambda y, *_: (y > 0) & (y < 1))

# By the name of the random variable's operation.
SUPPORTS = {
    "bernoulli": Support("0 and 1", lambda y, *_: (y == 0) | (y == 1)),
    "beta": _UNIT,
    "beta_binomial": _UP_TO_N,
    "binomial": _UP_TO_N,
    "categorical": Support(
        "whole numbers from 0 to k - 1",
        lambda y, p: (y >= 0) & (y < np.shape(p)[-1]) & _is_whole(y),
    ),
    "dirichlet": Support(
        "vectors of positive numbers whose sum is 1",
        lambda y, a: np.all(y > 0, axis=-1) & np.isclose(np.sum(y, axis=-1), 1),
    ),
    "exponential": _NONNEGATIVE,
    "gamma": _POSITIVE,
    "geometric": Support("whole numbers of at least 1", lambda y, *_: (y >= 1) & _is_whole(y)),
    "halfcauchy": _NONNEGATIVE,
    "halfnormal": _NONNEGATIVE,
    "invgamma": _POSITIVE,
    "kumaraswamy": _UNIT,
    "lognormal": _POSITIVE,
    "multinomial": Support(
        "vectors of whole numbers of at least 0 whose sum is n",
        lambda y, n, p: np.all((y >= 0) & _is_whole(y), axis=-1) & (np.sum(y, axis=-1) == n),
    ),
    "nbinom": _COUNTS,
    "negative_binomial": _COUNTS,
    "poisson": _COUNTS,
    "uniform": Support("lower <= y <= upper", lambda y, low, high: (y >= low) & (y <= high)),
    "wald": _POSITIVE,
    "weibull": _NONNEGATIVE,
}


def _comparisons(condition):
    """Return the nodes of a condition on parameters that compare numbers."""
    return [
        node
        for node in toposort([condition])
        if isinstance(getattr(node.op, "scalar_op", None), LogicalComparison)
    ]


def _failing_text(comparisons, values):
    """Return the operands of the comparisons that fail, as ``" (it is -1.0 at element [3])"``."""
    shown = []
    for node in comparisons:
        left, right = (np.asarray(values[v]) for v in node.inputs)
        failing = ~np.asarray(node.op.scalar_op.impl(left, right)).astype(bool)
        if not failing.any():
            continue
        index = tuple(int(i) for i in np.argwhere(failing)[0])
        for variable in node.inputs:
            if not all(isinstance(v, Constant) for v in graph_inputs([variable])):
                value = number_text(np.broadcast_to(values[variable], failing.shape)[index])
                shown.append(f"{value} at element {list(index)}" if index else value)
    return f" (it is {' and '.join(shown)})" if shown else ""


@contextmanager
def model_lines():
    """Let the guard name the model's lines in functions that PyMC compiles inside.

    PyMC rebuilds a model's graph for its log-density; what it makes on the way is, without this,
    told as of no line, or as of the one that asked for the log-density.

    Examples
    --------
    .. code-block:: python

        with model, theanoguard.pymc.model_lines():
            pymc.sample(compile_kwargs={"mode": theanoguard.GuardMode()})
    """
    # No trace on what is made now, so that the traces of what it is made from are looked at.
    with track_provenance(), config.change_flags(traceback__limit=0):
        yield


def spoils_sampling(results: list[Any]) -> bool:
    """Return whether the results of a function that PyMC has compiled are an error.

    A log-density of -inf is none: the sampler rejects the point, whatever the gradient is there.

    Parameters
    ----------
    results : list
        Outputs of the function, such as the log-density and its gradient, and new values of its
        shared variables.

    Returns
    -------
    bool
        True if the first one is a number and NaN or +inf, or if it is finite and another one is
        not; where the first one is an array, as for draws, True if anything is NaN.

    Examples
    --------
    >>> import numpy as np
    >>> bad = np.array([np.nan, 1.0])
    >>> spoils_sampling([np.array(-np.inf), bad]), spoils_sampling([np.array(-3.2), bad])
    (False, True)
    """
    arrays = [a for result in results for a in arrays_in(result) if a.dtype.kind == "f"]
    if not arrays:
        return False
    first = arrays[0]
    if first.ndim:
        return any(np.isnan(array).any() for array in arrays)
    if np.isneginf(first):
        return False
    return not all(np.isfinite(array).all() for array in arrays)


def mode(**settings: Any) -> GuardMode:
    """Return the guard for PyMC: it raises only where sampling would go wrong.

    That is where a log-density is NaN or +inf, or finite while its gradient is not, and where a
    draw is NaN.  A NaN in a branch that a ``switch`` discards and a log-density of -inf are no
    errors.  The report names the first operation that made a bad value.

    Parameters
    ----------
    **settings
        Other arguments of :class:`~theanoguard.GuardMode`, such as ``backend="numba"``.

    Returns
    -------
    GuardMode

    Raises
    ------
    TypeError, ValueError
        As :class:`~theanoguard.GuardMode`.

    Examples
    --------
    >>> guard = mode()  # pm.sample(compile_kwargs={"mode": guard}, nuts_sampler="pymc")
    >>> guard.policy.by_result, guard.policy.big
    (True, False)
    """
    return GuardMode(**{"big_is_error": False, "judge": spoils_sampling, **settings})


def explain(model, point=None):
    """Find the terms of a model's log-density that are bad at a point, and those of its gradient.

    The graphs are those that PyMC samples with, rewrites included, in PyTensor's C backend.

    Parameters
    ----------
    model : pymc.Model
    point : mapping of str to array_like, or None
        By the names of the value variables (``a``, ``sigma_log__``).  What is left out is taken
        from the model's initial point.

    Returns
    -------
    ModelExplanation

    Raises
    ------
    ImportError
        If PyMC is not installed.
    TypeError, ValueError
        If `model` is no model, or `point` does not fit it.

    Examples
    --------
    See ``examples/pymc_explain.py``.
    """
    pymc = _pymc()
    if not isinstance(model, pymc.Model):
        raise TypeError(f"model is {model!r}.\nGive a pymc.Model.")
    return _Explaining(pymc, model, point).result()


def _pymc():
    try:
        import pymc
    except ImportError as error:
        raise ImportError(
            'theanoguard.pymc needs PyMC, which is not installed.\npip install "theanoguard[pymc]"'
        ) from error
    return pymc


def _point(model, point):
    """Return a whole point, checked."""
    point = {} if point is None else point
    if not isinstance(point, Mapping):
        raise TypeError(f"point is {point!r}.\nGive a mapping from names of value variables.")
    variables = {v.name: v for v in model.value_vars}
    unknown = [str(name) for name in point if name not in variables]
    if unknown:
        raise ValueError(
            f"no value variable of the model: {', '.join(unknown)}.\n"
            f"Its value variables are {', '.join(variables)}."
        )
    whole = {**model.initial_point(), **point}
    return {name: v.type.filter(np.asarray(whole[name], v.dtype)) for name, v in variables.items()}


class _Explaining:
    def __init__(self, pymc, model, point):
        self.pymc = pymc
        self.model = model
        self.point = _point(model, point)
        self.variables = [*model.basic_RVs, *model.potentials]
        self.names = [v.name for v in self.variables]
        self.policy = make_policy(True, True, False, big=1e10, integers=False, inputs=True,
                                  action="record", exempt=(), fate=False)  # fmt: skip
        with model_lines():
            terms = model.logp(vars=self.variables, sum=False)
        # The terms of a model with named dimensions are labelled arrays.
        self.terms = [getattr(term, "values", term) for term in terms]

    def result(self):
        """Return the :class:`ModelExplanation`."""
        try:
            values, bad = self._values(self.terms, [(name, None) for name in self.names])
        except Exception:  # of any term: which one?
            values, bad = self._one_by_one()
        sums = {n: float(np.sum(v)) for n, v in zip(self.names, values, strict=True)}
        gradient = {}
        if not any(term.error for term in bad):
            gradient, more = self._gradient()
            bad += more
        return ModelExplanation(self.point, sums, gradient, tuple(bad))

    def _values(self, outputs, keys):
        """Return the values of some outputs, and the bad ones among them, explained.

        `keys` are the term and the variable of each gradient.
        """
        inputs = list(self.model.value_vars)
        mode = Mode("cvm" if config.cxx else "vm", "fast_run")
        with model_lines(), self.model:
            fn = self.pymc.compile(inputs, outputs, mode=mode, on_unused_input="ignore")
        arguments = [self.point[v.name] for v in inputs]
        given = captured_inputs(fn, arguments, {})
        given = dict(zip(fn.maker.fgraph.inputs, given, strict=True))
        values = fn(*arguments)
        found = zip(keys, fn.maker.fgraph.outputs, values, strict=False)
        bad = [self._bad(fn, given, *one) for one in found if self.policy.is_bad(one[2])]
        return values, bad

    def _bad(self, fn, given, key, variable, value):
        counts = self.policy.count(value)
        node = variable.owner
        event = GuardEvent(
            kind=counts.kind,
            role="node",
            node=str(node),
            op=str(node.op) if node is not None else None,
            variable=variable.name,
            output=0 if node is None else variable.index,
            dtype=str(value.dtype),
            shape=value.shape,
            size=counts.size,
            n_nan=counts.n_nan,
            n_posinf=counts.n_posinf,
            n_neginf=counts.n_neginf,
            n_big=counts.n_big,
            first_index=counts.index,
            first_value=counts.value,
        )
        if data := self._start(variable):
            return self._term(*key, event=event, data=data)
        if key[1] is None and counts.kind == "inf" and (checks := self._failed(key[0])):
            return self._term(*key, event=event, checks=checks)
        if key[1] is None and (data := self._outside(key[0])):
            return self._term(*key, event=event, data=data)
        trip = Trip(event, fn.maker.fgraph, given, variable, value, self.policy.mask)
        return self._term(*key, event=event, explanation=explain_trip(trip))

    def _failed(self, name):
        """Return the conditions on the parameters of a distribution that do not hold here."""
        term = self.terms[self.names.index(name)]
        kind = self.pymc.logprob.utils.CheckParameterValue
        nodes = [node for node in toposort([term]) if isinstance(node.op, kind)]
        if not nodes:
            return ()
        conditions = [v for node in nodes for v in node.inputs[1:]]
        compared = {v: _comparisons(v) for v in conditions}
        operands = [v for found in compared.values() for node in found for v in node.inputs]
        values = eval_intermediate_values([*conditions, *operands], self._given())
        return tuple(
            node.op.msg + _failing_text(compared[v], values)
            for node in nodes
            for v in node.inputs[1:]
            if not np.all(values[v])
        )

    def _given(self):
        return {v: self.point[v.name] for v in self.model.value_vars}

    def _start(self, output):
        """Say which value of the point that an output depends on is not finite, if any is."""
        reached = {v.name for v in graph_inputs([output])}
        for variable in self.model.value_vars:
            value = self.point[variable.name]
            if variable.name not in reached or np.isfinite(value).all():
                continue
            index = [int(i) for i in np.argwhere(~np.isfinite(value))[0]]
            name = self.model.values_to_rvs[variable].name
            return (
                f"the point has {variable.name}{index or ''} = {value[tuple(index)]}.\n"
                f"Give {name} an initval inside of its domain, such as increasing numbers where it "
                "is ordered."
            )
        return None

    def _outside(self, name):
        """Say which observed values lie outside of the distribution's support, if any do."""
        variable = self.model[name]
        if variable not in self.model.observed_RVs or variable.owner is None:
            return None
        support = SUPPORTS.get(getattr(variable.owner.op, "name", None), _NUMBERS)
        if not hasattr(variable.owner.op, "dist_params"):
            return None
        parameters = variable.owner.op.dist_params(variable.owner)
        parameters = self.model.replace_rvs_by_values(parameters)
        observed = self.model.rvs_to_values[variable]
        values = eval_intermediate_values([observed, *parameters], self._given())
        data = np.asarray(values[observed])
        inside = support.holds(data, *(np.asarray(values[v]) for v in parameters))
        if np.all(inside):
            return None
        index = tuple(int(i) for i in np.argwhere(~inside)[0])
        place = f"{name}{list(index)}" if index else name
        shown = np.array2string(data[index], separator=", ", threshold=8)
        n_bad = int(np.size(inside) - np.sum(inside))
        return (
            f"observed {place} = {shown} lies outside of the support: {support.text}.\n"
            f"{n_bad} of {np.size(inside)} observed values {'does' if n_bad == 1 else 'do'}."
        )

    def _term(self, term, by=None, **more):
        source = source_line(self.model[term]) if term != SUM else None
        return BadTerm(term, by, source, **more)

    def _one_by_one(self):
        values, bad = [], []
        for name, term in zip(self.names, self.terms, strict=True):
            try:
                [value], more = self._values([term], [(name, None)])
            except Exception as error:  # whatever the model's operations raise
                first = (str(error).strip().splitlines() or [""])[0]
                value, more = np.nan, [self._term(name, error=f"{type(error).__name__}: {first}")]
            values.append(value)
            bad += more
        return values, bad

    def _gradient(self):
        """Return the gradient of the log-density, and the gradients of terms that are bad."""
        wrt = list(self.model.continuous_value_vars)
        if not wrt:
            return {}, []
        grads = self._grad(sum(term.sum() for term in self.terms), wrt)
        values, bad = self._values(grads, [(SUM, v.name) for v in wrt])
        gradient = dict(zip((v.name for v in wrt), values, strict=True))
        if bad:
            of_terms = self._gradients_of_terms(
                [v for v in wrt if self.policy.is_bad(gradient[v.name])]
            )
            explained = {term.by for term in of_terms}
            bad = [*of_terms, *(b for b in bad if b.by not in explained)]
        return gradient, bad

    def _gradients_of_terms(self, wrt):
        keys, grads = [], []
        for name, term in zip(self.names, self.terms, strict=True):
            reached = set(graph_inputs([term]))
            for v in wrt:
                if v in reached:
                    keys.append((name, v.name))
                    grads += self._grad(term.sum(), [v])
        return self._values(grads, keys)[1]

    def _grad(self, cost, wrt):
        with model_lines():
            cost = self.pymc.pytensorf.rewrite_pregrad(cost)
            return pytensor.grad(cost, wrt, disconnected_inputs="ignore")
