"""The graph that the guard makes of a function for JAX and PyTorch.

Functions of these backends are pure, so a check can neither write anywhere nor stop the call.
Instead the graph, and the body of each loop, gets one more output: a number that says whether the
call is suspicious.  It reads as few values as possible (:mod:`theanoguard.guard.carry`).
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain

import pytensor.tensor as pt
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.graph.traversal import toposort
from pytensor.tensor.random.type import RandomType

from theanoguard._pytensor import Scan, increment_ops, is_numeric, with_flag
from theanoguard.guard.carry import expected_infinities, watch_points
from theanoguard.guard.discarded import conditions, where_it_counts
from theanoguard.guard.graph.checks import CheckedGraph
from theanoguard.guard.graph.masks import is_mask, masks_in, may_select
from theanoguard.guard.graph.ops import FLAG, Flag, Gather, NoMarks, Watched, mark_of
from theanoguard.guard.graph.plan import FlaggedPlan
from theanoguard.guard.plan import GraphPlan, has_elements
from theanoguard.guard.policy import Policy
from theanoguard.operations import Kind, carries, holds_nonfinite
from theanoguard.operations.domains import ParameterDomain, domains_of, parameters_of


def is_shape_alone(fgraph: FunctionGraph, variable: Variable) -> bool:
    """Whether an input is only used as the length of arrays, so that it is not an array for JAX."""
    readers = [node for node, _ in fgraph.clients[variable]] if variable.owner is None else []
    return bool(readers) and all(type(n.op).__name__ == "JAXShapeTuple" for n in readers)


def judged_node(fgraph: FunctionGraph, variable: Variable) -> Apply | None:
    """Return the node to judge for a bad value here; None where every bad element counts."""
    node = variable.owner
    if node is None or any(is_shape_alone(fgraph, v) for v in node.inputs):
        return None
    return node


def is_shared_random(variable: Variable) -> bool:
    return isinstance(variable, SharedVariable) and isinstance(variable.type, RandomType)


def rename_shared_random(fgraph: FunctionGraph, new: dict[Variable, Variable]) -> None:
    """Replace shared random states in the graph: PyTensor's linker replaces them by copies."""
    for variable in fgraph.inputs:
        if is_shared_random(variable):
            new[variable] = variable.type(variable.name)


def out_of_domain(domain: ParameterDomain, parameters: Sequence[Variable]) -> Variable:
    """Return the flag of a parameter of a random variable: 1 where it is out of its domain."""
    value = parameters[domain.parameter]
    if domain.less is not None:
        value = pt.sub(value, parameters[domain.less])
    return pt.cast(pt.any(domain.outside(value)), FLAG.dtype)


# ---------------------------------------------------------------- whether it was bad


def following(plan: GraphPlan, variables: Iterable[Variable]) -> set[Variable]:
    """Return these variables of a graph and all that is computed from them."""
    found = set(variables)
    for node in plan.order:
        if not found.isdisjoint(node.inputs):
            found.update(filter(holds_nonfinite, node.outputs))
    return found


class FlaggedGraph(CheckedGraph):
    """A graph whose last output is its flag, or the body of a loop that ends with its marks.

    - `marked`: gives the values that are marked in a step of the loop.
    - `is_flagged`: whether anything is read.
    """

    def __init__(
        self,
        inputs: Sequence[Variable],
        outputs: Sequence[Variable],
        order: list[Apply],
        marked: CheckedGraph | None,
        is_flagged: bool,
    ) -> None:
        super().__init__(inputs, outputs, order)
        self.marked = marked
        self.is_flagged = is_flagged


