"""A feature of the ``FunctionGraph`` that records where its nodes come from.

While rewriting runs, the feature only appends to a list.  Everything else is computed on request.
"""

import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.features import AlreadyThere, Feature
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import HasInnerGraph, Op
from pytensor.graph.rewriting.basic import GraphRewriter
from pytensor.graph.traversal import ancestors, walk
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.shape import SpecifyShape

from theanoguard._provenance.backward import Gradients, copy_of, gradient_frame
from theanoguard._provenance.designating import (
    IMPLICIT,
    Designation,
    Designations,
    given_name,
    meaning,
    meant_names,
    operation_of,
)
from theanoguard._provenance.fused import fused_graph, mirror
from theanoguard._provenance.records import Backward, Provenance, RewriteStep
from theanoguard._provenance.source import (
    SourceLine,
    forward_of,
    source_line,
    source_place,
    stack_traces,
)
from theanoguard._pytensor import literals_of
from theanoguard._pytensor.labelled import is_labelled
from theanoguard._pytensor.recording import thawed_variables

# The tag that links a variable of a compiled graph to its tracker.  Cloning a graph copies the tags
# but not the features.
ORIGIN = "theanoguard_origin"

_FROZEN_TRACKER = "_theanoguard_tracker"

_IMPORT, _CHANGE, _PRUNE = range(3)


class Origin:
    """A link from a variable to its tracker; it is pickled as the variable's `Provenance`."""

    __slots__ = ("tracker", "variable")

    def __init__(self, tracker: "ProvenanceTracker", variable: Variable) -> None:
        self.tracker = tracker
        self.variable = variable

    def __reduce__(self) -> tuple:
        return _identity, (self.tracker.lookup(self.variable),)


def _identity(provenance: Provenance) -> Provenance:
    return provenance


@dataclass(eq=False)
class _Link:
    """`new` took the place of `old`, whose removal also removed `pruned`."""

    reason: Any
    old: Variable
    pruned: list[Apply] = field(default_factory=list)


