"""Which term of a PyMC model's log-density, or of its gradient, is bad at a point, and why."""

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

import numpy as np
import pytensor
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors, graph_inputs, toposort, walk
from pytensor.scalar.basic import GE, GT, Abs, LogicalComparison, Sub, Switch
from pytensor.tensor.random.type import RandomType

from theanoguard._arguments import checked
from theanoguard._evaluate.replay import Implementation, is_wide
from theanoguard._event import GuardEvent, Trip
from theanoguard._graph import scalar_class, viewed
from theanoguard._naming import name_of
from theanoguard._provenance import source_line
from theanoguard._provenance.places import source_text
from theanoguard._pytensor import Mode, captured_inputs
from theanoguard._steps import ForeignError, attempt, failures, first_line, foreign
from theanoguard._text import number_text
from theanoguard.explain import Explanation, explanation_of
from theanoguard.guard.pausing import unguarded
from theanoguard.guard.policy import make_policy
from theanoguard.pymc.broadcasts import crossed, written
from theanoguard.pymc.library import inside_library
from theanoguard.pymc.links import Fault, beyond_support, fault_of, scaling, without_clamp
from theanoguard.pymc.modes import model_lines
from theanoguard.pymc.parameters import distribution_of, given_parameters, misfits
from theanoguard.pymc.points import (
    Point,
    compiled,
    is_finite,
    prior_points,
    pymc_of,
    with_own_generators,
)
from theanoguard.pymc.records import BadTerm, ModelExplanation, array_text
from theanoguard.pymc.support import aligned, support_of

Index = tuple[int, ...]
Values = dict[Any, Any]  # by variable
Key = tuple[str, str | None]  # a term, and the variable of a gradient
Told = dict[str, Any]  # arguments of a BadTerm

SUM = "the sum of all terms"

MOST_BY_NUMPY = 20_000
"""With more numbers in the data, C is faster: NumPy calls Python for each in a fused operation."""


def _comparisons(condition: Any) -> list[Any]:
    """Return the nodes of a condition on parameters that compare numbers.

    What is compared may have been computed with comparisons of its own, which are no conditions.
    """

    def is_comparison(variable: Any) -> bool:
        op = getattr(variable.owner, "op", None)
        return isinstance(getattr(op, "scalar_op", None), LogicalComparison)

    def inside(variable: Any) -> list[Any]:
        made = () if variable.owner is None or is_comparison(variable) else variable.owner.inputs
        return [v for v in made if getattr(v.type, "dtype", None) == "bool"]

    return [v.owner for v in walk([condition], inside, bfs=True) if is_comparison(v)]


def _is_constant(variable: Any) -> bool:
    return all(isinstance(v, Constant) for v in graph_inputs([variable]))


def _operands(comparison: Any) -> Sequence[Any]:
    """Return the numbers that a node compares; for ``isclose``, not their difference."""
    size = comparison.inputs[0].owner
    if size is not None and isinstance(getattr(size.op, "scalar_op", None), Abs):
        difference = size.inputs[0].owner
        if isinstance(getattr(getattr(difference, "op", None), "scalar_op", None), Sub):
            return difference.inputs
    return comparison.inputs


def _failing(comparisons: list[Any], values: Values) -> Iterator[tuple[Any, Index, Any, int, int]]:
    """Yield the operands of the comparisons that fail, where, and the number there.

    Without NaN, which an operation before the comparison has made.
    """
    for node in comparisons:
        left, right = (np.asarray(values[v]) for v in node.inputs)
        failing = ~np.asarray(node.op.scalar_op.impl(left, right)).astype(bool)
        if not failing.any():
            continue
        index = tuple(int(i) for i in np.argwhere(failing)[0])
        operands = _operands(node)
        computed = [v for v in operands if not _is_constant(v)]
        # (PyMC writes the bound, as the 0 in ``sigma > 0``, on the right.)
        for variable in computed or operands[:1]:
            number = np.broadcast_to(values[variable], failing.shape)[index]
            if not np.isnan(number):
                yield variable, index, number, int(failing.sum()), failing.size


def _failing_text(failing: list[tuple[Any, Index, Any, int, int]]) -> str:
    """Return what :func:`_failing` has found, as ``" (it is -1.0 at element [3])"``."""
    shown = []
    for _, index, number, n_bad, n in failing:
        element = f" at element {list(index)}, {n_bad} of {n} fail" if n > 1 else ""
        shown.append(f"{number_text(number)}{element}")
    return f" (it is {' and '.join(shown)})" if shown else ""


def _is_minus_inf(variable: Any) -> bool:
    made = written(variable)
    return isinstance(made, Constant) and bool(np.isneginf(made.data).all())


def _compared(comparisons: list[Any], values: Values, holding: bool) -> str:
    """Return the numbers of the first comparison with this result, as ``" (0.0 > 2.0)"``."""
    for node in comparisons:
        left, right = np.broadcast_arrays(*(np.asarray(values[v]) for v in node.inputs))
        hits = np.argwhere(np.asarray(node.op.scalar_op.impl(left, right)).astype(bool) == holding)
        if len(hits):
            at = tuple(hits[0])
            return f" ({number_text(left[at])} against {number_text(right[at])})"
    return ""


