"""Which term of a PyMC model's log-density, or of its gradient, is bad at a point, and why."""

from collections.abc import Mapping

import numpy as np
import pytensor
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant
from pytensor.graph.traversal import graph_inputs, toposort
from pytensor.scalar.basic import LogicalComparison
from pytensor.tensor.random.type import RandomType

from theanoguard._event import Trip
from theanoguard._provenance import source_line
from theanoguard._pytensor import Mode, captured_inputs, config
from theanoguard.explain import explain as explain_trip
from theanoguard.explain.naming import number_text
from theanoguard.guard.every_function import unguarded
from theanoguard.guard.policy import make_policy
from theanoguard.pymc.modes import model_lines
from theanoguard.pymc.records import BadTerm, ModelExplanation
from theanoguard.pymc.support import NUMBERS, SUPPORTS
from theanoguard.testvalue import eval_intermediate_values

SUM = "the sum of all terms"


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
        return ModelExplanation(self.point, sums, gradient, tuple(bad), self._flat(gradient))

    def _values(self, outputs, keys):
        """Return the values of some outputs, and the bad ones among them, explained.

        `keys` are the term and the variable of each gradient.
        """
        inputs = list(self.model.value_vars)
        mode = Mode("cvm" if config.cxx else "vm", "fast_run")
        with model_lines(), self.model, unguarded():
            fn = self.pymc.compile(inputs, outputs, mode=mode, on_unused_input="ignore")
        self.compiled = fn
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
        event = counts.event(
            role="node",
            node=str(node),
            op=str(node.op) if node is not None else None,
            variable=variable.name,
            output=0 if node is None else variable.index,
            dtype=str(value.dtype),
            shape=value.shape,
        )
        if data := self._start(variable):
            return self._term(*key, event=event, data=data)
        if key[1] is None and counts.kind == "inf" and (checks := self._failed(key[0])):
            return self._term(*key, event=event, checks=checks)
        if key[1] is None and (data := self._outside(key[0]) or self._missing(key[0])):
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
        support = SUPPORTS.get(getattr(variable.owner.op, "name", None), NUMBERS)
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

    def _missing(self, name):
        """Say which data of a random draw of rows hold NaN; a draw cannot be computed again."""
        term = self.terms[self.names.index(name)]
        if not any(isinstance(v.type, RandomType) for v in graph_inputs([term])):
            return None
        for variable in graph_inputs([term]):
            value = getattr(variable, "data", None)
            if isinstance(variable, SharedVariable):
                value = variable.get_value(borrow=True)
            if np.ndim(value) == 0 or np.asarray(value).dtype.kind != "f":
                continue
            rows = np.isnan(value).reshape(len(value), -1).any(axis=1)
            if rows.any():
                text = variable.name or f"data of shape {np.shape(value)}"
                return (
                    f"{text}: {int(rows.sum())} of {len(rows)} rows hold NaN, "
                    f"the first is row {int(np.argmax(rows))}.\nLeave these rows out."
                )
        return None

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
        self.wrt = [v.name for v in wrt]
        values, bad = self._values(grads, [(SUM, name) for name in self.wrt])
        self.gradient_of = self.compiled
        gradient = dict(zip((v.name for v in wrt), values, strict=True))
        if bad:
            of_terms = self._gradients_of_terms(
                [v for v in wrt if self.policy.is_bad(gradient[v.name])]
            )
            explained = {term.by for term in of_terms}
            bad = [*of_terms, *(b for b in bad if b.by not in explained)]
        return gradient, bad

    def _flat(self, gradient):
        """Return the elements by which the gradient is 0 here, and at a point nearby as well."""
        if not any(np.size(value) and np.any(value == 0) for value in gradient.values()):
            return ()
        rng = np.random.default_rng(0)
        near = [
            np.asarray(value + rng.uniform(0.1, 0.3, size=np.shape(value)), value.dtype)
            if name in gradient
            else value
            for name, value in self.point.items()
        ]
        flat = []
        for name, value in zip(self.wrt, self.gradient_of(*near), strict=True):
            both = np.argwhere((np.asarray(value) == 0) & (np.asarray(gradient[name]) == 0))
            if len(both):
                flat.append(f"{name}{[int(i) for i in both[0]] or ''}")
        return tuple(flat)

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