class ProvenanceTracker(Feature):
    """Record where the nodes of a ``FunctionGraph`` come from while it is rewritten.

    Attach it before rewriting begins and leave it attached.  One tracker serves one graph.

    Examples
    --------
    >>> import pytensor
    >>> import pytensor.tensor as pt
    >>> from pytensor.graph.fg import FunctionGraph
    >>> from theanoguard._provenance import lookup
    >>> x = pt.vector("x")
    >>> fgraph = FunctionGraph([x], [pt.log(x)], clone=True)
    >>> fgraph.attach_feature(ProvenanceTracker())
    >>> _ = pytensor.compile.mode.get_mode("CVM").optimizer.rewrite(fgraph)
    >>> lookup(fgraph, fgraph.outputs[0]).op
    'Log'
    """

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self.original: dict[Apply, tuple[Variable, ...]] = {}
        self.original_inputs: list[Variable] = []
        self.original_outputs: list[Variable] = []
        self._meant: Mapping[str, str | None] = {}
        self._log: list[tuple] = []
        self._read = 0
        self._links: dict[Variable, dict[Variable, _Link]] = {}
        self._made_for: dict[Apply, _Link] = {}
        self._pending: list[tuple[Apply, Any]] = []
        self._pruned: list[Apply] = []
        self._found: dict[Any, Any] = {}
        self._gradients: Gradients | None = None
        self._overflowed: set[Variable] | None = None

    # Handlers.  They run during rewriting, so they do as little as possible.

    def on_attach(self, fgraph: FunctionGraph) -> None:
        if self._log or self.original:
            raise ValueError("A ProvenanceTracker serves one graph; make a new one.")
        if tracker_of(fgraph) is not None:
            raise AlreadyThere("The graph's provenance is being tracked.")
        self._begin(fgraph)
        self._meant = meant_names()

    def _begin(self, fgraph: FunctionGraph) -> None:
        self.original_inputs = list(fgraph.inputs)
        self.original_outputs = list(fgraph.outputs)
        self.original = {node: tuple(node.inputs) for node in fgraph.apply_nodes}

    def on_lowered(self, fgraph: FunctionGraph, made: Mapping[Apply, Variable | None]) -> None:
        """Take the graph of plain tensors that labelled arrays were lowered to as the user's.

        The operations of labelled arrays cannot be evaluated or differentiated.

        `made`: the nodes that the lowering made, which have the traces and names of what they were
        lowered from, and the variable that each computes, if it was in the graph before.
        """
        self._update()
        earlier, meant = type(self)(), self._meant
        earlier.__dict__.update(self.__dict__)
        for node in fgraph.apply_nodes.difference(self.original):
            for output in node.outputs:
                same = made.get(node, output)
                if same is not None and (same.owner not in self.original or same in self._links):
                    setattr(output.tag, ORIGIN, Origin(earlier, same))
        self._forget()
        self._begin(fgraph)
        self._meant = meant

    def on_import(self, fgraph: FunctionGraph, node: Apply, reason: Any) -> None:
        self._log.append((_IMPORT, node, reason, None))

    def on_change_input(
        self,
        fgraph: FunctionGraph,
        node: Apply,
        i: int,
        old: Variable,
        new: Variable,
        reason: Any = None,
    ) -> None:
        self._log.append((_CHANGE, old, reason, new))

    def on_prune(self, fgraph: FunctionGraph, node: Apply, reason: Any) -> None:
        self._log.append((_PRUNE, node, reason, None))

    def clone(self) -> "ProvenanceTracker":
        # The clone of a graph has other nodes.  Their tags link them to this tracker.
        return type(self)()

    def __reduce__(self) -> tuple:
        # The log cannot be pickled: it holds rewrites and the whole history of the graph.  The
        # tags of the variables keep their results (see `Origin`).
        return type(self), ()

    # Reading the log.

    def folded(self) -> list[Constant]:
        """Return the constants that constant folding has put in the place of what was computed."""
        changes = ((reason, new) for kind, _, reason, new in self._log if kind == _CHANGE)
        constants = ((reason, v) for reason, v in changes if isinstance(v, Constant))
        return list(dict.fromkeys(v for reason, v in constants if "fold" in str(reason)))

    def overflowed(self, fgraph: FunctionGraph) -> set[Variable]:
        """Return the infinite constants of the graph that are computed from finite ones.

        The outputs of a fused operation stand for the constants inside of it.
        """
        self._update()
        if self._overflowed is None:
            held = dict(_infinities_in(fgraph))
            written = set().union(*map(_infinities, self._written())) if held else set()
            self._overflowed = self._folded_to_infinity() & held.keys()
            self._overflowed |= {v for v, numbers in held.items() if not numbers <= written}
        return self._overflowed

    def _written(self) -> Iterator[Variable]:
        """Yield the inputs and constants of the graph before rewriting, and of graphs in it."""
        yield from self.original_outputs
        nodes = list(self.original)
        for node in nodes:
            yield from self.original.get(node, node.inputs)
            if isinstance(node.op, HasInnerGraph):
                yield from node.op.fgraph.outputs
                nodes += node.op.fgraph.apply_nodes

    def _folded_to_infinity(self) -> set[Constant]:
        found: set[Constant] = set()
        for constant in self.folded():  # (in the order in which they were made)
            if not _infinities(constant):
                continue
            leaves = [v for v in ancestors(self._links.get(constant, ())) if v.owner is None]
            if leaves and not any(_infinities(v) and v not in found for v in leaves):
                found.add(constant)
        return found

    def rewrites(self) -> list[str]:
        """Return the names of the rewrites that changed the graph, in the order of their first.

        Of a group of rewrites, which records nothing of its members, all members are returned.
        """
        reasons = (reason for kind, _, reason, _ in self._log if kind == _CHANGE)
        single = (r for r in reasons if not isinstance(r, tuple))
        names = [_reason_name(each) for r in single for each in getattr(r, "rewrites", (r,))]
        return list(dict.fromkeys(names))

    def _update(self) -> None:
        log = self._log
        if self._read == len(log):
            return
        self._found.clear()
        self._overflowed = None
        for kind, thing, reason, new in log[self._read :]:
            if kind == _IMPORT:
                self._pending.append((thing, reason))
            elif kind == _PRUNE:
                self._pruned.append(thing)
            else:
                self._change(thing, new, reason)
        self._read = len(log)

    def _change(self, old: Variable, new: Variable, reason: Any) -> None:
        pruned, self._pruned = self._pruned, []
        pending, self._pending = self._pending, []
        if isinstance(reason, tuple):
            # A failed replacement is undone: the variable before it, `new`, comes back.
            for undone in (old, *_specified(old)):
                self._links.get(undone, {}).pop(new, None)
            return
        links = self._links.setdefault(new, {})
        link = links.get(old)
        if link is None:
            link = links[old] = _Link(reason, old)
        for same in _specified(new):  # (one of the outputs of a node that was made for all of them)
            self._links.setdefault(same, {})[old] = link
        link.pruned += pruned
        for node, why in pending:
            if node not in self.original and why is reason:
                # Keep the last proposal: an in-place rewrite proposes a node several times.
                self._made_for[node] = link

    def _link(self, variable: Variable, seen: Container[Variable]) -> _Link | None:
        """The rewrite that made `variable`, None for a variable of the user's graph."""
        node = variable.owner
        if node is not None and node in self.original:
            return None
        for link in self._links.get(variable, {}).values():
            if link.old not in seen:
                return link
        made = self._made_for.get(node) if node is not None else None
        if made is None:
            return None
        link = made
        together = () if link.old.owner is None else link.old.owner.outputs
        if 1 < len(together) == len(node.outputs):  # `new` reads one output of the node's
            link = replace(link, old=together[variable.index])
        return None if link.old in seen else link

    def _walk_back(self, variable: Variable) -> tuple[list[tuple[Any, Variable]], Variable]:
        """Follow the rewrites backwards; return (reason, old) steps and the user's variable."""
        steps, seen = [], {variable}
        while (link := self._link(variable, seen)) is not None:
            variable = _counterpart(variable, link)
            seen.update((variable, link.old))
            steps.append((link.reason, variable))
        return steps, variable

    # Answering.

    def knows(self, variable: Variable) -> bool:
        """Whether the tracker has seen this variable."""
        self._update()
        node = variable.owner
        return (
            variable in self._links
            or node in self.original
            or node in self._made_for
            or variable in self._found
        )

    def equals(self, variable: Variable) -> list[Variable]:
        """The variables of the graph before rewriting whose value `variable` has.

        A rewrite that replaces one variable by another keeps its value, except for rounding.  An
        intermediate variable that a rewrite made has no equal in the graph before rewriting.

        The variable that was replaced last comes first.
        """
        self._update()
        seen, todo = {variable: None}, [variable]
        while todo:
            newer = todo.pop()
            older = [*self._links.get(newer, ()), *_specified(newer)]
            older = [v for v in older if v not in seen]
            seen.update(dict.fromkeys(older))
            todo += older
        return [v for v in seen if v.owner is None or v.owner in self.original]

    def lookup(self, variable: Variable) -> Provenance:
        """Provenance of a variable that is, or was at some time, in the graph."""
        self._update()
        found = self._found.get(variable)
        if found is None:
            with meaning(self._meant):
                found = self._found[variable] = self._work_out(variable)
        return found

    def _work_out(self, variable: Variable) -> Provenance:
        steps, user = self._forward_way(variable)
        earlier = _earlier(user)
        if earlier is None:
            equals = self._nearest_equals(variable)
            chain = [user, *(old for _, old in reversed(steps)), variable]
            source, candidates = self._place(variable, equals, chain)
            backward = self._backward(user, source)
            # The frames of `grad` may have pushed the user's frames out of the stack trace.
            if source is None and backward is not None:
                source = backward.grad_source
            known = self._designation(variable, equals)
            earlier = Provenance(
                source=source or self._nearest(user, source_line),
                own_source=source is not None and not candidates,
                name=known.name or self._nearest(user, _given_name),
                own_name=known.name is not None,
                expression=known.expression,
                operands=known.operands,
                ndim=known.ndim,
                candidates=candidates,
                op=str(user.owner.op) if user.owner else None,
                backward=backward,
            )
        history = tuple(
            RewriteStep(_reason_name(reason), _describe(old), old.name, source_line(old))
            for reason, old in steps
        )
        return replace(
            earlier,
            history=history + earlier.history,
            merged=self._merged(variable, user, earlier.source) + earlier.merged,
            inner=self._inner(variable.owner, steps) or (earlier.inner if not steps else ()),
        )

    def _designations(self) -> Designations:
        if "designations" not in self._found:
            self._found["designations"] = Designations(self.original, self.original_inputs)
        return self._found["designations"]

    def _nearest_equals(self, variable: Variable) -> list[Variable]:
        """The user's variables of the same value, those with the same operation first."""
        made = self._designations()
        found = dict.fromkeys(made.behind(v) for v in self.equals(variable))
        node = variable.owner
        if not found and node is not None:
            alone = self._stands_for(variable)
            inputs = self._operands(node.inputs)
            if len(alone) == 1 and operation_of(alone[0].owner.op) == operation_of(node.op):
                is_inner = alone[0].owner not in self.original
                if is_inner or self._operands(self.inputs_of(alone[0].owner)) == inputs:
                    return alone
        return sorted(found, key=lambda v: v.owner is None or node is None or v.owner.op != node.op)

    def _designation(self, variable: Variable, equals: Iterable[Variable]) -> Designation:
        """The user's name and expression of a value, from the first equal that has one."""
        known = []
        for v in equals:
            earlier = _earlier(v)
            if earlier is None:
                known.append(self._designations().of(v))
            else:
                name = earlier.name if earlier.own_name else None
                known.append(Designation(name, earlier.expression, earlier.operands, earlier.ndim))
        given = given_name(variable)
        if given is not None:
            known.insert(0, Designation(given, ndim=getattr(variable.type, "ndim", None)))
        named = next((k for k in known if k.name), Designation())
        written = next((k for k in known if k.expression), Designation())
        ndim = named.ndim if named.name else written.ndim
        return Designation(named.name, written.expression, written.operands, ndim)

    def _place(
        self, variable: Variable, equals: Sequence[Variable], chain: Sequence[Variable]
    ) -> tuple[SourceLine | None, tuple[SourceLine, ...]]:
        """The line of a value and, if the line is not certain, all possible lines."""
        made = self._designations()
        # A rewrite may move an operation: `exp(x)[0]` becomes `exp(x[0])`.  Then the line of the
        # operation is wanted, not the line of the whole expression.
        node, user = variable.owner, chain[0].owner
        moved = user is not None and node is not None
        moved = moved and operation_of(user.op) == operation_of(node.op)
        for v in [*(chain[:1] if moved else ()), *equals]:
            if not _made_by_grad(v) and (line := made.place(v)) is not None:
                return line, ()
        if not equals and variable.owner is not None:
            # A rewrite made it as an intermediate step.  Several lines may have built the
            # expression that the rewrite replaced.
            places = (made.place(v) for v in self._stands_for(variable))
            lines = list(dict.fromkeys(line for line in places if line is not None))
            several = {(line.file, line.line): line for line in reversed(lines)}
            if len(several) == 1:
                one = lines[0] if len(lines) == 1 else replace(lines[0], marked=None, column=None)
                return one, ()
            if lines:
                return lines[0], tuple(reversed(several.values()))
        return next((line for v in chain if (line := made.place(v)) is not None), None), ()

    def _stands_for(self, variable: Variable) -> list[Variable]:
        """The user's variables that an intermediate variable of a rewrite may correspond to.

        Variables with the same operation and operands are preferred, then variables with the same
        operation.  If there are none, all variables that the rewrite replaced are returned.
        """
        found = self._found.get(("stands for", variable))
        if found is not None:
            return found
        replaced = self._replaced(variable)
        operation = operation_of(variable.owner.op)
        same = [v for v in replaced if operation_of(v.owner.op) == operation]
        read = self._operands(variable.owner.inputs)
        exact = [v for v in same if self._operands(self.inputs_of(v.owner)) == read]
        found = self._found["stands for", variable] = exact or same or replaced
        return found

    def inputs_of(self, node: Apply) -> Sequence[Variable]:
        """The inputs that a node had before rewriting."""
        return self.original.get(node, node.inputs)

    def _operands(self, variables: Iterable[Variable]) -> set:
        """The operands of an operation as a set, without what broadcasts them."""
        found = []
        for v in variables:
            while v.owner is not None and isinstance(v.owner.op, IMPLICIT):
                v = self.inputs_of(v.owner)[0]
            equal = self.equals(v)
            v = self._designations().behind(equal[0]) if equal else v
            found.append(v.signature() if isinstance(v, Constant) else v)
        return {id(v) if isinstance(v, Variable) else v for v in found}

    def _replaced(self, variable: Variable) -> list[Variable]:
        """The user's variables between what a rewrite replaced and what the new node reads."""
        link = self._made_for.get(variable.owner)
        if link is None:
            return []

        def by_rewrite(v: Variable) -> list[Variable]:
            """The operands of what a rewrite made."""
            return [] if v.owner is None or v.owner in self.original else v.owner.inputs

        inside = set(walk([variable], by_rewrite))
        read = {e for v in inside - {variable} for e in self.equals(v)}
        found: list[Variable] = []
        seen: set[Apply] = set()
        todo = self.equals(link.old) or [self._walk_back(link.old)[1]]
        if any(map(_made_by_grad, todo)):
            return []
        while todo:
            v = todo.pop()
            node = v.owner
            if v in read or node not in self.original or node in seen or len(seen) > 200:
                continue
            seen.add(node)
            found += [v, *_inner_variables(node.op)]
            todo += self.original[node]
        return [v for v in found if not _made_by_grad(v)]

    def before(self) -> tuple[list[Variable], dict[Apply, Apply]]:
        """The graph as it was before it was rewritten.

        Returns
        -------
        outputs : list of Variable
            Its outputs, computed by copies of its nodes.
        copies : dict of Apply to Apply
            The copy of each of its nodes.
        """
        copies, _ = copy_of(self.original)
        outputs = [
            v if v.owner is None else copies[v.owner].outputs[v.index]
            for v in self.original_outputs
        ]
        return outputs, copies

    def behind(self, variable: Variable) -> Variable:
        """The variable that was reshaped into this one for a broadcast, else the variable."""
        return self._designations().behind(variable)

    def costs(self) -> list[Variable]:
        """The variables of the graph before rewriting that were differentiated."""
        return self._known_gradients().costs()

    def differentiated_by(self, node: Apply) -> Variable | None:
        """The output of the forward operation that a node made by ``grad`` belongs to, or None."""
        found = self._known_gradients().owner_of(node)
        return found and found[2]

    def _known_gradients(self) -> Gradients:
        if self._gradients is None:
            self._gradients = Gradients(self.original, stack_traces)
        return self._gradients

    def replaced_by(self, node: Apply) -> list[Apply]:
        """The nodes of the graph before rewriting that a node replaces.

        They are keys of the second result of :meth:`before`, several for a fused node.
        """
        self._update()
        found: dict[Apply, None] = {}
        seen: set[Variable] = set()
        todo = list(node.outputs)
        while todo:
            v = todo.pop()
            if v in seen:
                continue
            seen.add(v)
            if v.owner in self.original:
                found[v.owner] = None
                continue
            links = [*self._links.get(v, {}).values(), self._made_for.get(v.owner)]
            for link in filter(None, links):
                todo += [link.old, *(o for pruned in link.pruned for o in pruned.outputs)]
        return list(found)

    def _merges(self, variables: Iterable[Variable]) -> Iterator[tuple[int, _Link]]:
        """The merges of an equal variable into one of these, as (position, link)."""
        for i, v in enumerate(variables):
            for link in self._links.get(v, {}).values():
                if _reason_name(link.reason) == "MergeOptimizer":
                    yield i, link

    def _forward_way(self, variable: Variable) -> tuple[list[tuple[Any, Variable]], Variable]:
        """Follow the rewrites backwards as `_walk_back` does, but prefer the forward graph.

        The pull-back of ``exp(x)`` builds ``exp(x)`` again.  PyTensor merges the two nodes and
        keeps either of them.
        """
        steps, user = self._walk_back(variable)
        if _made_by_grad(user):
            chain = [variable, *(old for _, old in steps)]
            for i, link in self._merges(chain):
                further, other = self._walk_back(link.old)
                if stack_traces(other) and not _made_by_grad(other):
                    return [*steps[:i], (link.reason, link.old), *further], other
        return steps, user

    def _merged(
        self, variable: Variable, user: Variable, source: SourceLine | None
    ) -> tuple[SourceLine, ...]:
        """Lines of equal nodes that were merged into this one."""
        lines: dict[SourceLine, None] = {}
        for _, link in self._merges(dict.fromkeys((variable, user))):
            line = source_line(self._walk_back(link.old)[1])
            if line is not None and line != source:
                lines[line] = None
        return tuple(lines)

    def _nearest(self, variable: Variable, ask: Callable[[Variable], Any]) -> Any:
        """The result of ``ask(v)`` for the nearest `v` of the user's graph that has one.

        If several are equally near, a variable that is computed from `variable` comes first.
        """
        if ask not in self._found:
            self._found[ask] = self._spread(ask)
        return self._found[ask].get(variable)

    def _spread(self, ask: Callable[[Variable], Any]) -> dict[Variable, Any]:
        """Map each variable of the user's graph to the nearest result of `ask`."""
        clients = self._original_clients()
        everything = dict.fromkeys((*clients, *(o for n in self.original for o in n.outputs)))
        answers = {v: answer for v in everything if (answer := ask(v)) is not None}
        level = list(answers)
        while level:
            following = []
            # A tie goes to the variable that is computed from this one.
            for reach in (
                lambda v: self.original.get(v.owner, ()),
                lambda v: [o for node in clients.get(v, ()) for o in node.outputs],
            ):
                for v in level:
                    for near in reach(v):
                        if near not in answers:
                            answers[near] = answers[v]
                            following.append(near)
            level = following
        return answers

    def _original_clients(self) -> dict[Variable, list[Apply]]:
        if "clients" not in self._found:
            clients = self._found["clients"] = {}
            for node, inputs in self.original.items():
                for v in inputs:
                    clients.setdefault(v, []).append(node)
        return self._found["clients"]

    def _backward(self, user: Variable, source: SourceLine | None) -> Backward | None:
        if user.owner is None:
            return None
        made_by_grad = _made_by_grad(user)
        if stack_traces(user) and not made_by_grad:
            return None
        known = user.owner in self.original and isinstance(user.owner, Apply)
        found = self._known_gradients().owner_of(user.owner) if known else None
        recorded = forward_of(user)
        if found is None:
            # There is no cost: `Lop` and the gradient of a loop begin with given gradients.
            line = source or self._nearest(user, _gradient_line)
            if not made_by_grad:
                return None
            nothing = Backward(None, None, None, None, line)
            return nothing if recorded is None else _recorded(nothing, recorded)
        cost, seed, forward = found
        backward = Backward(
            cost=self._designations().of(cost).name or _describe(cost),
            forward=str(forward.owner.op) if forward is not None and forward.owner else None,
            forward_name=self._designations().of(forward).name if forward is not None else None,
            forward_source=self._designations().place(forward) if forward is not None else None,
            grad_source=source_line(seed),
        )
        # (if equal nodes belong to several forward nodes, the search above finds only one)
        differs = recorded is not None and source_line(recorded) != backward.forward_source
        return _recorded(backward, recorded) if differs else backward

    def _inner(
        self, node: Apply | None, steps: Sequence[tuple[Any, Variable]]
    ) -> tuple[Provenance, ...]:
        """Provenance of each node of the inner graph of a fused node."""
        fused = fused_graph(node)
        if node is None or fused is None or not steps:
            return ()
        links = {output: self._link(output, {output}) for output in node.outputs}
        # The outputs are replaced one after the other.  An old node that read another old node may
        # now read the new one.
        before: dict[Variable, tuple] = {}
        before.update({o: ((k.old, before), None) for o, k in links.items() if k is not None})
        pairs: dict[Apply, tuple] = {}
        for output, inner_output in zip(node.outputs, fused.outputs, strict=True):
            if (link := links[output]) is not None:
                mirror(inner_output, (link.old, before), pairs)
        own = {}
        for inner_node in fused.toposort():
            outer = pairs.get(inner_node)
            if outer is None:
                # A rewrite of scalars changed the inner graph.
                own[inner_node] = self._of_unmatched(inner_node, node, fused, links, steps)
            else:
                own[inner_node] = self._of_cursor(outer)
        # (a frozen graph of 3.0 may list a node twice)
        return tuple(own[inner_node] for inner_node in fused.toposort())

    def _of_unmatched(
        self,
        inner_node: Apply,
        node: Apply,
        fused: FunctionGraph,
        links: Mapping[Variable, _Link | None],
        steps: Sequence[tuple[Any, Variable]],
    ) -> Provenance:
        """Provenance of the output of a fused node to which an unmatched inner node contributes.

        If the node has several outputs, neither the line nor a name is certain.
        """
        old = steps[0][1]
        for output, inner_output in zip(node.outputs, fused.outputs, strict=True):
            nodes = (v.owner for v in ancestors([inner_output]))
            if (link := links[output]) is not None and inner_node in nodes:
                old = link.old
                break
        found = replace(self.lookup(old), inner=(), op=str(inner_node.op))
        if len(node.outputs) == 1:
            return found
        return replace(found, own_source=False, own_name=False, expression=None, operands=())

    def _of_cursor(self, cursor: tuple) -> Provenance:
        holder, inner_node, variable = cursor
        if holder is None:
            return self.lookup(variable)
        graph = fused_graph(holder)
        assert graph is not None  # the holder is a fused node
        nodes = list(graph.toposort())
        inner = self.lookup(holder.outputs[0]).inner
        return inner[nodes.index(inner_node)] if inner else self.lookup(holder.outputs[0])