def _made_before(parameter: Any, line: Any, free: Set[Any]) -> Any:
    """Return the line, other than `line`, that computes a parameter, or None.

    The priors of `free` variables, from which a parameter is computed, do not compute it.
    """

    def before(variable: Any) -> list[Any]:
        made = () if variable.owner is None else variable.owner.inputs
        return [v for v in made if v not in free]

    for ancestor in walk([written(parameter)], before, bfs=True):
        found = source_line(ancestor)
        if found is not None and found != line:
            return found
    return None


@checked
def explain(
    model: Any, point: Mapping[str, Any] | None = None, *, prior_draws: int = 0
) -> ModelExplanation:
    """Find the terms of a model's log-density, and of its gradient, that are bad at a point.

    The function runs the graphs that PyMC samples with, rewrites included.  NumPy computes them,
    because compiling them for C takes longer than one call.  If a distribution of PyMC is bad with
    NumPy alone, C computes them, and a note says so.

    Parameters
    ----------
    model : pymc.Model
    point : mapping of str to array_like, or None
        By the names of the value variables (``a``, ``sigma_log__``).  The model's initial point
        gives the missing values.
    prior_draws : int
        If nothing is bad at the point, the number of draws from the prior that are also checked.
        They find, for example, a scale that its prior allows to be negative.

    Returns
    -------
    ModelExplanation
        At the first bad point, else at `point`.

    Raises
    ------
    ImportError
        If PyMC is not installed.
    TypeError, ValueError
        If `model` is not a model, or `point` does not fit it.

    Examples
    --------
    See ``examples/pymc_explain.py``.
    """
    pymc = pymc_of("explain", model)
    explaining = Explaining(pymc, model, point)
    found = explaining.result()
    alone = [bad.data for bad in found.bad if bad.numpy_alone]
    if alone:
        found = explain_on_c(model, explaining.point)
        note = f"{alone[0]}\nPyTensor's C code computes it, and all values here are of C."
        found = replace(found, notes=(*found.notes, note))
    if not found.ok or not prior_draws:
        return found
    for draw, drawn in enumerate(prior_points(pymc, model, prior_draws)):
        if explaining.is_bad_at(drawn):
            return replace(Explaining(pymc, model, drawn).result(), prior_draw=draw)
    return found


def explain_on_c(model: Any, point: Mapping[str, Any]) -> ModelExplanation:
    """Explain a point as :func:`explain`, where PyTensor's C code computes it."""
    return Explaining(pymc_of("explain", model), model, point, on_c=True).result()


def of_distributions(model: Any, point: Mapping[str, Any], mode: str) -> str:
    """Say which of PyMC's distributions makes a bad value on a backend of sound parameters.

    `mode` is PyTensor's name of a mode.  "" if none does.
    """
    explaining = Explaining(pymc_of("of_distributions", model), model, point)
    faults = (
        inside_library(model, variable, explaining._evaluate, mode) for variable in model.basic_RVs
    )
    return next((fault["data"] for fault in faults if fault), "")


def of_prior(model: Any, n: int = 20) -> str:
    """Say at how many of `n` draws from the prior a term is bad; "" if the prior has no draws.

    A prior such as pm.Flat has none.
    """
    with failures():
        n_bad = attempt("the draws from the prior", None, n_bad_of_prior, model, n)
    if n_bad is None:
        return ""
    told = f"{n_bad} of {n} draws from the prior are bad"
    if not n_bad:
        return f"{told}: the model is sound elsewhere, an initval moves the start."
    return f"{told} as well: an initval alone does not mend the model."


def n_bad_of_prior(model: Any, n: int) -> int:
    """Return at how many of `n` draws from the prior a term is bad."""
    pymc = pymc_of("explain", model)
    explaining = Explaining(pymc, model, None)
    return sum(map(explaining.is_bad_at, prior_points(pymc, model, n)))


def _point(model: Any, point: Mapping[str, Any] | None) -> Point:
    """Return a whole point, checked."""
    point = {} if point is None else point
    variables = {v.name: v for v in model.value_vars}
    unknown = [str(name) for name in point if name not in variables]
    if unknown:
        raise ValueError(
            f"no value variable of the model: {', '.join(unknown)}.\n"
            f"Its value variables are {', '.join(variables)}."
        )
    # (To compute the initial point PyMC compiles a function.)
    whole = point if variables.keys() <= point.keys() else {**model.initial_point(), **point}
    return {name: v.type.filter(np.asarray(whole[name], v.dtype)) for name, v in variables.items()}


def _explained_by(text: str) -> Told:
    """Return the arguments of a bad term that a text explains; none if there is no text."""
    return {"data": text} if text else {}


