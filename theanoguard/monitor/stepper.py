"""Step through a call of a compiled function.

The stepper runs the graph of the compiled function node by node, with the compiled code of each
node, in an order in which the C virtual machine may run it.  It leaves out branches of an
``ifelse`` that are not taken.  Two things differ from a call: a value that an in-place node
overwrites is copied first, so that it can still be shown, and shared variables get their updates
when the run is completed.
"""

from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any

from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.op import Op

from theanoguard._arguments import Count, checked, did_you_mean, refuse
from theanoguard._evaluate.replay import copy_value
from theanoguard._provenance import SourceLine, lookup
from theanoguard._provenance.places import source_lines
from theanoguard._pytensor import (
    Function,
    captured_inputs,
    finished_call,
    get_destroy_dependencies,
    raise_with_op,
    scalar_ops_of,
    single_thunk,
)
from theanoguard._shown import bounded, html_table
from theanoguard._text import cut, cut_apart, text_width
from theanoguard._traversal import postorder
from theanoguard.guard.pausing import unguarded
from theanoguard.monitor.operands import Step, is_bad, made_by, name_of, operands, short
from theanoguard.operations.names import op_name

#: Bytes of values that are kept for stepping back, by default.
MEMORY_BOUND = 1 << 28


class Stepper:
    """A call of a compiled function that runs step by step.

    Parameters
    ----------
    fn : Function
        A compiled function.  If it was compiled for Numba or another just-in-time backend, the
        stepper runs its compiled graph on the C backend.
    args, kwargs
        Its arguments.
    memory_bound : int
        Bytes of values kept for :meth:`back`, 256 MiB by default.  Above this limit the oldest
        steps are dropped.

    Attributes
    ----------
    bad_steps : list of int
        Numbers of the steps so far whose outputs hold NaN or Inf.

    Raises
    ------
    TypeError
        If `fn` is not a compiled function, or if the call itself raises it for its arguments.

    Notes
    -----
    Use it as a context manager: at the end of the block the call is completed, and :attr:`result`
    is what the function returns.  After :meth:`stop` or an exception the call is not completed.

    Examples
    --------
    >>> from theanoguard import step_through
    >>> import pytensor, pytensor.tensor as pt
    >>> x = pt.dscalar("x")
    >>> f = pytensor.function([x], pt.log(pt.exp(x) + 1).sum() * x, mode="CVM")
    >>> with step_through(f, 0.0) as s:
    ...     node = s.next()
    ...     value = s.outputs[0]
    >>> print(s.result)
    0.0
    """

    @checked
    def __init__(
        self,
        fn: Function,
        args: Sequence = (),
        kwargs: Mapping[str, Any] | None = None,
        memory_bound: int = MEMORY_BOUND,
    ) -> None:
        self.fn = fn
        self.fgraph = fn.maker.fgraph
        self.memory_bound = memory_bound
        self.result: Any = None
        self.done = False
        self._call = (tuple(args), dict(kwargs or {}))
        self._history: deque[Step] = deque()
        self._cursor = -1
        self._uses: Counter[int] = Counter()
        self._kept = 0
        self._has_run: set[Apply] = set()
        self.bad_steps: list[int] = []
        self._watched: dict[str, Variable] = {}
        given = captured_inputs(fn, *self._call)
        self._link(dict(zip(self.fgraph.inputs, given, strict=True)))
        self._execution = self._execute()

    # -- running

    def _link(self, inputs: dict[Variable, Any]) -> None:
        """Make the thunks, on storage of our own."""
        order = self.fgraph.toposort()
        self._cells = {v: [inputs.get(v)] for v in self.fgraph.variables}
        for variable in self.fgraph.variables:
            if isinstance(variable, Constant):
                self._cells[variable][0] = variable.data
        self._computed = {v: [v.owner is None] for v in self.fgraph.variables}
        self._thunks: dict[Apply, Any] = {}
        for node in order:
            with unguarded():
                thunk = single_thunk(self.fn, node, self._cells, self._computed)
            thunk.inputs = [self._cells[v] for v in node.inputs]
            thunk.outputs = [self._cells[v] for v in node.outputs]
            self._thunks[node] = thunk
        self._n_nodes = len(order)
        self._clients_left = {
            v: {client for client, _ in self.fgraph.clients[v]} for v in self.fgraph.variables
        }

    def _execute(self) -> Generator[Step, None, None]:
        """Run the graph; yield a step after each node."""
        before = get_destroy_dependencies(self.fgraph)
        computed = self._computed
        todo = [v.owner for v in reversed(self.fgraph.outputs) if v.owner is not None]
        number = 0
        while todo:
            node = todo[-1]
            if all(computed[v][0] for v in node.outputs):
                todo.pop()
                continue
            thunk = self._thunks[node]
            if getattr(thunk, "lazy", False):
                wanted = [node.inputs[i] for i in self._run(thunk, node) or ()]
            else:
                wanted = [v for v in (*node.inputs, *before[node]) if not computed[v][0]]
            if wanted:
                todo.extend(v.owner for v in reversed(wanted) if v.owner is not None)
                continue
            todo.pop()
            inputs = [self._cells[v][0] for v in node.inputs]
            step = Step(number := number + 1, node, inputs, None)
            self._remember(step)
            if not getattr(thunk, "lazy", False):
                self._spare_destroyed(node)
                self._run(thunk, node)
            for variable in node.outputs:
                computed[variable][0] = True
            step.outputs = [self._cells[v][0] for v in node.outputs]
            if any(map(is_bad, step.outputs)):
                self.bad_steps.append(number)
            self._keep(step)
            self._collect(node)
            yield step

    def order(self) -> list[Apply]:
        """Return the nodes of all branches in the order in which they run.

        Returns
        -------
        list of Apply
            A call may leave out a branch of an ``ifelse``.
        """
        before = get_destroy_dependencies(self.fgraph)

        def needed(node: Apply) -> list[Apply]:
            return [v.owner for v in (*node.inputs, *before[node]) if v.owner is not None]

        owners = [v.owner for v in self.fgraph.outputs if v.owner is not None]
        return postorder(owners, needed)

    def _run(self, thunk: Callable, node: Apply) -> Any:
        try:
            with unguarded():  # (an inner graph may be compiled at its first call)
                return thunk()
        except Exception:
            self.done = True
            raise_with_op(self.fgraph, node, thunk)

    def _spare_destroyed(self, node: Apply) -> None:
        """Let the node overwrite copies, because the values are kept and may be the caller's."""
        for i in {i for places in node.op.destroy_map.values() for i in places}:
            cell = self._cells[node.inputs[i]]
            cell[0] = copy_value(cell[0])

    def _collect(self, node: Apply) -> None:
        """Release the inputs that no later node reads."""
        for variable in node.inputs:
            left = self._clients_left[variable]
            left.discard(node)
            if not left and variable.owner is not None:
                self._cells[variable][0] = None

    def _remember(self, step: Step) -> None:
        self._has_run.add(step.node)
        self._history.append(step)
        self._cursor = len(self._history) - 1

    def _keep(self, step: Step) -> None:
        """Count the values of a step, and drop the oldest steps while they are above the bound."""
        self._count(step, 1)
        while len(self._history) > 1 and self._kept > self.memory_bound:
            self._count(self._history.popleft(), -1)
            self._cursor = max(self._cursor - 1, 0)

    def _count(self, step: Step, change: int) -> None:
        """Add or remove one use of each value of a step; several steps may hold a value."""
        for value in (*step.inputs, *(step.outputs or ())):
            self._uses[id(value)] += change
            if self._uses[id(value)] == max(change, 0):
                self._kept += change * getattr(value, "nbytes", 0)

    # -- moving

    def next(self) -> Apply | None:
        """Run the next node.  After :meth:`back`, go forward to a node that has run.

        Returns
        -------
        Apply or None
            The node; None if no node is left.  The last step then stays the current one.

        Raises
        ------
        Exception
            The error of the node.  The node and its inputs can still be read, and the run is over.
        """
        if (node := self._advance()) is None and not self.done:
            self._finish()
        return node

    def _advance(self) -> Apply | None:
        """Go to the next node, without completing the call after the last one."""
        if self._cursor < len(self._history) - 1:
            self._cursor += 1
            return self.node
        if self.done or next(self._execution, None) is None:
            return None
        return self.node

    def back(self) -> Apply | None:
        """Go back to the step before.

        Returns
        -------
        Apply or None
            Its node; None if it is not kept.  The current step then stays the same.
        """
        if self._cursor <= 0:
            return None
        self._cursor -= 1
        return self.node

    @checked
    def goto(self, number: Count) -> Apply | None:
        """Go to a step, back or forward.  Nodes on the way that have not run are run.

        Parameters
        ----------
        number : int
            From 1.

        Returns
        -------
        Apply or None
            The node of that step.  None if the step is no longer kept, or if the call has fewer
            steps.  The stepper then stops at the nearest step and does not complete the call.

        Raises
        ------
        ValueError
            If the function has fewer nodes.
        """
        if number > self._n_nodes:
            problem = f"the function has {self._n_nodes} steps"
            raise refuse("goto", "number", number, problem)
        return self.goto_nearest(number)

    def goto_nearest(self, number: int) -> Apply | None:
        """As :meth:`goto`, also for a number that the function does not have."""
        while self.number < number and self._advance() is not None:
            pass
        while self.number > number and self.back() is not None:
            pass
        return self.node if self.number == number else None

    @property
    def number(self) -> int:
        """The number of the current step, 0 before the first."""
        return self.step.number if self.step else 0

    @checked
    def until(
        self,
        op: type | Op | str | None = None,
        name: str | None = None,
        line: int | str | None = None,
        bad: bool | None = None,
    ) -> Apply | None:
        """Run until a node matches all arguments.

        If no later node has that operation, name or line, nothing runs.  After the last node the
        call is not completed: :meth:`run` or :meth:`next` does that.

        Parameters
        ----------
        op : type, Op or str
            The class of the operation, the operation, or a part of its name.  Operations that were
            fused into the node match as well.
        name : str
            The name of a variable that the node computes, or of an input that it reads.
        line : int or str
            The line of your code that the node comes from: a number, or ``"file.py:12"``.
        bad : bool
            Whether an output holds NaN or Inf.

        Returns
        -------
        Apply or None
            The node; None if no later node matches.

        Raises
        ------
        ValueError
            If there is no argument, or if the function has no such operation or name.
        """
        if op is None and name is None and line is None and bad is None:
            raise ValueError("until needs an argument: op=, name=, line= or bad=True.")
        nodes = self.fgraph.apply_nodes
        if op is not None and not any(self._fits(node, op, None, None) for node in nodes):
            known = sorted({op_name(node.op) for node in nodes})
            near = did_you_mean(op, known) if isinstance(op, str) else ""
            problem = (
                f"the function has no such operation{near}\nIts operations: {', '.join(known)}."
            )
            raise refuse("until", "op", op, problem)
        if name is not None and not any(self._fits(node, None, name, None) for node in nodes):
            known = sorted({v.name for v in self.fgraph.variables if v.name})
            problem = f"the function has no variable of this name{did_you_mean(name, known)}"
            raise refuse("until", "name", name, problem)
        return self.until_fits(op, name, line, bad)

    def until_fits(
        self,
        op: type | Op | str | None = None,
        name: str | None = None,
        line: int | str | None = None,
        bad: bool | None = None,
    ) -> Apply | None:
        """As :meth:`until`, also for what the function does not have."""
        later = {step.node for i, step in enumerate(self._history) if i > self._cursor}
        to_come = later | (self.fgraph.apply_nodes - self._has_run)
        if not any(self._fits(node, op, name, line) for node in to_come):
            return None
        while (node := self._advance()) is not None:
            if self._fits(node, op, name, line) and (
                bad is None or any(map(is_bad, self.outputs)) == bad
            ):
                return node
        return None

    @checked
    def behind(
        self,
        op: type | Op | str | None = None,
        name: str | None = None,
        line: int | str | None = None,
        bad: bool | None = None,
    ) -> list[int]:
        """Return the numbers of the steps up to the current one that match all arguments.

        Parameters
        ----------
        op, name, line, bad
            As for :meth:`until`.

        Returns
        -------
        list of int
            Only steps that are kept.
        """
        return [
            step.number
            for i, step in enumerate(self._history)
            if i <= self._cursor
            and self._fits(step.node, op, name, line)
            and (bad is None or any(map(is_bad, step.outputs or ())) == bad)
        ]

    def _fits(
        self, node: Apply, op: type | Op | str | None, name: str | None, line: int | str | None
    ) -> bool:
        return (
            (op is None or _is_op(node.op, op))
            and (name is None or self._has_name(node, name))
            and (line is None or self._is_at(node, line))
        )

    def run(self) -> Any:
        """Run to the end, update the shared variables and return the result of the function."""
        while not self.done:
            if next(self._execution, None) is None:
                self._finish()
        return self.result

    def stop(self) -> None:
        """Abandon the call.  No shared variable is updated, and there is no result."""
        self._execution.close()
        self.done = True

    def _finish(self) -> None:
        outputs = [self._cells[v][0] for v in self.fgraph.outputs]
        # A later call may overwrite a shared variable's value, which is kept here.
        updates = set(self.fgraph.update_mapping)
        outputs = [copy_value(v) if i in updates else v for i, v in enumerate(outputs)]
        self.done = True
        self.result = finished_call(self.fn, *self._call, outputs)

    def __iter__(self) -> Iterator[Apply]:
        while (node := self.next()) is not None:
            yield node

    def __enter__(self) -> "Stepper":
        return self

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        if kind is None and not self.done:
            self.run()
        else:
            self._execution.close()

    # -- looking

    @property
    def step(self) -> Step | None:
        """The current :class:`Step`, None before the first."""
        return self._history[self._cursor] if self._history else None

    @property
    def node(self) -> Apply | None:
        """The current node, None before the first step."""
        return self.step and self.step.node

    @property
    def inputs(self) -> list:
        """The values that the node read, in the order of ``node.inputs``."""
        return self.step.inputs if self.step else []

    @property
    def outputs(self) -> list:
        """The values that the node wrote, in the order of ``node.outputs``."""
        return (self.step.outputs or []) if self.step else []

    @checked
    def find(self, what: Variable | str) -> Variable:
        """Return a variable of the compiled graph.

        Parameters
        ----------
        what : Variable or str
            A variable of the compiled graph, an input of the function, or a name.  Names that
            rewriting has dropped are found if the function's mode tracks provenance.

        Raises
        ------
        KeyError
            If there is no such variable.
        """
        if isinstance(what, Variable):
            if what in self._cells:
                return what
            for spec, variable in zip(self.fn.maker.inputs, self.fgraph.inputs, strict=True):
                if spec.variable is what:
                    return variable
            what = what.name or str(what)
        found = [v for v in self._cells if v.name == what]
        found = found or [v for v in self._cells if name_of(self.fgraph, v) == what]
        if not found:
            raise KeyError(f"no variable {what!r} in the compiled graph; rewriting may drop names")
        return found[0]

    @checked
    def value(self, what: Variable | str) -> Any:
        """Return the value of a variable at the current step.

        Parameters
        ----------
        what : Variable or str
            As for :meth:`find`.

        Returns
        -------
        object or None
            None if it has not been computed yet, or is no longer kept.
        """
        variable = self.find(what)
        steps = [s for i, s in enumerate(self._history) if i <= self._cursor]
        for step in reversed(steps):
            if step.outputs is not None and variable in step.node.outputs:
                return step.outputs[step.node.outputs.index(variable)]
            if variable in step.node.inputs:
                return step.inputs[step.node.inputs.index(variable)]
        at_the_end = self._cursor == len(self._history) - 1
        if variable.owner is None or at_the_end:
            return self._cells[variable][0]
        return None

    @checked
    def watch(self, what: Variable | str) -> None:
        """Add a variable to :attr:`watched`.

        Parameters
        ----------
        what : Variable or str
            As for :meth:`find`.
        """
        variable = self.find(what)
        label = what if isinstance(what, str) else variable.name or str(variable)
        self._watched[label] = variable

    @property
    def watched(self) -> dict[str, Any]:
        """The values of the watched variables at the current step, by name."""
        return {label: self.value(variable) for label, variable in self._watched.items()}

    def __repr__(self) -> str:
        return bounded(f"<{type(self).__name__}: {self.where()}>", "where() returns all of it.")

    def _repr_html_(self) -> str:
        heads = ("", "Name", "NaN and Inf", "Range", "Type", "Values")
        shown = operands(self.fgraph, self.step)
        names = cut_apart([o.name for o in shown], 60)
        rows = [
            (o.verb, name, o.bad, o.range, o.type, cut(short(o.value), 60))
            for o, name in zip(shown, names, strict=True)
        ]
        return html_table(self.where(), heads, rows, "inputs and outputs have all of them.")

    def where(self) -> str:
        """Return the number of the current step, its expression, operation and line, as text."""
        step = self.step
        nodes = f"{self._n_nodes} node{'' if self._n_nodes == 1 else 's'}"
        if step is None:
            return f"before the first of {nodes}"
        name = self.fn.name or "the function"
        [made] = cut_apart([made_by(self.fgraph, step.node)], 50)
        text = f"step {step.number}, {made}, {cut(step.node.op, 40)}, of {nodes} of {name}"
        source = lookup(self.fgraph, step.node).source
        return "\n  ".join([text, *(source_lines(source, text_width() - 2) if source else ())])

    # -- matching

    def _has_name(self, node: Apply, name: str) -> bool:
        inputs = [v for v in node.inputs if v.owner is None]
        return any(name_of(self.fgraph, v) == name for v in (*node.outputs, *inputs))

    def _is_at(self, node: Apply, line: int | str) -> bool:
        provenance = lookup(self.fgraph, node)
        sources = [provenance.source, *provenance.merged]
        sources += [inner.source for inner in provenance.inner]
        return any(source is not None and _is_line(source, line) for source in sources)