def _inner_variables(op: Op) -> list[Variable]:
    """The variables that the inner graph of an operation computes, if they have a record."""
    graph = getattr(op, "fgraph", None)
    if graph is None or isinstance(op, Elemwise):
        return []
    known = thawed_variables(graph)
    computed = [v for node in graph.toposort() for v in node.outputs]
    inner = [known.get(v, v) for v in computed]
    return [*inner, *(v for c in computed for v in _inner_variables(c.owner.op))]


def _earlier(variable: Variable) -> Provenance | None:
    """The provenance that an earlier tracker, or a pickle, left on a variable."""
    origin = getattr(variable.tag, ORIGIN, None)
    if isinstance(origin, Origin):
        if origin.variable is variable:
            return None
        origin = origin.tracker.lookup(origin.variable)
    if origin is not None and is_labelled(variable):
        return replace(origin, op=_describe(variable))
    return origin


def _specified(variable: Variable) -> list[Variable]:
    """A list of the variable whose shape is stated, if ``specify_shape`` made `variable`."""
    node = variable.owner
    return node.inputs[:1] if node is not None and isinstance(node.op, SpecifyShape) else []


def _counterpart(variable: Variable, link: _Link) -> Variable:
    """The variable before a rewrite that corresponds to `variable`.

    If a rewrite moves an operation (``exp(x)[0]`` becomes ``exp(x[0])``), this is the output of
    the removed node with the same operation, not the whole expression that was replaced.  The same
    holds for ``specify_shape(exp(x), 3)``, of which ``exp(x)`` may stay in the graph.
    """
    node, old = variable.owner, link.old.owner
    if node is None or old is None or old.op == node.op:
        return link.old
    candidates = dict.fromkeys((*link.pruned, *(v.owner for v in _specified(link.old))))
    same = [n for n in candidates if n is not None and n.op == node.op]
    if len(same) == 1 and len(same[0].outputs) == len(node.outputs) and same[0] is not node:
        return same[0].outputs[variable.index]
    return link.old


