"""Measures the digits of one call in many of a guarded function."""

import logging
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np

from theanoguard._arguments import Count, Positive, checked
from theanoguard._compare.problem import Problem, make_problem, returned
from theanoguard._context import setting
from theanoguard._evaluate.replay import has_effects
from theanoguard._event import GuardEvent, Trip
from theanoguard._precision.measuring import SECONDS, WORK, measured
from theanoguard._precision.result import Digits, Precision
from theanoguard._shown import brief
from theanoguard._steps import attempt, failures
from theanoguard.guard.errors import GuardError
from theanoguard.guard.functions import WatchedFunction, joined
from theanoguard.guard.pausing import unguarded

logger = logging.getLogger("theanoguard")

_measuring: ContextVar[bool] = ContextVar("measuring", default=False)


class MeasuredFunction(WatchedFunction):
    """A guarded function that measures the digits of some of its calls."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        guard = getattr(self.vm, "guard", None)  # (``captured_inputs`` puts in another machine)
        if guard is None or _measuring.get() or guard.calls % guard.policy.precision.every:
            return super().__call__(*args, **kwargs)
        with setting(_measuring, True), failures() as failed:
            problem = attempt("the inputs", None, _problem, self, args, kwargs)
            result = super().__call__(*args, **kwargs)
            if problem is not None:
                computed = returned(self, result)
                found = attempt("the digits", None, self._measure, problem, computed)
                if found is not None:
                    self._report(found, problem, computed)
            if failed:
                logger.error("theanoguard: a call was not measured, please report this: %s", failed)
        return result

    def _measure(self, problem: Problem, computed: list) -> Precision:
        limits = self.vm.guard.policy.precision
        with unguarded():
            found = measured(problem, computed, self.maker.mode, limits.work, limits.seconds)
        if not found.outputs:
            logger.info("theanoguard: the digits of a call were not measured: %s", found)
        return found

    def _report(self, found: Precision, problem: Problem, computed: Sequence[Any]) -> None:
        """Report each output that has lost digits, as the policy says.

        Raises ``GuardError``: if that is the action.  Shared variables have their values from
        before the call.
        """
        guard = self.vm.guard
        try:
            for name, digits in found.outputs.items():
                if not digits.is_fault:
                    continue
                number = problem.names.index(name)
                event = _event(name, digits, number, np.asarray(computed[number]), guard)
                text = str(Precision({name: digits}))
                trip = Trip(event, guard.fgraph, {}, None, None, np.isnan, lost=text)
                error: GuardError | None = guard.act_on(trip)
                if error is not None:
                    raise error from None
        except BaseException:
            for i in problem.updates:
                self.input_storage[i].storage[0] = problem.values[i]
            raise


def _problem(fn: Any, args: tuple, kwargs: dict[str, Any]) -> Problem | None:
    """Return the problem of a call before it runs, None if it cannot be computed twice."""
    try:
        problem = make_problem(fn, args, kwargs)
    except (TypeError, ValueError):  # the call itself raises what is wrong with its arguments
        return None
    return None if any(has_effects(n.op) for n in problem.fgraph.apply_nodes) else problem


def _event(name: str, digits: Digits, number: int, value: np.ndarray, guard: Any) -> GuardEvent:
    loss = digits.losses[0] if digits.losses else None
    event = GuardEvent(
        kind="digits",
        role="output",
        node=None,
        op=None if loss is None else loss.operation,
        variable=name,
        output=number,
        dtype=str(value.dtype),
        shape=value.shape,
        size=value.size,
        n_nan=0,
        n_posinf=0,
        n_neginf=0,
        n_big=0,
        first_index=digits.index,
        first_value=value[digits.index].item(),
        call=guard.calls,
        function=guard.fgraph.name,
    )
    event.attach(None, None if loss is None else loss.source)
    return event


@brief
@dataclass(frozen=True)
class MeasuredCalls:
    """Measure how many digits are right in one call in many of a guarded function.

    Pass it to :class:`GuardMode` as ``precision=``.  After such a call, each output and each update
    that has lost digits is an event of the kind "digits", with the operation that lost them and its
    line.  The action of the mode follows.

    Parameters
    ----------
    every : int
        The first call and then every `every`-th call are measured.
    work, seconds : float
        Limits of one measurement, as for :func:`precision`.  A call beyond them is not judged.

    Examples
    --------
    >>> import pytensor, pytensor.tensor as pt
    >>> from theanoguard import GuardError, GuardMode
    >>> from theanoguard import MeasuredCalls
    >>> x = pt.dscalar("x")
    >>> mode = GuardMode(precision=MeasuredCalls(every=1000), big_threshold=1e15)
    >>> f = pytensor.function([x], pt.sqrt(x + 1) - pt.sqrt(x), mode=mode)
    >>> try:
    ...     f(1e14)
    ... except GuardError as error:
    ...     print(error.event.kind, error.event.op)
    digits sub
    """

    every: Count = 1000
    work: Positive = WORK
    seconds: Positive = SECONDS

    @staticmethod
    def function_class(base: Any) -> Any:
        """Return the subclass of a class of functions that measures its calls."""
        return joined(base, MeasuredFunction)


MeasuredCalls.__init__ = checked(MeasuredCalls.__init__)  # type: ignore[method-assign]