_HURDLE = (
    "If a 0 is a true value, use a likelihood that allows zeros: {}.  If it is a rounded number, "
    "give it half of the resolution."
)
_INSIDE = (
    "If the 0 and the 1 are rounded numbers, move all values inside: (y * (n - 1) + 0.5) / n of n "
    "values.  If they are true values, model them apart, with pm.Bernoulli."
)
_ROUNDED = "If a 0 is a rounded number, give it half of the resolution, or use pm.Censored."

AT_EDGES = {
    "Gamma": ((0,), _HURDLE.format("pm.HurdleGamma")),
    "LogNormal": ((0,), _HURDLE.format("pm.HurdleLogNormal")),
    **dict.fromkeys(("InverseGamma", "Wald", "ChiSquared"), ((0,), _ROUNDED)),
    **dict.fromkeys(("Beta", "Kumaraswamy"), ((0, 1), _INSIDE)),
}
"""By the name of a distribution, the edges of its support, and what to do with data there."""


Coding = tuple[str, Callable[[Any], Any]]


def _wrapped(angle: Any) -> Any:
    return (angle + np.pi) % (2 * np.pi) - np.pi


_FROM_1: Coding = ("{} - 1", lambda y: y - 1)
_PERCENT: Coding = ("{} / 100", lambda y: y / 100)
_DEGREES: Coding = (
    "(np.deg2rad({}) + np.pi) % (2 * np.pi) - np.pi",
    lambda y: _wrapped(np.deg2rad(y)),
)
_TURNS: Coding = ("({} + np.pi) % (2 * np.pi) - np.pi", _wrapped)

CODINGS: dict[str, tuple[Coding, ...]] = {
    **dict.fromkeys(("Categorical", "OrderedLogistic", "OrderedProbit"), (_FROM_1,)),
    **dict.fromkeys(("Beta", "Kumaraswamy", "LogitNormal"), (_PERCENT,)),
    "Bernoulli": (_FROM_1, ("({} + 1) / 2", lambda y: (y + 1) / 2)),
    "Geometric": (("{} + 1", lambda y: y + 1),),
    "VonMises": (_TURNS, _DEGREES),
}
"""By the name of a distribution, how data are often coded otherwise, and the code that it takes."""


def _of_data(name: str, variable: Any, data: Any, inside: Any, holds: Callable[[Any], Any]) -> str:
    """Return what to do if the data are coded otherwise, or lie at the edges of a support."""
    kind = distribution_of(variable)
    edges, advice = AT_EDGES.get(kind, ((), ""))
    if edges and np.isin(data[~inside], edges).all():
        return f"\n{advice}"
    in_turn = np.all(np.abs(data) <= 2 * np.pi)  # (else angles in degrees)
    codings = (one for one in CODINGS.get(kind, ()) if one is not _TURNS or in_turn)
    told = (text.format(name) for text, code in codings if np.all(holds(code(data))))
    return next((f"\nGive {text} as data: all of these values lie inside." for text in told), "")