_CLASS = re.compile(r"<class '(?:\w+\.)*(\w+)'>")


def _reason_name(reason: Any) -> str:
    name = reason if isinstance(reason, str) else getattr(reason, "name", None)
    name = name or getattr(reason, "__name__", None)
    # The name of some rewrites is the repr of a class.
    return _CLASS.sub(r"\1", name) if isinstance(name, str) else type(reason).__name__


def _made_by_grad(variable: Variable) -> bool:
    return gradient_frame(stack_traces(variable)) is not None


def _recorded(backward: Backward, forward: Any) -> Backward:
    """A copy of `backward` with the forward node recorded when the gradient was built."""
    place = source_place(forward)
    if place is None:
        return backward
    return replace(
        backward, forward=str(forward.op), forward_name=forward.name, forward_source=place
    )


def _gradient_line(variable: Variable) -> SourceLine | None:
    return source_line(variable) if _made_by_grad(variable) else None


def _given_name(variable: Variable) -> str | None:
    return None if isinstance(variable, Constant) else given_name(variable)


def _describe(variable: Variable) -> str:
    return str(variable.owner.op) if variable.owner is not None else str(variable)


# --------------------------------------------------------------------------------------
# Attaching the tracker


class TrackProvenance(GraphRewriter):
    """A rewriter that changes nothing and attaches a new tracker to each graph.

    Register it with a mode.  It is pickled together with the mode.

    Examples
    --------
    >>> from pytensor.compile.mode import get_mode
    >>> mode = get_mode("CVM").register(TRACK_PROVENANCE)
    """

    def add_requirements(self, fgraph: FunctionGraph) -> None:
        attach(fgraph)

    def apply(self, fgraph: FunctionGraph) -> None:
        leave_origins(fgraph)


