"""One graph in several modes: do the outputs part, and at which variable first."""

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import pytensor
from pytensor.compile.mode import Mode, get_mode
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import SequentialGraphRewriter

from theanoguard._arguments import NotNegative, checked, did_you_mean
from theanoguard._backends import backends
from theanoguard._compare.devices import default_device, has_devices, on_device, split
from theanoguard._compare.difference import Difference, Tolerance, difference, is_comparable
from theanoguard._compare.problem import (
    GONE,
    PAIR,
    Compiled,
    Problem,
    Reference,
    as_value,
    copy_of,
    make_problem,
    without_damage,
)
from theanoguard._compare.reasons import Case, reason_of
from theanoguard._compare.result import Comparison, ModeResult, Parting
from theanoguard._compare.rewriting import Change, Judge, Raised, blamed, outcome
from theanoguard._naming import name_of
from theanoguard._progress import searching
from theanoguard._provenance import lookup, track_provenance, tracker_of
from theanoguard._provenance.records import user_line
from theanoguard._pytensor import FUSING, IN_PLACE, Function, JITLinker, config, predefined_modes
from theanoguard._steps import first_line
from theanoguard.guard.pausing import twin_of, unguarded
from theanoguard.operations.names import op_name

MODES = ("py", "c", "numba", "jax", "fast_compile", "float32", "float64")
PRECISIONS = ("float32", "float64")

# Names for what PyTensor calls otherwise.
ALIASES = {"c": "CVM"}


@dataclass(frozen=True)
class Form:
    """A form of a compiled graph in which the values between are looked at."""

    text: str
    excluded: tuple[str, ...]


FORMS = (
    Form(
        "found with the values between as further outputs, without fusion and work in place",
        (*IN_PLACE, *FUSING),
    ),
    Form(
        "found with the values between as further outputs, without work in place; without fusion "
        "the outputs agree",
        IN_PLACE,
    ),
    Form(
        "found with the values between as further outputs, and work in place on copies; without "
        "work in place the outputs agree",
        (),
    ),
)


@checked
@searching("compare")
def compare(
    graph_or_function: Any,  # (checked below, with advice)
    inputs: Mapping | Sequence | None = None,
    modes: str | Mode | Sequence[str | Mode] | None = None,
    *,
    reference: Literal["py", "as written"] = "py",
    rtol: NotNegative | None = None,
    ulp: NotNegative = 4,
    atol: NotNegative | None = None,
) -> Comparison:
    """Run one graph on several backends, precisions or optimizers, and find where they differ.

    The reference is "py": each node of the graph as you wrote it, run separately in Python.  Each
    mode compiles the graph as usual and runs it on copies of the same values.  If outputs differ,
    the compiled graph runs again with its intermediate values as outputs.  Each of them is compared
    with the variable that it replaces in your graph.

    No shared variable and no random generator changes.

    Parameters
    ----------
    graph_or_function : Variable, list of Variable, or Function
        For a function, its updates are compared as well.  If it was compiled inside
        :func:`track_provenance` or under a guard, the graph as you wrote it is compared.
    inputs : mapping or sequence
        ``{variable or name: value}``.  For a function, also its arguments in order.  Shared
        variables use their own values, unless you give others for a graph.
    modes : sequence of str or Mode, optional
        "py", the reference; "c" (CVM), "numba", "jax", "fast_compile" and PyTensor's other names;
        "float32" and "float64", which run the graph node by node in Python in this precision; or
        compile modes.  "jax:cpu", "jax:cuda", "pytorch:cpu" and "pytorch:cuda" also choose the
        device.  A mode whose package or device is missing is left out, and the table says so.
        A guard or a monitor is compared as the mode that it watches.
        With ``reference="as written"``, the default is the mode of the function, or the mode that
        PyTensor uses by default.
    reference : {"py", "as written"}, optional
        The values are the same.  "as written" judges what each mode's rewrites changed: values,
        errors and digits.  The exact value decides which side is right.  Each change has the
        rewrite's name and the ``mode.excluding(...)`` that avoids it.
    rtol, atol : float or None
        Relative and absolute difference that is allowed.  None chooses by dtype (see
        ``Tolerance``).
    ulp : float
        The allowed difference in units in the last place.

    Returns
    -------
    Comparison
        Print it, or use its ``table()``, ``agree`` and ``modes``.

    Raises
    ------
    TypeError, ValueError
        For arguments that do not fit, and for ``reference="as written"`` if the graph as it was
        written is gone.  An error of the reference is raised, unless it is "as written".  An error
        of another mode is shown in the table.

    Examples
    --------
    >>> import numpy as np, pytensor.tensor as pt
    >>> from theanoguard import compare
    >>> x = pt.dvector("x")
    >>> found = compare(pt.log(1 + x), {x: np.array([0.5, 1e-20])}, ["fast_compile", "float32"],
    ...                 atol=0)
    >>> print(found.table())
    mode          ...
    fast_compile  agrees  ...
    float32       ...

    A rewrite that changes a value:

    >>> y = pt.dscalar("y")
    >>> found = compare(y // 1, {y: 1.5}, "fast_run", reference="as written")
    >>> [change] = found["fast_run"].changes
    >>> change.kind, change.as_written, change.compiled, change.excluding
    ('value changed', '1.0', '1.5', 'mode.excluding("local_div_by_one")')
    """
    chosen = _chosen(modes, graph_or_function, reference)
    problem = make_problem(graph_or_function, inputs)
    if reference == "as written" and GONE in problem.notes:
        raise ValueError(
            'compare(): reference="as written" needs the graph as it was written, which is gone.\n'
            "Compile the function inside theanoguard.track_provenance(), or give the variables."
        )
    evaluated = problem.reference()
    if reference == "as written":
        judge = Judge(problem, evaluated)
        tolerance = Tolerance(rtol or 0, ulp, atol or 0)
        values = [None if isinstance(v, Raised) else v for v in judge.outcomes.values()]
    else:
        judge, tolerance = None, Tolerance(rtol, ulp, atol)
        values = _values(evaluated, problem)
    comparing = _Comparing(problem, evaluated, values, tolerance, judge)
    with unguarded():
        results = {name: comparing.run(name, mode) for name, mode in chosen.items()}
    return Comparison(results, problem.names, values, tuple(problem.notes))