def _is_op(op: Op, wanted: type | Op | str) -> bool:
    """Whether `wanted` (a class, an operation, a part of a name) matches `op` or a part of it."""
    ops = [op, *scalar_ops_of(op)]
    if isinstance(wanted, str):
        return any(wanted.lower() in str(o).lower() for o in ops)
    if isinstance(wanted, type):
        return any(isinstance(o, wanted) for o in ops)
    # `pt.exp` is an operation on tensors; fused, only the scalar one is left.
    return any(o in (wanted, getattr(wanted, "scalar_op", wanted)) for o in ops)


def _is_line(source: SourceLine, line: int | str) -> bool:
    if isinstance(line, int):
        return source.line == line
    file, _, number = str(line).rpartition(":")
    if not file:
        return number.isdigit() and source.line == int(number)
    return source.file.endswith(file) and source.line == int(number)


@checked
def step_through(fn: Function, *args: Any, **kwargs: Any) -> Stepper:
    """Return a :class:`Stepper` for the call ``fn(*args, **kwargs)``.

    Parameters
    ----------
    fn : Function
        A compiled function.
    args, kwargs
        Its arguments.

    Returns
    -------
    Stepper
        Nothing has been run yet.

    Examples
    --------
    >>> from theanoguard import step_through
    >>> import numpy as np, pytensor, pytensor.tensor as pt
    >>> x = pt.dvector("x")
    >>> f = pytensor.function([x], pt.log(x)[:2], mode="CVM")
    >>> with step_through(f, [1.0, 0.0]) as s:
    ...     node = s.until(bad=True)
    ...     print(node.op, s.inputs, s.outputs)
    ...     s.stop()
    Log [array([1., 0.])] [array([  0., -inf])]
    """
    return Stepper(fn, args, kwargs)