#: The argument for ``Mode.register``.  The high position tags the nodes after all other rewriting.
TRACK_PROVENANCE = (TrackProvenance(), 1e6)


def tracker_of(fgraph: FunctionGraph) -> ProvenanceTracker | None:
    """The tracker attached to a graph, or None."""
    return next((f for f in fgraph._features if isinstance(f, ProvenanceTracker)), None)


def overflowed(fgraph: FunctionGraph) -> set[Variable]:
    """Return what `ProvenanceTracker.overflowed` does; nothing for a graph without a tracker."""
    tracker = tracker_of(fgraph)
    return set() if tracker is None else tracker.overflowed(fgraph)


def _stand_in_for(
    node: Apply, inputs: Sequence[Variable], known: Mapping[Variable, Variable]
) -> Apply:
    """Return a node like one of a frozen graph, between the stand-ins of its variables."""
    if not all(v in known for v in node.outputs):
        return node
    outputs = [known[v] for v in node.outputs]
    for output in outputs:
        output.owner = None  # (a node takes only outputs that no other node has)
    return Apply(node.op, inputs, outputs)


def _infinities(variable: Variable) -> set[float]:
    """Return the infinite numbers that a constant has."""
    data = np.asarray(variable.data if isinstance(variable, Constant) else 0)
    return set(data[np.isinf(data)].real.tolist()) if data.dtype.kind in "fc" else set()


