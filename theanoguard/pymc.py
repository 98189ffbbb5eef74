"""Which term of a PyMC model's log-density, or of its gradient, is bad at a point, and why.

PyMC is an extra: ``pip install "theanoguard[pymc]"``.  Importing this module does not import it.
"""

import textwrap
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytensor
from pytensor.graph.traversal import graph_inputs, toposort

from theanoguard._event import GuardEvent, Trip
from theanoguard._provenance import SourceLine, source_line, track_provenance
from theanoguard._pytensor import Mode, captured_inputs, config
from theanoguard.explain import Explanation, render_text
from theanoguard.explain import explain as explain_trip
from theanoguard.explain.naming import number_text
from theanoguard.explain.report import printable, source_text
from theanoguard.guard.policy import make_policy
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
        The conditions of the distribution on its parameters that do not hold, as ``sigma > 0``;
        the log-density is -inf for that alone, and there is no explanation.

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


@contextmanager
def model_lines():
    """Let the guard name the model's lines in functions that PyMC compiles inside.

    PyMC rebuilds a model's graph for its log-density; what it makes on the way is, without this,
    told as of no line, or as of the one that asked for the log-density.

    Examples
    --------
    ::

        with model, theanoguard.pymc.model_lines():
            pymc.sample(compile_kwargs={"mode": theanoguard.GuardMode()})
    """
    # No trace on what is made now, so that the traces of what it is made from are looked at.
    with track_provenance(), config.change_flags(traceback__limit=0):
        yield


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
            self.terms = model.logp(vars=self.variables, sum=False)

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
        if key[1] is None and counts.kind == "inf" and (checks := self._failed(key[0])):
            return self._term(*key, event=event, checks=checks)
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
        given = {v: self.point[v.name] for v in self.model.value_vars}
        values = eval_intermediate_values(conditions, given)
        return tuple(
            node.op.msg for node in nodes if not all(np.all(values[v]) for v in node.inputs[1:])
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