class Explaining:
    def __init__(
        self, pymc: Any, model: Any, point: Mapping[str, Any] | None, on_c: bool = False
    ) -> None:
        self.pymc = pymc
        self.on_c = on_c
        self.impl: Implementation | None = None if on_c else "py"
        self.model = model
        self.point = _point(model, point)
        self.variables = [*model.basic_RVs, *model.potentials]
        self.of_terms: Any = None
        self.gradient_of: Any = None
        self.policy = make_policy(
            True,
            True,
            False,
            big_threshold=1e10,
            check_integers=False,
            check_indices=False,
            check_inputs=True,
            action="record",
            exempt=(),
        )
        self.no_gradient = ""
        self.unbuilt: list[BadTerm] = []
        try:
            with model_lines():
                terms = model.logp(vars=self.variables, sum=False)
        except Exception:  # (whatever the model's own densities raise)
            self.unbuilt = self._unbuilt()
            if not self.unbuilt:
                raise
            self.variables, terms = [], []
        self.names = [v.name for v in self.variables]
        # The terms of a model with named dimensions are labelled arrays.
        self.terms = [getattr(term, "values", term) for term in terms]
        for name, term in zip(self.names, self.terms, strict=True):
            if term.owner is not None:  # (a report names it)
                term.name = f"the log-density of {name}"

    def _unbuilt(self) -> list[BadTerm]:
        """Return the terms that cannot be built by themselves."""
        texts, found, model = misfits(self.model), [], self.model
        for rv in model.basic_RVs:
            # (a transformed value may have another shape: of a simplex, an element less)
            value = rv.type() if model.rvs_to_transforms[rv] else model.rvs_to_values[rv]
            try:
                self.pymc.logp(rv, value, warn_rvs=False)
            except Exception as error:
                found.append(self._term(rv.name, error=first_line(error), data=texts.get(rv)))
        return found

    def result(self) -> ModelExplanation:
        """Return the :class:`ModelExplanation`."""
        with failures() as failed:
            found = self._result()
        return replace(found, failed=tuple(failed))

    def _result(self) -> ModelExplanation:
        if self.unbuilt:
            return ModelExplanation(self.point, {}, {}, tuple(self.unbuilt))
        try:
            values, bad = self._values(self.terms, [(name, None) for name in self.names])
        except Exception:  # of any term: which one?
            values, bad = self._one_by_one()
        sums = {n: float(np.sum(v)) for n, v in zip(self.names, values, strict=True)}
        gradient: dict[str, Any] = {}
        if not any(term.error for term in bad):
            # Data outside of the support make the gradient bad as well: that is told once.
            told = {t.term for t in bad if t.checks or not t.explanation}
            nothing: tuple[dict[str, Any], list[BadTerm]] = ({}, [])
            gradient, more = attempt("the gradient", nothing, self._gradient, told)
            bad += more
        none: tuple[str, ...] = ()
        flat = attempt("flat directions", none, self._flat, gradient)
        notes = attempt("the broadcasts", none, self._crossed)
        if self.no_gradient:
            notes += (f"The log-density has no gradient, which NUTS needs: {self.no_gradient}.",)
        return ModelExplanation(self.point, sums, gradient, tuple(bad), flat, notes=notes)

    def _crossed(self) -> tuple[str, ...]:
        """Describe the terms that have more log-densities than there are data, by a broadcast."""
        notes = []
        for name, variable in zip(self.names, self.variables, strict=True):
            notes += crossed(self.model, name, variable)
        return tuple(notes)

    def is_bad_at(self, point: Point) -> bool:
        """Return whether a term is bad at a whole point that lies in the domains of its values."""
        return bool(self.bad_terms_at(point))

    def bad_terms_at(self, point: Point) -> list[str]:
        """Return the names of the terms that are bad at a whole point, as :meth:`is_bad_at`."""
        if not is_finite(point):
            return []  # (of a draw, the values of an ordered variable may be NaN)
        values = self.functions(slopes=False)[0](point)
        named = zip(self.names, values, strict=True)
        return [name for name, value in named if self.policy.is_bad(value)]

    def functions(self, slopes: bool = True) -> tuple[Callable, Any]:
        """Return functions from a whole point to the terms, and to the gradient of their sum."""
        if self.of_terms is None:
            self._run(self.terms)
            self.of_terms = self.compiled
        if slopes and self.gradient_of is None:
            self._gradient(set())

        def at(function: Any) -> Callable:
            def compute(point: Point) -> Any:
                whole = _point(self.model, point)
                return function(*(whole[v.name] for v in self.model.value_vars))

            return compute

        return at(self.of_terms), at(self.gradient_of) if slopes else None

    def _values(self, outputs: list[Any], keys: list[Key]) -> tuple[list[Any], list[BadTerm]]:
        """Return the values of some outputs, and the bad ones among them, explained.

        `keys` are the term and the variable of each gradient.
        """
        values, given = self._run(outputs)
        found = zip(keys, self.compiled.maker.fgraph.outputs, values, strict=False)
        bad = [self._bad(self.compiled, given, *one) for one in found if self.policy.is_bad(one[2])]
        return values, bad

    def _run(self, outputs: list[Any]) -> tuple[list[Any], Values]:
        """Return the values of some outputs, and those of the inputs of the compiled graph."""
        inputs = list(self.model.value_vars)
        with model_lines():
            fn = self._compiled(inputs, outputs)
        self.compiled = fn
        arguments = [self.point[v.name] for v in inputs]
        given = captured_inputs(fn, arguments, {})
        return fn(*arguments), dict(zip(fn.maker.fgraph.inputs, given, strict=True))

    def _compiled(self, inputs: list[Any], outputs: list[Any]) -> Any:
        """Return a function of NumPy, or of C where NumPy is slow or cannot run an operation."""
        inputs_of = list(graph_inputs(outputs))
        sizes = [np.size(v.data) for v in inputs_of if isinstance(v, Constant)]
        shared = [v for v in inputs_of if isinstance(v, SharedVariable)]
        sizes += [np.size(v.get_value(borrow=True)) for v in shared]
        if not self.on_c and max(sizes, default=0) <= MOST_BY_NUMPY:
            fn = compiled(self.model, inputs, outputs, on_c=False)
            if not any(map(is_wide, fn.maker.fgraph.apply_nodes)):
                return fn
        return compiled(self.model, inputs, outputs)

    def _bad(self, fn: Any, given: Values, key: Key, variable: Any, value: Any) -> BadTerm:
        name, by = key
        event = self._event(variable, value)
        of_inf, of_nan = event.kind == "inf", event.kind == "nan"
        of_term = by is None
        looks: tuple[tuple[str, bool, Callable[..., Told], tuple[Any, ...]], ...] = (
            ("the start", True, self._start, (variable,)),
            ("the conditions on the parameters", of_term and of_inf, self._failed, (name, value)),
            ("the condition of a density", of_term and of_inf, self._chosen, (name,)),
            ("the support", of_term, self._outside, (name,)),
            ("the missing data", of_term, self._missing, (name,)),
            ("the distribution", of_nan or not of_term, self._inside, (name,)),
            ("the operation", True, self._replayed, (fn, given, key, event, variable, value)),
        )
        for what, applies, look, of in looks:
            none: Told = {}
            if applies and (found := attempt(what, none, look, *of)):
                return self._term(name, by, event=event, **found)
        return self._term(name, by, event=event)

    def _replayed(
        self, fn: Any, given: Values, key: Key, event: GuardEvent, variable: Any, value: Any
    ) -> Told:
        """Return the explanation of the operation that has made a value, and what belongs to it."""
        name, by = key
        trip = Trip(event, fn.maker.fgraph, given, variable, value, self.policy.mask)
        explanation = without_clamp(explanation_of(trip, impl=self.impl), self.model)
        if by is not None:
            return {"explanation": explanation}
        data = attempt("the observed value", None, self._observed, name, value, event.first_index)
        outside = attempt("the support of a density", False, self._is_beyond, name, value)
        if outside and (beyond := beyond_support(explanation, f"{name}{list(event.first_index)}")):
            return {"explanation": beyond, "data": data}
        overflowed = explanation.cause.kind == "inf"
        advice = attempt("the predictors", "", self._scaling, name) if overflowed else ""
        return {"explanation": explanation, "data": data, "advice": advice}

    def _is_beyond(self, name: str, value: Any) -> bool:
        """Return whether a user's density is bad for some observed values alone.

        It is if the density is finite with other observed values in place of these.
        """
        variable = self.model[name]
        if "CustomDist" not in distribution_of(variable) or variable not in self.model.observed_RVs:
            return False
        observed = self.model.rvs_to_values[variable]
        data = self._evaluate([observed])[observed]
        bad = ~np.isfinite(value)
        if data.shape != value.shape or bad.all():
            return False
        other = np.where(bad, data[~bad][0], data)
        with model_lines():
            term = self.pymc.logp(variable, other)
        [replaced] = self.model.replace_rvs_by_values([term])
        return bool(np.isfinite(self._evaluate([replaced])[replaced]).all())

    def _scaling(self, name: str) -> str:
        """Return which data to centre or to scale, if a term has overflowed for their size."""
        variable, free = self.model[name], set(self.model.free_RVs)
        made = [v for v in given_parameters(variable).values() if v is not None] or [variable]
        told = (scaling(v, free) for v in made if not isinstance(v, Constant))
        return next((text for text in told if text), "")

    def _inside(self, name: str) -> Told:
        """Say that a distribution of PyMC has made a bad value of sound parameters, if so."""
        if name == SUM:
            return {}
        return inside_library(self.model, self.model[name], self._evaluate)

    def _chosen(self, name: str) -> Told:
        """Say which condition has chosen the -inf of a density that the user wrote, if one has."""
        is_potential = name in {v.name for v in self.model.potentials}
        if not is_potential and (
            name not in self.model.named_vars
            or "CustomDist" not in distribution_of(self.model[name])
        ):
            return {}
        term = self.terms[self.names.index(name)]
        choices = [
            (node, is_infinite.index(True))
            for node in toposort([term])
            if isinstance(getattr(node.op, "scalar_op", None), Switch)
            and any(is_infinite := [_is_minus_inf(v) for v in node.inputs[1:]])
        ]
        compared = {node: _comparisons(node.inputs[0]) for node, _ in choices}
        operands = [v for nodes in compared.values() for node in nodes for v in node.inputs]
        values = self._evaluate([*(node.inputs[0] for node, _ in choices), *operands])
        for node, which in choices:
            condition = node.inputs[0]
            at_fault = values[condition].astype(bool) == (which == 0)
            if not at_fault.any():
                continue
            holds = "holds" if which == 0 else "does not hold"
            index = tuple(int(i) for i in np.argwhere(at_fault)[0])
            place = f" at element {list(index)}" if index else ""
            shown = _compared(compared[node], values, which == 0)
            line = source_line(condition)
            where = "" if line is None else f"\n  {source_text(line)}"
            ends = "variables priors that end"
            if bound := self._bound(compared[node], values):
                ends, bound = "variable a prior that ends", f" It asks for {bound}."
            return _explained_by(
                f"the condition {self._text(condition)} {holds}{place}{shown}: this gives "
                f"-inf.{bound}{where}\nStart where the density is finite, with an initval, or give "
                f"the {ends} there.\nNUTS rejects each step across such a wall; a transform such "
                "as ordered has none."
            )
        return {}

    def _bound(self, comparisons: list[Any], values: Values) -> str:
        """Return the bound that data set to a number, as in ``data - number > 0``; "" if none."""
        for node in comparisons:
            is_above = isinstance(node.op.scalar_op, GT | GE)
            difference, other = node.inputs
            if not is_above or scalar_class(difference) is not Sub or np.any(values[other]):
                continue
            data, number = difference.owner.inputs
            if viewed(number).type.ndim == 0 and not isinstance(number, Constant):
                least = number_text(np.min(self._evaluate([data])[data]))
                return f"{self._text(viewed(number))} below {least}, the least of the data"
        return ""

    def _text(self, variable: Any) -> str:
        known = {value: rv.name for rv, value in self.model.rvs_to_values.items()}
        return name_of(variable, own=known.get)

    def _event(self, variable: Any, value: Any) -> GuardEvent:
        node = variable.owner
        return self.policy.count(value).event(
            role="node",
            node=str(node),
            op=str(node.op) if node is not None else None,
            variable=variable.name,
            output=0 if node is None else variable.index,
            dtype=str(value.dtype),
            shape=value.shape,
        )

    def _explained(self, variable: Any) -> Explanation | None:
        """Return the explanation of the NaN in a variable of a term; None of no variable."""
        if variable is None:
            return None
        [value], given = self._run([variable])
        fgraph = self.compiled.maker.fgraph
        [compiled] = fgraph.outputs[:1]
        event = self._event(compiled, value)
        trip = Trip(event, fgraph, given, compiled, value, self.policy.mask)
        return without_clamp(explanation_of(trip, impl=self.impl), self.model)

    def _evaluate(self, variables: list[Any]) -> Values:
        """Return the values of variables at the point, by variable; nothing is compiled to C."""
        inputs = list(self.model.value_vars)
        with self.model, unguarded():
            mode, outputs = Mode("py", "fast_compile"), with_own_generators(variables)
            fn = self.pymc.compile(inputs, outputs, mode=mode, on_unused_input="ignore")
        values = fn(*(self.point[v.name] for v in inputs))
        return dict(zip(variables, map(np.asarray, values), strict=True))

    def _failed(self, name: str, value: Any) -> Told:
        """Return the conditions on the parameters of a distribution that do not hold here.

        If all hold, the parameter at a bound where the term has this value, if there is one.
        """
        term = self.terms[self.names.index(name)]
        kind = self.pymc.logprob.utils.CheckParameterValue
        nodes = [node for node in toposort([term]) if isinstance(node.op, kind)]
        if not nodes:
            return {}
        conditions = [v for node in nodes for v in node.inputs[1:]]
        compared = {v: _comparisons(v) for v in conditions}
        comparisons = [node for found in compared.values() for node in found]
        operands = [v for node in comparisons for v in (*node.inputs, *_operands(node))]
        values = self._evaluate([*conditions, *operands])
        checks: list[str] = []
        unknown = None
        told = (", ".join(node.op.msg for node in nodes), "")
        for node in nodes:
            for condition in node.inputs[1:]:
                if np.all(values[condition]):
                    continue
                failing = list(_failing(compared[condition], values))
                made = self._line_of_number(name, [values[variable] for variable, *_ in failing])
                text = _failing_text(failing) or self._nan_text(name)
                told = told if checks else (node.op.msg, text)
                checks.append(node.op.msg + text + made)
                for comparison in compared[condition]:
                    for v in comparison.inputs:
                        unknown = v if unknown is None and np.isnan(values[v]).any() else unknown
        at = None if checks else np.isneginf(value)
        fault = attempt("the parameter", None, self._fault, name, *told, at)
        of_fault: Told = {} if fault is None else {"advice": fault.advice, "remedy": fault.remedy}
        if fault is not None and fault.check:
            return {"checks": (fault.check + self._line_of(name, fault.parameter),), **of_fault}
        if not checks:
            return {}
        nan = attempt("the NaN of a parameter", None, self._explained, unknown)
        return {"checks": tuple(dict.fromkeys(checks)), "explanation": nan, **of_fault}

    def _fault(self, name: str, condition: str, number: str, at: Any) -> Fault | None:
        variable = self.model[name]
        if variable.owner is None:
            return None
        return fault_of(self.model, variable, condition, self._evaluate, number, at)

    def _line_of(self, name: str, parameter: Any) -> str:
        """Return the line that computes a parameter, if the distribution's line does not."""
        made = _made_before(parameter, source_line(self.model[name]), set(self.model.free_RVs))
        return "" if made is None else f"\n  {source_text(made)}"

    def _line_of_number(self, name: str, failing: list[Any]) -> str:
        """Return the line of the model that has computed a parameter with one of these values."""
        variable = self.model[name]
        _, parameters = support_of(variable)
        free = set(self.model.free_RVs)
        computed = [v for v in parameters if free & set(ancestors([v]))]
        values = self._evaluate(self.model.replace_rvs_by_values(computed)).values()
        same = [
            parameter
            for parameter, value in zip(computed, values, strict=True)
            if any(np.array_equal(np.squeeze(value), np.squeeze(other)) for other in failing)
        ]
        if not same and len(computed) == 1 and failing:
            same = computed  # (PyMC computes with another parametrization)
        line = source_line(variable)
        places = [_made_before(parameter, line, free) for parameter in same]
        return "".join(f"\n  {source_text(p)}" for p in dict.fromkeys(places) if p is not None)

    def _start(self, output: Any) -> Told:
        """Say which value of the point that an output depends on is not finite, if any is."""
        reached = {v.name for v in graph_inputs([output])}
        for variable in self.model.value_vars:
            value = self.point[variable.name]
            if variable.name not in reached or np.isfinite(value).all():
                continue
            index = [int(i) for i in np.argwhere(~np.isfinite(value))[0]]
            rv = self.model.values_to_rvs[variable]
            transform = self.model.rvs_to_transforms.get(rv)
            if empty := self._empty(rv, transform):
                return _explained_by(empty)
            is_ordered = isinstance(transform, self.pymc.distributions.transforms.Ordered)
            domain = "of increasing numbers" if is_ordered else "inside of its domain"
            return _explained_by(
                f"the point has {variable.name}{index or ''} = {value[tuple(index)]}"
                f"{self._initval(variable)}.\nGive {rv.name} an initval {domain}."
            )
        return {}

    def _empty(self, rv: Any, transform: Any) -> str:
        """Say that the domain of a variable between two bounds is empty, if it is."""
        if not isinstance(transform, self.pymc.distributions.transforms.Interval):
            return ""
        bounds = transform.args_fn(*rv.owner.inputs)
        if any(bound is None for bound in bounds):
            return ""
        values = self._evaluate(self.model.replace_rvs_by_values(list(bounds)))
        lower, upper = np.broadcast_arrays(*(values[v] for v in values))
        if np.all(lower < upper):
            return ""
        at = tuple(np.argwhere(~(lower < upper))[0])
        shown = f"lower = {number_text(lower[at])}, upper = {number_text(upper[at])}"
        return (
            f"the domain of {rv.name} is empty: {shown}.\n"
            f"Give {rv.name} an upper bound above its lower bound."
        )

    def _initval(self, variable: Any) -> str:
        """Say which number of the model's a bad value of the point comes from, if one does."""
        rv = self.model.values_to_rvs[variable]
        initval = self.model.rvs_to_initial_values.get(rv)
        given = self.model.initial_point()[variable.name]
        same = np.array_equal(np.isfinite(given), np.isfinite(self.point[variable.name]))
        if not same or isinstance(initval, str | Variable | None):
            return ""
        return f", because the initval of {rv.name} is {array_text(initval)}"

    def _nan_text(self, name: str) -> str:
        """Return which element of a parameter is NaN, as ``" (a parameter is NaN ...)"``."""
        variable = self.model[name]
        if variable.owner is None:
            return ""
        parameters = self.model.replace_rvs_by_values(support_of(variable)[1])
        values = self._evaluate(parameters)
        for where in (np.argwhere(np.isnan(values[v])) for v in parameters):
            if len(where):
                element = f" at element {where[0].tolist()}" if where.shape[1] else ""
                return f" (a parameter is NaN{element}, as explained below)"
        return ""

    def _outside(self, name: str) -> Told:
        """Say which values lie outside of the distribution's support, if any do."""
        variable = self.model.named_vars.get(name)
        is_observed = variable in self.model.observed_RVs
        is_free = variable in self.model.free_RVs and not self.model.rvs_to_transforms[variable]
        if not (is_observed or is_free) or variable.owner is None:
            return {}
        support, parameters = support_of(variable)
        parameters = self.model.replace_rvs_by_values(parameters)
        observed = self.model.rvs_to_values[variable]
        values = self._evaluate([observed, *parameters])
        data = values[observed]
        given = [aligned(values[v], v.type, observed.type) for v in parameters]
        inside = support.holds(data, *given)
        if np.all(inside):
            return {}
        index = tuple(int(i) for i in np.argwhere(~inside)[0])
        bounds = [
            f"{bound} = {number_text(np.broadcast_to(value, np.shape(inside))[index])}"
            for bound, value in zip(support.names, given, strict=False)
            if bound and np.ndim(value) <= np.ndim(inside)
        ]
        lengths = zip(support.sizes, (np.shape(value)[-1] for value in given), strict=False)
        bounds += [f"{size} = {length}" for size, length in lengths]
        n_bad = int(np.size(inside) - np.sum(inside))
        shown = f" ({', '.join(bounds)})" if bounds else ""
        outside = (
            f"{self._shown(name, data, index)} lies outside of the support: "
            f"{support.text.format(y=name)}{shown}."
        )
        if is_free:
            kept = "\nThe default transform of its prior keeps it inside."
            return _explained_by(outside + (kept if data.dtype.kind == "f" else ""))
        return _explained_by(
            f"observed {outside}\n"
            f"{n_bad} of {np.size(inside)} observed values {'does' if n_bad == 1 else 'do'}."
            + _of_data(name, variable, data, inside, lambda y: support.holds(y, *given))
            + self._of_bounds(support.names, support_of(variable)[1], data)
        )

    def _of_bounds(self, names: Sequence[str], parameters: list[Any], data: Any) -> str:
        """Return what to do if the model samples a bound of the data."""
        free = set(self.model.free_RVs)
        limits = {"lower": ("below the smallest", np.min), "upper": ("above the largest", np.max)}
        for name, parameter in zip(names, parameters, strict=False):
            if name in limits and free & set(ancestors([parameter])):
                side, extreme = limits[name]
                value = number_text(extreme(data))
                return (
                    f"\nGive {name} a prior that stays {side} observed value, {value}, such as "
                    f"{value} {'+' if name == 'upper' else '-'} pm.HalfNormal(...)."
                )
        return ""

    def _observed(self, name: str, value: Any, index: Index) -> str | None:
        """Say which observed value stands at an element of a term, if one does."""
        variable = self.model[name]
        if variable not in self.model.observed_RVs:
            return None
        observed = self.model.rvs_to_values[variable]
        data = self._evaluate([observed])[observed]
        if data.shape[: value.ndim] != value.shape:
            return None
        return f"observed {self._shown(name, data, tuple(index))} has this log-density."

    def _shown(self, name: str, data: Any, index: Index) -> str:
        place = f"{name}{list(index)}" if index else name
        value = data[index]
        if not value.ndim:
            return f"{place} = {number_text(value)}"
        return f"{place} = {np.array2string(value, separator=', ', threshold=8)}"

    def _missing(self, name: str) -> Told:
        """Say which data of a random draw of rows hold NaN; a draw cannot be computed again."""
        term = self.terms[self.names.index(name)]
        if not any(isinstance(v.type, RandomType) for v in graph_inputs([term])):
            return {}
        for variable in graph_inputs([term]):
            value: Any = getattr(variable, "data", None)
            if isinstance(variable, SharedVariable):
                value = variable.get_value(borrow=True)
            if np.ndim(value) == 0 or np.asarray(value).dtype.kind != "f":
                continue
            rows = np.isnan(value).reshape(len(value), -1).any(axis=1)
            if rows.any():
                text = variable.name or f"data of shape {np.shape(value)}"
                return _explained_by(
                    f"{text}: {int(rows.sum())} of {len(rows)} rows hold NaN, "
                    f"the first is row {int(np.argmax(rows))}.\nLeave these rows out."
                )
        return {}

    def _term(self, term: str, by: str | None = None, **more: Any) -> BadTerm:
        source = source_line(self.model[term]) if term != SUM else None
        return BadTerm(term, by, source, **more)

    def _one_by_one(self) -> tuple[list[Any], list[BadTerm]]:
        values, bad = [], []
        for name, term in zip(self.names, self.terms, strict=True):
            try:
                [value], more = self._values([term], [(name, None)])
            except Exception as error:  # whatever the model's operations raise
                value, more = np.nan, [self._term(name, error=first_line(error))]
            values.append(value)
            bad += more
        return values, bad

    def _gradient(self, told: Set[str]) -> tuple[dict[str, Any], list[BadTerm]]:
        """Return the gradient of the log-density, and the gradients of terms that are bad.

        Except of the terms of which it is `told` why they are bad.
        """
        wrt = list(self.model.continuous_value_vars)
        if not wrt:
            return {}, []
        try:
            grads = self._grad("the log-density", sum(term.sum() for term in self.terms), wrt)
        except ForeignError as error:
            self.no_gradient = first_line(error.__cause__ or error)
            raise
        values, _ = self._run(grads)
        self.gradient_of = self.compiled
        gradient = dict(zip((v.name for v in wrt), values, strict=True))
        self.wrt = list(gradient)
        bad = [v for v in wrt if self.policy.is_bad(gradient[v.name])]
        if not bad:
            return gradient, []
        terms = dict(zip(self.names, self.terms, strict=True))
        of_terms = self._gradients_of_terms(
            bad, {name: term for name, term in terms.items() if name not in told}
        )
        explained = {term.by for term in of_terms}
        explained |= {v.name for v in graph_inputs([terms[name] for name in told])}
        left = [(v, grad) for v, grad in zip(wrt, grads, strict=True) if v in bad]
        left = [(v.name, grad) for v, grad in left if v.name not in explained]
        if left:
            of_terms += self._values([g for _, g in left], [(SUM, name) for name, _ in left])[1]
        return gradient, of_terms

    def _flat(self, gradient: dict[str, Any]) -> tuple[str, ...]:
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

    def _gradients_of_terms(self, wrt: list[Any], terms: dict[str, Any]) -> list[BadTerm]:
        bad: list[BadTerm] = []
        for name, term in terms.items():  # (each by itself: else PyTensor merges their operations)
            reached = set(graph_inputs([term]))
            by = [v for v in wrt if v in reached]
            grads = [self._grad(name, term.sum(), [v])[0] for v in by]
            for grad, v in zip(grads, by, strict=True):
                if grad.owner is not None:
                    grad.name = f"the gradient of {name} by {v.name}"
            bad += self._values(grads, [(name, v.name) for v in by])[1] if grads else []
        return bad

    def _grad(self, name: str, cost: Any, wrt: list[Any]) -> list[Any]:
        with model_lines():
            cost = self.pymc.pytensorf.rewrite_pregrad(cost)
            if cost.owner is not None:  # (PyMC may have simplified it to a value variable)
                cost.name = name
            with foreign():
                return pytensor.grad(cost, wrt, disconnected_inputs="ignore")