def _infinities_in(fgraph: FunctionGraph) -> Iterator[tuple[Variable, set[float]]]:
    """Yield the constants, and the outputs of fused operations, that have infinite numbers."""
    for variable in fgraph.variables:
        constants: Iterable[Variable] = [variable]
        if variable.owner is not None and isinstance(variable.owner.op, Elemwise):
            constants = literals_of(variable.owner.op.scalar_op)
        if held := set().union(*map(_infinities, constants)):
            yield variable, held


def frozen_tracker(graph: Any) -> tuple[ProvenanceTracker, dict[Variable, Variable]]:
    """A tracker for a frozen graph that no rewrite has changed, and its stand-in variables.

    Returns
    -------
    ProvenanceTracker
    dict of Variable to Variable
        The result of :func:`thawed_variables`.
    """
    found = getattr(graph, _FROZEN_TRACKER, None)
    if found is None:
        known, tracker = thawed_variables(graph), ProvenanceTracker()
        for node in graph.toposort():
            inputs = tuple(known.get(v, v) for v in node.inputs)
            tracker.original[_stand_in_for(node, inputs, known)] = inputs
        tracker.original_inputs = [known.get(v, v) for v in graph.inputs]
        tracker.original_outputs = [known.get(v, v) for v in graph.outputs]
        found = tracker, known
        setattr(graph, _FROZEN_TRACKER, found)
    return found


def attach(fgraph: FunctionGraph) -> None:
    """Attach a new tracker to a graph that has none yet."""
    if tracker_of(fgraph) is None:
        fgraph.attach_feature(ProvenanceTracker())


def leave_origins(fgraph: FunctionGraph) -> None:
    """Tag each computed variable with a link to the tracker, so that clones find it.

    Of the constants, which graphs share, only those get a tag that constant folding has made.
    """
    tracker = tracker_of(fgraph)
    if tracker is None:
        return
    computed = (output for node in fgraph.apply_nodes for output in node.outputs)
    for variable in (*fgraph.inputs, *computed, *tracker.folded()):
        # A variable that was not rewritten this time keeps the link to its earlier tracker.
        is_new = variable.owner is not None and variable.owner not in tracker.original
        if is_new or not hasattr(variable.tag, ORIGIN):
            setattr(variable.tag, ORIGIN, Origin(tracker, variable))