def _values(evaluated: Reference, problem: Problem) -> list[Any]:
    """Return the outputs of the reference.

    Raises ``Exception``: what an operation raises for these inputs, with a note that names its
    line.
    """
    try:
        return [evaluated.value(v) for v in problem.fgraph.outputs]
    except Exception as error:
        replay, node = evaluated.interrupted()
        if node is not None:
            line = user_line(lookup(replay.fgraph, node.outputs[0]))
            at = "" if line is None else f" of {line.file}:{line.line}"
            error.add_note(
                f"compare(): {op_name(node.op)}{at} raises this for the inputs, before any mode is "
                'compared. reference="as written" compares errors as well.'
            )
        raise


def _chosen(
    modes: str | Mode | Sequence[str | Mode] | None, graph_or_function: Any, reference: str
) -> dict[str, str | Mode]:
    """Return the modes by name.

    Raises ``ValueError``: for an unknown one, or one that rewrites nothing.
    """
    if modes is None:
        if reference == "as written":
            is_function = isinstance(graph_or_function, Function)
            mode = graph_or_function.maker.mode if is_function else get_mode(None)
            return {"compiled": mode}
        modes = MODES
    if isinstance(modes, str | Mode):
        modes = [modes]
    if not modes:
        raise ValueError(
            f"compare(modes={modes!r}): there is no mode to compare.\n"
            "Name modes, such as modes=['c', 'numba'], or leave `modes` out."
        )
    chosen: dict[str, str | Mode] = {}
    for mode in modes:
        if isinstance(mode, Mode):
            name = type(mode).__name__
            name = f"{name} {len(chosen) + 1}" if name in chosen else name
        else:
            name = mode
            if not isinstance(name, str) or not _is_known(name):
                known = ", ".join(dict.fromkeys([*MODES, *map(str.lower, predefined_modes)]))
                near = did_you_mean(mode, known.split(", "))
                raise ValueError(
                    f"compare(modes=...): no mode {mode!r}{near}\n"
                    f"Use a compile mode, or one of {known}."
                )
            if reference == "as written" and name in ("py", *PRECISIONS):
                raise ValueError(
                    f"the mode {name!r} rewrites nothing.\n"
                    'With reference="as written", give modes that compile, such as "c" or "numba".'
                )
        chosen[name] = mode
    return chosen


def _is_known(name: str) -> bool:
    backend, device = split(name)
    if device is not None:
        return has_devices(backend)
    return name in (*PRECISIONS, *MODES) or name.upper() in (*predefined_modes, "FAST_RUN")


def _package_of(name: str) -> str | None:
    """Return the package that must be installed for a mode, or None."""
    known = backends().get(name)
    if known is not None:
        return known.package
    linker = getattr(predefined_modes.get(name.upper()), "linker", None)
    return name if isinstance(linker, JITLinker) else None


def _why_not(name: str) -> str | None:
    """Return why a mode cannot be had here, None if it can."""
    name, device = split(name)
    package = _package_of(name.lower())
    if package is not None and importlib.util.find_spec(package) is None:
        return f"left out, {package} is not installed (pip install {package})"
    if device is not None:
        try:
            on_device(name, device)
        except (RuntimeError, AssertionError) as error:  # what JAX and PyTorch raise
            return f"left out, no device {device!r}: {first_line(error)}"
    if name.lower() in ("c", "cvm") and not config.cxx:
        return "left out, PyTensor has no C++ compiler here"
    return None


