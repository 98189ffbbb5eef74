"""The guard on the Numba backend: the user's program with signs, and a second look when one shows.

The program that runs in every call (``program.py``) signals that something may be wrong.  Only
then the call is computed again, node by node, by what Numba compiles for each of them, and each
node is judged (:mod:`~theanoguard.guard.graph.judging`).  No argument is overwritten, and random
states are put back, so that this is the same call.
"""

import importlib
import logging
from dataclasses import replace
from functools import cached_property

import numpy as np
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Apply, Constant
from pytensor.graph.fg import FunctionGraph
from pytensor.printing import Print

from theanoguard._provenance import watch_rewriting
from theanoguard._pytensor import NumbaLinker
from theanoguard.explain import explain_exception, render_failure
from theanoguard.explain.replay import Kernels, NotRun, has_effects
from theanoguard.guard.errors import GuardError
from theanoguard.guard.graph.checks import CheckedGraph, is_list
from theanoguard.guard.graph.runtime import GuardedLinker
from theanoguard.guard.numba.ops import COUNTING, CUT, FLAGS, FOUND, N_SIGNALS, Recording
from theanoguard.guard.numba.program import Reliance, plan_of, program_of
from theanoguard.guard.reporting import Observation, Reporter, Snapshot, Tripped
from theanoguard.guard.rerun import SecondRun
from theanoguard.ops.print import PrintBeside

logger = logging.getLogger("theanoguard")


def numba_code():
    """Return the modules with what Numba compiles, which take a while to load."""
    return (
        importlib.import_module("theanoguard.guard.numba.code"),
        importlib.import_module("theanoguard.guard.numba.flags"),
    )


class NumbaKernels(Kernels):
    """Callables that compute the outputs of a node as Numba does.

    Parameters
    ----------
    part : Part
        Of the function: its nodes with an inner graph of their own are stepped into.

    Attributes
    ----------
    raised : int
        The exception flags of the last node.
    """

    def __init__(self, part):
        super().__init__()
        self._stepped_into = set(_stepped_into(part))
        self._code, _ = numba_code()
        self._signals = np.zeros(N_SIGNALS, np.int64)
        self.raised = 0

    def runs_whole(self, node):
        return isinstance(node.op, OpFromGraph) and node not in self._stepped_into

    def run(self, node, inputs):
        if isinstance(node.op, Print):
            return inputs[:1]  # it was printed when the call ran
        if isinstance(node.op, PrintBeside):
            return [np.array(True)]
        if has_effects(node.op) and self._code.runs_in_python(node.op):
            raise NotRun  # its outputs would have been kept
        self._signals[FLAGS] = 0
        values = super().run(node, inputs)
        self.raised = int(self._signals[FLAGS])
        return values

    def _make(self, node):
        own = Apply(
            node.op,
            [v if isinstance(v, Constant) else v.type() for v in node.inputs],
            [v.type() for v in node.outputs],
        )
        variables = [v for v in own.inputs if not isinstance(v, Constant)]
        graph = FunctionGraph(variables, own.outputs, clone=False)
        flagged = self._code.compile_flagged(graph, takes_signals=False)
        given = [i for i, v in enumerate(own.inputs) if not isinstance(v, Constant)]

        def kernel(values):
            return list(flagged(*[values[i] for i in given], self._signals))

        return kernel


def _stepped_into(part):
    for node, parts in part.inner.items():
        yield node
        for inner in parts:
            yield from _stepped_into(inner)