class FlagWriter:
    """Writes the graph of a function with a flag.

    - `on_purpose`: values that were bad in a call that turned out to be healthy.  There only what
      the node itself makes is looked for.  None reads nothing at all.
    - `n_read`: how many values are read, those of inner graphs included.
    """

    def __init__(
        self,
        plan: FlaggedPlan,
        policy: Policy,
        on_purpose: Collection[Variable] | None = frozenset(),
    ) -> None:
        self.policy = policy
        self.on_purpose = frozenset(on_purpose or ())
        self.n_read = 0
        self._minds_parameters = on_purpose is not None
        judged = self.policy.by_result
        if on_purpose is None:
            self.graph = self._written(plan, {}, steps_inside=False)
        elif judged and not on_purpose:
            self.graph = self._written(plan, {}, whole=True, steps_inside=False)
        else:
            entering = [v for v in plan.inputs if v not in plan.kept and has_elements(v)]
            entering = [v for v in entering if not is_shape_alone(plan.fgraph, v)]
            infinite = self._infinite(plan)
            masks = masks_in(plan.order)
            points = self._points(plan, infinite, masks, entering)
            self.graph = self._written(plan, points, infinite, masks, whole=judged)

    def _infinite(self, plan: FlaggedPlan, entering: Collection[Variable] = ()) -> set[Variable]:
        """Return which variables of a graph may hold an Inf that is not an error."""
        if Kind.INF not in self.policy.looked_for:
            return {*plan.fgraph.inputs, *(v for node in plan.order for v in node.outputs)}
        found = expected_infinities(plan.order, entering)
        return found | following(plan, self.on_purpose) | set(entering)

    def _points(
        self,
        plan: FlaggedPlan,
        infinite: set[Variable],
        masks: Collection[Variable],
        entering: Collection[Variable] = (),
    ) -> dict[Variable, Watched]:
        """Return what to read in a graph: a dict of variables to :class:`Watched`."""
        policy, asked = self.policy, self.policy.looked_for
        sources = dict.fromkeys(entering, asked)
        made = plan.made(infinite)
        sources.update((v, kind & asked) for v, kind in made.items() if kind & asked)
        checked = [v for node in plan.order for _, v in plan.nodes[node].checked()]
        checked = list(filter(has_elements, checked))
        if policy.anywhere:
            sources.update(dict.fromkeys(checked, asked))
        # By any other rule an output is big only if an operand is.
        large = [v for v in checked if plan.dropped.get(v) in (None, "branch")]
        large = [*entering, *large] if policy.big else []
        own = {v for v in (*sources, *large) if v in self.on_purpose and v.owner is not None}
        whole = {v: Watched(asked, big=True) for v in large if v not in own}
        tainted = following(plan, self.on_purpose)
        discarded = conditions(plan.fgraph, plan.order)

        def carried(node: Apply, operand: int) -> dict[int, Kind]:
            if isinstance(node.op, increment_ops) and operand > 0:
                return {}  # JAX drops what would be written out of bounds
            if may_select(node, masks):
                return {}
            found = carries(node, operand)
            hidden = tainted | discarded.keys()
            return {o: kind for o, kind in found.items() if node.outputs[o] not in hidden}

        found = watch_points(
            plan.order,
            {v: kind for v, kind in sources.items() if v not in own and v not in whole},
            carries=carried,
            infinite=infinite | tainted if Kind.INF in asked else (),
        )
        points = {v: Watched(kind) for v, kind in found.items()} | whole
        for v in own:
            points[v] = Watched(asked, policy.big, judged_node(plan.fgraph, v), v.index or 0)
        return points

    def _written_inside(
        self,
        plan: FlaggedPlan,
        around: Apply,
        infinite: Collection[Variable],
        masks: Collection[Variable],
    ) -> FlaggedGraph:
        """Return the inner graph of a node with its flag or marks."""
        may_enter = any(v in infinite for v in around.inputs)
        inside = self._infinite(plan, plan.fgraph.inputs if may_enter else ())
        may_enter = any(is_mask(v, masks) for v in around.inputs)
        masks = masks_in(plan.order, plan.fgraph.inputs if may_enter else ())
        loop = around.op if isinstance(around.op, Scan) else None
        return self._written(plan, self._points(plan, inside, masks), inside, masks, scan=loop)

    def _written(
        self,
        plan: FlaggedPlan,
        points: Mapping[Variable, Watched],
        infinite: Collection[Variable] = (),
        masks: Collection[Variable] = (),
        whole: bool = False,
        scan: Op | None = None,
        steps_inside: bool = True,
    ) -> FlaggedGraph:
        """Return a graph with its flag; the body of `scan` with its marks instead.

        With `whole`, the flag is raised only if an output is bad as well.  Without `steps_inside`,
        inner graphs stay as they are.
        """
        order, flags = [], []
        fgraph = plan.fgraph
        new = {variable: variable for variable in fgraph.inputs}
        rename_shared_random(fgraph, new)
        inputs = [new[v] for v in fgraph.inputs]

        def get(variable: Variable) -> Variable:
            return variable if isinstance(variable, Constant) else new[variable]

        def append(node: Apply) -> list[Variable]:
            order.append(node)
            return node.outputs

        for node in plan.order:
            op, given, more = node.op, [get(v) for v in node.inputs], []
            loop = op if isinstance(op, Scan) else None
            inside = plan.inner.get(node, ()) if steps_inside else ()
            bodies = [self._written_inside(body, node, infinite, masks) for body in inside]
            if any(body.is_flagged for body in bodies):
                if loop is None:
                    op, more = with_flag(op, bodies), [FLAG()]
                else:
                    [body] = bodies
                    assert body.marked is not None  # it is flagged
                    marks = append(NoMarks(loop, body.marked).make_node(*given))
                    op = with_flag(op, bodies, len(marks))
                    at = len(given) - loop.info.n_non_seqs - loop.info.n_nit_sot
                    given[at:at] = marks
                    more = [v.type() for v in marks]
            outputs = append(Apply(op, given, [*(v.clone() for v in node.outputs), *more]))
            new.update(zip(node.outputs, outputs, strict=False))
            flags += outputs[len(node.outputs) :]
            if self._minds_parameters:
                parameters = [get(v) for v in parameters_of(node, node.inputs)]
                found = [out_of_domain(domain, parameters) for domain in domains_of(node)]
                order.extend(toposort(found, blockers=new.values()))
                flags += found
        self.n_read += len(points)
        results = [get(v) for v in fgraph.outputs]
        is_flagged = bool(points or flags or whole)
        discarded = conditions(fgraph, plan.order) if points else {}

        def reading(variable: Variable, what: Watched) -> list[Variable]:
            _, *operands = what.reads(variable)
            value = get(variable)
            if variable in discarded:
                value = where_it_counts(variable, discarded[variable], get)
                order.extend(toposort([value], blockers=new.values()))
            return [value, *map(get, operands)]

        watched = [*points.values(), *[Watched()] * len(flags)]
        read = [reading(variable, what) for variable, what in points.items()]
        read += [[flag] for flag in flags]
        marked = None
        if scan is None:
            flag = append(Flag(self.policy, tuple(watched)).make_node(*chain(*read)))
            if whole:
                flag = self._and_whole(results, flag if points or flags else [], append)
            results += flag
        elif is_flagged:
            marked = CheckedGraph(list(inputs), [first for first, *_ in read], list(order))
            before = [mark_of(first) for first, *_ in read]
            gather = Gather(self.policy, tuple(watched)).make_node(*chain(*read), *before)
            results += append(gather)
            at = len(inputs) - scan.info.n_non_seqs
            inputs[at:at] = before
        return FlaggedGraph(inputs, results, order, marked, is_flagged)

    def _and_whole(
        self,
        results: Iterable[Variable],
        flag: list[Variable],
        append: Callable[[Apply], list[Variable]],
    ) -> list[Variable]:
        """Return a flag that is raised where one of the results is bad and `flag` is raised."""
        what = Watched(self.policy.looked_for, self.policy.big)
        looked_at = [v for v in results if has_elements(v) and is_numeric(v.type)]
        self.n_read += len(looked_at)
        op = Flag(self.policy, (what,) * len(looked_at))
        [is_bad] = append(op.make_node(*looked_at))
        return append(pt.bitwise_and(is_bad, *flag).owner) if flag else [is_bad]