@dataclass
class _Comparing:
    """A problem with its reference, and one mode after the other.

    `device` is what the mode computes on, where it has a choice.
    """

    problem: Problem
    reference: Reference
    values: list
    tolerance: Tolerance
    judge: Judge | None = None
    device: str | None = None

    @property
    def graph(self) -> FunctionGraph:
        """The graph of the problem, as the user wrote it."""
        return self.problem.fgraph

    def run(self, name: str, mode: str | Mode) -> ModeResult:
        """Return the :class:`ModeResult` of one mode."""
        if name == "py":
            return self._result(name, self.problem.names, self.values, self.values)
        if name in PRECISIONS:
            return self._in_precision(name)
        why_not = _why_not(name) if isinstance(mode, str) else None
        if why_not is not None:
            return ModeResult(name, not_run=why_not)
        if not isinstance(mode, str):
            return self._compiled(name, get_mode(twin_of(mode)))
        backend, device = split(mode)
        self.device = device or default_device(backend)
        with on_device(backend, device):
            return self._compiled(name, get_mode(twin_of(ALIASES.get(backend, backend))))

    def _result(
        self, name: str, names: Sequence[str], expected: Sequence, found: Sequence, **more: Any
    ) -> ModeResult:
        differences = {
            output: difference(ours, theirs, self.tolerance)
            for output, ours, theirs in zip(names, expected, found, strict=True)
            if ours is not None and is_comparable(ours) and is_comparable(theirs)
        }
        return ModeResult(name, differences, list(found), **more)

    # -- precisions: node by node, and so every variable has its pair

    def _in_precision(self, name: str) -> ModeResult:
        problem, new = self.problem.in_precision(name)
        if not any(old.type != v.type for old, v in new.items()):
            return ModeResult(name, not_run=f"left out, the graph is in {name} already")
        other = problem.reference()
        try:
            found = [other.value(v) for v in problem.fgraph.outputs]
            result = self._result(name, self.problem.names, self.values, found)
            if not result.parted:
                return result
            first = self._first(lambda v: other.value(new[v]))
            return result if first is None else replace(result, first=first[1])
        except Exception as error:  # of any node: this mode alone has failed
            return ModeResult(name, not_run=f"failed, {first_line(error)}")

    # -- compiled modes

    def _compiled(self, name: str, mode: Mode) -> ModeResult:
        problem, note = self.problem, None
        if _is_jax(mode) and problem.draws():
            # (its generators are others, and draw other numbers from the same state)
            problem = problem.with_drawn(self.reference)
            note = "JAX draws other random numbers; it was given those that were drawn in py."
        expected = dict(zip(self.problem.names, self.values, strict=True))
        names, changes = problem.names, None
        try:
            compiled = problem.compile(mode)
            found = compiled() if self.judge is None else outcome(compiled)
            if self.judge is not None:
                changes = self._changes(self.judge, problem, mode, compiled, found)
        except Exception as error:  # whatever a backend raises: this mode alone has failed
            return ModeResult(name, not_run=f"failed, {first_line(error)}")
        if isinstance(found, Exception):
            return ModeResult(name, note=note, changes=changes)
        more = {"note": note, "changes": changes}
        result = self._result(name, names, [expected[n] for n in names], found, **more)
        if self.judge is not None:
            return self._changes_located(result, problem, mode)
        return self._located(result, problem, mode) if result.parted else result

    def _changes(
        self,
        judge: Judge,
        problem: Problem,
        mode: Mode,
        compiled: Compiled,
        found: list | Exception,
    ) -> tuple[Change, ...]:
        """Return what a mode's rewrites changed, judged by the exact value."""

        def named(values: Sequence[Any]) -> dict[str, Any]:
            return dict(zip(problem.names, values, strict=True))

        judge = judge.running(lambda values: named(compiled(values)))
        changes = judge.changes(found if isinstance(found, Exception) else named(found))
        return tuple(blamed(problem, mode, judge, changes))

    def _changes_located(self, result: ModeResult, problem: Problem, mode: Mode) -> ModeResult:
        """Return the result with the first variable that a rewrite changed, where it shows."""
        changes = result.changes or ()
        values_changed = [c for c in changes if c.is_fault and c.index is not None]
        if not values_changed:
            return result
        located = self._located(result, problem, mode)
        if located.first is None:
            return result
        first = located.first
        named = [
            replace(c, operation=first.variable, source=first.source) if c in values_changed else c
            for c in changes
        ]
        return replace(located, changes=tuple(named))

    def _located(self, result: ModeResult, problem: Problem, mode: Mode) -> ModeResult:
        """Return the result with the first variable that differs, or why none was found."""
        for form in FORMS:
            try:
                first = self._first_compiled(problem, mode, form)
            except Exception as error:  # the outputs have been compared already
                why = f"where they part was not found: {first_line(error)}"
                return replace(result, note=" ".join(filter(None, [result.note, why])))
            if first is not None:
                return replace(result, first=first)
        why = "the outputs part only because a node overwrites what another one still needs."
        return replace(result, note=" ".join(filter(None, [result.note, why])))

    def _first_compiled(self, problem: Problem, mode: Mode, form: Form) -> Parting | None:
        mode = mode.excluding(*form.excluded) if form.excluded else mode
        with track_provenance():
            fn = pytensor.function(
                list(problem.fgraph.inputs),
                list(problem.fgraph.outputs),
                mode=mode,
                on_unused_input="ignore",
            )
        fgraph = fn.maker.fgraph
        pairs = _pairs(fgraph)
        variables = self.reference.variables()
        wanted = {v: pairs[n] for v in variables if (n := _number(v)) in pairs}
        # The graph as it was compiled: nothing is rewritten any more.
        kept = without_damage(fgraph)
        between = pytensor.function(
            list(fgraph.inputs),
            [kept[compiled] for compiled in wanted.values()],
            mode=Mode(mode.linker.clone(), SequentialGraphRewriter()),
            accept_inplace=True,
            on_unused_input="ignore",
        )
        found = dict(zip(self.graph.inputs, self.problem.values, strict=True))
        values = map(as_value, between(*map(copy_of, problem.values)))
        found.update(zip(wanted, values, strict=True))
        parts = any(self._parted(v, found.get(v)) for v in self.graph.outputs)
        parted = self._first(found.get) if parts else None
        if parted is None:
            return None
        variable, first = parted
        compiled = wanted[variable]
        steps = lookup(fgraph, compiled).history
        return replace(
            first,
            compiled=str(compiled.owner or compiled),
            rewrites=tuple(dict.fromkeys(step.reason for step in steps)),
            how=form.text,
        )

    # -- the first variable

    def _difference(self, variable: Variable, found: Any) -> Difference | None:
        """Return the difference of a variable's value; None where there is nothing to compare."""
        if found is None or not is_comparable(found):
            return None
        expected = self.reference.value(variable)
        return difference(expected, found, self.tolerance) if is_comparable(expected) else None

    def _expected(self, variable: Variable) -> Any:
        value = self.reference.value(variable)
        return value if is_comparable(value) else None

    def _parted(self, variable: Variable, found: Any) -> bool:
        apart = self._difference(variable, found)
        return apart is not None and apart.parted

    def _first(self, value: Callable[[Variable], Any]) -> tuple[Variable, Parting] | None:
        """Return the first variable that differs, and what is known of it.

        `value` gives another value of a variable, or None where there is none.
        """
        for variable in (*self.graph.inputs, *self.reference.variables()):
            apart = self._difference(variable, value(variable))
            if apart is not None and apart.parted:
                return variable, self._parting(variable, apart, value)
        return None

    def _parting(
        self, variable: Variable, apart: Difference, value: Callable[[Variable], Any]
    ) -> Parting:
        node = variable.owner
        provenance = lookup(self.graph, variable)
        operated = dict.fromkeys(node.inputs if node is not None else ())
        near = [variable, *(v for v in operated if not isinstance(v, Constant))]
        operands = []
        for operand in near[1:]:
            operands.append((name_of(operand), self._difference(operand, value(operand))))
        case = Case(
            None if node is None else node.op,
            tuple(map(name_of, near)),
            tuple(map(self._expected, near)),
            tuple(map(value, near)),
            self.device,
        )
        return Parting(
            variable=name_of(variable, depth=3),
            op=None if node is None else op_name(node.op),
            source=user_line(provenance),
            provenance=provenance,
            difference=apart,
            operands=tuple((name, d) for name, d in operands if d is not None),
            reason=reason_of(case),
        )


def _is_jax(mode: Mode) -> bool:
    return type(mode.linker).__name__ == "JAXLinker"


def _number(variable: Variable) -> int | None:
    return getattr(variable.tag, PAIR, None)


def _pairs(fgraph: FunctionGraph) -> dict[int, Variable]:
    """Map the numbers of the variables that were written to the compiled ones that they became."""
    tracker = tracker_of(fgraph)
    assert tracker is not None  # it was compiled inside of track_provenance
    pairs: dict[int, Variable] = {}
    computed = [v for node in fgraph.toposort() for v in node.outputs]
    for compiled in (*computed, *fgraph.inputs):
        for written in tracker.equals(compiled):
            if (number := _number(written)) is not None:
                pairs.setdefault(number, compiled)
    return pairs