class NumbaRuntime(Reporter):
    """The guard of one function that Numba compiles.

    Parameters
    ----------
    policy : Policy
    recorder : Recorder
    part : Part
    storage_map : dict of Variable to list
    compile : callable
        ``compile(reliance)`` returns the function that runs in every call, and how many values it
        reads; for None, one without signs.
    """

    def __init__(self, policy, recorder, part, storage_map, compile):
        super().__init__(policy, recorder, part.plan.fgraph)
        self.part = part
        self.plan = part.plan
        self._compile = compile
        code, flags = numba_code()
        self.may_use_flags = not policy.big and not policy.by_result and not policy.audit
        self.reliance = Reliance(
            flags=self.may_use_flags and flags.are_reliable(),
            products=flags.products_carry(),
            recording=Recording(),
            runs_in_python=code.runs_in_python,
        )
        self.run, self.n_read = compile(self.reliance)
        self.signals = np.zeros(N_SIGNALS, np.int64)
        self.counting = 0
        if self.reliance.flags:
            self.counting |= flags.INVALID if policy.nan else 0
            self.counting |= flags.DIVIDED | flags.OVERFLOWED if policy.inf else 0
        self.signals[COUNTING] = self.counting
        self.seen = memoryview(self.signals)  # NumPy takes longer to read one number
        self.cells = {v: storage_map[v] for v in self.fgraph.inputs}
        nodes = self.plan.nodes.values()
        destroyed = dict.fromkeys(v for node_plan in nodes for v in node_plan.destroys)
        self.overwritten = {v: self.cells[v] for v in destroyed}
        self.snapshots = {}
        self.of_action = None  # the error that an action has raised
        self.lists = [v for v in self.plan.inputs if is_list(v)]
        self.constants = self.plan.bad_constants if policy.anywhere else []
        self.every = policy.every
        self.kept = self.plan.kept
        self.checked = {}  # the values of these that are known to be clean
        records = any(code.runs_in_python(n.op) for plan in part.plans() for n in plan.order)
        prepared = (
            records,
            self.overwritten,
            self.lists,
            self.constants,
            self.kept,
            self.every > 1,
        )
        self.prepares = any(prepared)

    @cached_property
    def plain(self):
        """The function without signs, which takes the signals all the same."""
        return self._compile(None)[0]

    @cached_property
    def kernels(self):
        """What computes single nodes."""
        return NumbaKernels(self.part)

    def plans(self):
        """Return the plans of all graphs of the function."""
        return list(self.part.plans())

    def signs(self):
        """Return by which signs the function notices bad values, as text."""
        if self.counting:
            rely = "exception flags"
        elif self.may_use_flags:
            rely = "no exception flags, which are not reliable here"
        else:
            rely = "no exception flags"
        return f"{rely}; {self.n_read} values read in each call"

    def counters(self):
        """Return nothing: what is compiled with the function is not counted."""
        return {}

    # -- a call

    def begin(self):
        """Start a call of the function where there is something to do; return what runs it."""
        self.snapshots = {v: Snapshot(cell) for v, cell in self.overwritten.items()}
        self.reliance.recording.clear()
        if (self.calls - 1) % self.every:
            return self.plain
        entering = self.lists
        if self.kept:
            changed = [v for v in self.kept if self.checked.get(v) is not self.cells[v][0]]
            entering = [*entering, *changed]
        if self.constants or any(self.policy.is_bad(self.cells[v][0]) for v in entering):
            self.seen[FOUND] = 1
        return self.run

    def keep(self, results):
        """Remember the values of shared variables that are clean after a call."""
        for variable, output in self.kept.items():
            value = self.cells[variable][0] if output is None else results[output]
            self.checked[variable] = value

    def settle(self, results):
        """Look at a call again; report what is found, and return its results.

        Raises
        ------
        GuardError
        """
        cut = self.forget()
        values = self.values_before()
        self.report(values, results)
        if cut:  # it was stopped for a sign that meant nothing
            self.put_back()
            results = self.plain(*[cell[0] for cell in self.cells.values()], self.signals)
            self.forget()
        return results

    def forget(self):
        """Make the signals ready for the next call; return whether the call was cut short."""
        cut = bool(self.seen[CUT])
        self.seen[FOUND] = self.seen[FLAGS] = self.seen[CUT] = 0
        return cut

    def report(self, values, results):
        """Report what is bad in a call, in the order in which it was made.

        Parameters
        ----------
        values : dict of Variable to value
            Of the inputs, when the call began.
        results : sequence or None
            Of the call; None where it has not ended.

        Raises
        ------
        GuardError
        """
        judged = results is not None
        if judged and self.policy.by_result and not self.policy.is_spoiled(results):
            return
        second = self.second_run(values, judged)
        found = second.find()
        if judged and found.error is not None:
            logger.error(
                "theanoguard: the call could not be judged; please report this",
                exc_info=found.error,
            )
        observations = found.observations
        if not observations:
            observations = list(self.rounded_otherwise(second, results or ()))
        error = self.act(observations, values)
        if error is not None:
            raise error
        if not observations:
            self.learn(found)

    def second_run(self, values, judged=True):
        """Return a second run of a call from these values of its inputs.

        A call that has not ended is judged up to the first bad value: what follows could be harmed.
        """
        policy = self.policy
        by_result = policy.by_result and judged
        return SecondRun(
            self.fgraph,
            self.plan.order,
            values,
            policy if by_result else replace(policy, judge="node"),
            self.role,
            self.kernels,
            constants=self.plan.bad_constants,
            live=self.reliance.recording,
            graphs=self.part.graphs(),
            first_only=policy.action == "raise" and not by_result,
        )

    def rounded_otherwise(self, second, results):
        """Yield an observation of each result that is bad, and that a second run gives otherwise.

        What a second run gives as well was not made bad, or is left out.
        """
        for variable, value in zip(self.fgraph.outputs, results, strict=False):
            if self.policy.is_bad(value) and not self.policy.is_bad(second.replay.value(variable)):
                yield Observation.of(variable, value, self.policy)

    def act(self, observations, values):
        """Do what the policy says; return the error to be raised, or None."""
        position = {node: i for i, node in enumerate(self.plan.order)}

        def place(observation):  # where there are branches, the second run has an order of its own
            frames = observation.frames
            return position.get(frames[0].node if frames else observation.variable.owner, -1)

        try:
            return self.handle(sorted(observations, key=place), values, self.reliance.recording)
        except BaseException as raised:
            self.of_action = raised
            raise

    def learn(self, found):
        """Have the nodes whose flags meant nothing bracketed; rely on no flags if none is known."""
        if not self.counting:
            return
        quiet = self.reliance.quiet | found.loud
        if quiet == self.reliance.quiet:
            self.reliance = replace(self.reliance, flags=False)
            self.counting = self.seen[COUNTING] = 0
        else:
            self.reliance = replace(self.reliance, quiet=frozenset(quiet))
        self.run, self.n_read = self._compile(self.reliance)

    def values_before(self):
        """Return the values of the inputs as they were when the call began."""
        return {
            v: self.snapshots[v].old() if v in self.snapshots else cell[0]
            for v, cell in self.cells.items()
        }

    def put_back(self):
        """Give the random states the values that they had when the call began."""
        for snapshot in self.snapshots.values():
            snapshot()

    def stopped(self, error, raise_other):
        """Look at a call that has ended before a node that a bad value could harm.

        Returns
        -------
        tuple
            The results of the call, if nothing was wrong.
        """
        try:
            return self.settle(None)
        except BaseException as found:
            self.failed(found, raise_other)

    def failed(self, error, raise_other):
        """Put everything back and raise the error that the user sees.

        Parameters
        ----------
        error : BaseException
            What has ended the call.
        raise_other : callable
            Raises `error` if it is not the guard's.

        Raises
        ------
        BaseException
            `error`, or a :class:`GuardError` if it follows from a bad value.
        """
        values = self.values_before()
        self.put_back()
        self.forget()
        of_action, self.of_action = self.of_action, None
        if isinstance(error, GuardError):
            raise error from None
        if error is of_action:
            raise error
        if not isinstance(error, Exception) or type(error).__module__.startswith("numba."):
            raise_other(error)
        note = self.look_before(error, values)
        try:
            raise_other(error)
        except Exception as final:  # another object, if PyTensor adds to the message
            if note is not None:
                final.__notes__ = [note, *getattr(final, "__notes__", ())]
            raise

    def look_before(self, error, values):
        """Report what was bad before another error; return a note on where that was raised.

        Raises
        ------
        GuardError
        """
        second = self.second_run(values, judged=False)
        found = second.find()
        own = self.act(found.observations, values)
        if own is not None:
            raise own from None
        node = found.failed
        if node is None:
            return None
        operands = {v: second.replay.value(v) for v in node.inputs}
        return render_failure(explain_exception(error, self.fgraph, node, operands))


class NumbaVM:
    """Runs a function that Numba compiled under its guard.

    Parameters
    ----------
    guard : NumbaRuntime
    inputs, outputs : list of list
        Storage cells.
    raise_other : callable
        ``raise_other(error)`` raises an error of the function.
    """

    lazy = False

    def __init__(self, guard, inputs, outputs, raise_other):
        self.guard = guard
        self.jit_fn = guard.run
        self.inputs = inputs
        self.outputs = outputs
        self._raise_other = raise_other

    def __call__(self):
        guard = self.guard
        seen = guard.seen
        try:
            guard.calls += 1
            run = guard.begin() if guard.prepares else guard.run
            results = run(*[cell[0] for cell in self.inputs], guard.signals)
            if seen[FOUND] or seen[FLAGS]:
                if run is guard.run and (seen[FOUND] or seen[FLAGS] & guard.counting):
                    results = guard.settle(results)
                else:
                    guard.forget()
            elif guard.kept and run is guard.run:
                guard.keep(results)
        except Tripped as stopped:
            results = guard.stopped(stopped, self._raise_other)
        except BaseException as error:
            guard.failed(error, self._raise_other)
        for cell, value in zip(self.outputs, results or (), strict=True):
            cell[0] = value


class NumbaGuardLinker(GuardedLinker, NumbaLinker):
    """A ``NumbaLinker`` whose functions are guarded."""

    def guarded_vm(self, order, input_storage, storage_map, outputs, raise_other):
        code, _ = numba_code()
        fgraph = self.fgraph
        with watch_rewriting():
            part = plan_of(fgraph, order, self.policy, code.inner_graphs)

        def compiled(reliance):
            if reliance is None:
                graph = CheckedGraph(fgraph.inputs, fgraph.outputs, order)
                return code.compile_flagged(graph, takes_signals=False), 0
            graph, n_read = program_of(part, self.policy, reliance)
            return code.compile_flagged(graph, takes_signals=True), n_read

        guard = NumbaRuntime(self.policy, self.recorder, part, storage_map, compiled)
        inputs = [storage_map[v] for v in fgraph.inputs]
        return NumbaVM(guard, inputs, outputs, raise_other)
