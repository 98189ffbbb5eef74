"""A feature of the ``FunctionGraph`` that records where its nodes come from.

While rewriting runs it only appends to a list; everything else is worked out when it is asked.
"""

import re
from dataclasses import dataclass, field, replace
from typing import Any

from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.features import AlreadyThere, Feature
from pytensor.graph.rewriting.basic import GraphRewriter
from pytensor.tensor.elemwise import DimShuffle, Elemwise

from theanoguard._provenance.backward import Gradients, copy_of, gradient_frame
from theanoguard._provenance.designating import Designation, Designations, given_name, operation_of
from theanoguard._provenance.fused import fused_graph, mirror
from theanoguard._provenance.records import Backward, Provenance, RewriteStep
from theanoguard._provenance.source import forward_of, source_line, source_place, stack_traces
from theanoguard._pytensor.recording import thawed_variables

# The tag under which a variable of a compiled graph carries its way back to its tracker.  Tags
# are copied by every clone of a graph, which features are not.
ORIGIN = "theanoguard_origin"

_FROZEN_TRACKER = "_theanoguard_tracker"

_IMPORT, _CHANGE, _PRUNE = range(3)


class Origin:
    """The way from a variable back to its tracker; becomes the bare result when pickled."""

    __slots__ = ("tracker", "variable")

    def __init__(self, tracker, variable):
        self.tracker = tracker
        self.variable = variable

    def __reduce__(self):
        return _identity, (self.tracker.lookup(self.variable),)


def _identity(provenance):
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

    def __init__(self):
        self._forget()

    def _forget(self):
        self.original = {}
        self.original_outputs = []
        self._log = []
        self._read = 0
        self._links = {}
        self._made_for = {}
        self._pending = []
        self._pruned = []
        self._found = {}
        self._gradients = None

    # Handlers: as little as possible happens here.

    def on_attach(self, fgraph):
        if self._log or self.original:
            raise ValueError("A ProvenanceTracker serves one graph; make a new one.")
        if tracker_of(fgraph) is not None:
            raise AlreadyThere("The graph's provenance is being tracked.")
        self.original_outputs = list(fgraph.outputs)
        self.original = {node: tuple(node.inputs) for node in fgraph.apply_nodes}

    def on_import(self, fgraph, node, reason):
        self._log.append((_IMPORT, node, reason, None))

    def on_change_input(self, fgraph, node, i, old, new, reason=None):
        self._log.append((_CHANGE, old, reason, new))

    def on_prune(self, fgraph, node, reason):
        self._log.append((_PRUNE, node, reason, None))

    def clone(self):
        # The clone of a graph has other nodes; they find the way back by their tags.
        return type(self)()

    def __reduce__(self):
        # The log holds rewrites, which do not pickle, and the whole history of the graph.  The
        # variables carry their results along.
        return type(self), ()

    # Reading the log.

    def _update(self):
        log = self._log
        if self._read == len(log):
            return
        self._found.clear()
        for kind, thing, reason, new in log[self._read :]:
            if kind == _IMPORT:
                self._pending.append((thing, reason))
            elif kind == _PRUNE:
                self._pruned.append(thing)
            else:
                self._change(thing, new, reason)
        self._read = len(log)

    def _change(self, old, new, reason):
        pruned, self._pruned = self._pruned, []
        pending, self._pending = self._pending, []
        if isinstance(reason, tuple):
            # A failed try is undone: `new`, what was there before, comes back.
            self._links.get(old, {}).pop(new, None)
            return
        links = self._links.setdefault(new, {})
        link = links.get(old)
        if link is None:
            link = links[old] = _Link(reason, old)
        link.pruned += pruned
        for node, why in pending:
            if node not in self.original and why is reason:
                # The last try counts: an in-place rewrite proposes a node again and again.
                self._made_for[node] = link

    def _link(self, variable, seen):
        """The rewrite that made `variable`, None for a variable of the user's graph."""
        node = variable.owner
        if node is not None and node in self.original:
            return None
        for link in self._links.get(variable, {}).values():
            if link.old not in seen:
                return link
        link = self._made_for.get(node) if node is not None else None
        return link if link is not None and link.old not in seen else None

    def _walk_back(self, variable):
        """Follow the rewrites; return the steps as (reason, old) and the user's variable."""
        steps, seen = [], {variable}
        while (link := self._link(variable, seen)) is not None:
            variable = _counterpart(variable, link)
            seen.update((variable, link.old))
            steps.append((link.reason, variable))
        return steps, variable

    # Answering.

    def knows(self, variable):
        """Whether the tracker has seen this variable."""
        self._update()
        node = variable.owner
        return (
            variable in self._links
            or node in self.original
            or node in self._made_for
            or variable in self._found
        )

    def equals(self, variable):
        """The variables of the graph before rewriting whose value `variable` has.

        A rewrite that puts one variable in the place of another keeps the value, but for rounding;
        what was made on the way has none that it stands for.

        Parameters
        ----------
        variable : Variable

        Returns
        -------
        list of Variable
            That which was replaced last comes first.
        """
        self._update()
        seen, todo = {variable: None}, [variable]
        while todo:
            older = [v for v in self._links.get(todo.pop(), ()) if v not in seen]
            seen.update(dict.fromkeys(older))
            todo += older
        return [v for v in seen if v.owner is None or v.owner in self.original]

    def lookup(self, variable):
        """Provenance of a variable that is, or was at some time, in the graph.

        Parameters
        ----------
        variable : Variable

        Returns
        -------
        Provenance
        """
        self._update()
        found = self._found.get(variable)
        if found is None:
            found = self._found[variable] = self._work_out(variable)
        return found

    def _work_out(self, variable):
        steps, user = self._forward_way(variable)
        earlier = _earlier(user)
        if earlier is None:
            equals = self._nearest_equals(variable)
            chain = [user, *(old for _, old in reversed(steps)), variable]
            source, candidates = self._place(variable, equals, chain)
            backward = self._backward(user, source)
            # The frames of `grad` may have pushed the user's out of the stack trace.
            source = source or (backward and backward.grad_source)
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

    def _designations(self):
        if "designations" not in self._found:
            self._found["designations"] = Designations(self.original)
        return self._found["designations"]

    def _nearest_equals(self, variable):
        """The user's variables of the same value, those with the same operation first."""
        made = self._designations()
        found = dict.fromkeys(made.behind(v) for v in self.equals(variable))
        node = variable.owner
        if not found and node is not None:
            alone = self._stands_for(variable)
            inputs = self._operands(node.inputs)
            if len(alone) == 1 and operation_of(alone[0].owner.op) == operation_of(node.op):
                is_inner = alone[0].owner not in self.original
                if is_inner or self._operands(self._inputs(alone[0].owner)) == inputs:
                    return alone
        return sorted(found, key=lambda v: v.owner is None or node is None or v.owner.op != node.op)

    def _designation(self, variable, equals):
        """What the user calls a value: the best of what its equals are called."""
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

    def _place(self, variable, equals, chain):
        """The line of a value and, where it is not certain, all lines that it may be."""
        made = self._designations()
        # Of an operation that was moved (`exp(x)[0]` is `exp(x[0])`), the line of the operation.
        node, user = variable.owner, chain[0].owner
        moved = user is not None and node is not None
        moved = moved and operation_of(user.op) == operation_of(node.op)
        for v in [*(chain[:1] if moved else ()), *equals]:
            if not _made_by_grad(v) and (line := made.place(v)) is not None:
                return line, ()
        if not equals and variable.owner is not None:
            # A rewrite made it inside of what it replaces, which several lines may have built.
            places = (made.place(v) for v in self._stands_for(variable))
            lines = list(dict.fromkeys(line for line in places if line is not None))
            several = {(line.file, line.line): line for line in reversed(lines)}
            if len(several) == 1:
                one = lines[0] if len(lines) == 1 else replace(lines[0], marked=None, column=None)
                return one, ()
            if lines:
                return lines[0], tuple(reversed(several.values()))
        return next((line for v in chain if (line := made.place(v)) is not None), None), ()

    def _stands_for(self, variable):
        """The user's variables that one stands for which a rewrite made on the way.

        Those with its operation, and among these those with its operands, if there are any.
        """
        found = self._found.get(("stands for", variable))
        if found is not None:
            return found
        replaced = self._replaced(variable)
        operation = operation_of(variable.owner.op)
        same = [v for v in replaced if operation_of(v.owner.op) == operation]
        read = self._operands(variable.owner.inputs)
        exact = [v for v in same if self._operands(self._inputs(v.owner)) == read]
        found = self._found["stands for", variable] = exact or same or replaced
        return found

    def _inputs(self, node):
        return self.original.get(node, node.inputs)

    def _operands(self, variables):
        """What an operation reads, whatever its order, without what only makes operands fit."""
        found = []
        for v in variables:
            while v.owner is not None and isinstance(v.owner.op, DimShuffle):
                v = self._inputs(v.owner)[0]
            equal = self.equals(v)
            v = self._designations().behind(equal[0]) if equal else v
            found.append(v.signature() if isinstance(v, Constant) else v)
        return {id(v) if isinstance(v, Variable) else v for v in found}

    def _replaced(self, variable):
        """The user's variables between what a rewrite replaced and what the new node reads."""
        link = self._made_for.get(variable.owner)
        if link is None:
            return []
        inside, todo = set(), [variable]
        while todo:  # what is computed from the same rewrite's other nodes
            v = todo.pop()
            if v not in inside:
                inside.add(v)
                if v.owner is not None and v.owner not in self.original:
                    todo += v.owner.inputs
        read = {e for v in inside - {variable} for e in self.equals(v)}
        found, seen, todo = [], set(), self.equals(link.old) or [self._walk_back(link.old)[1]]
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

    def before(self):
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

    def costs(self):
        """The variables of the graph before rewriting that gradients were taken of."""
        return self._known_gradients().costs()

    def differentiated_by(self, node):
        """The output of the forward operation that a node made by ``grad`` belongs to, or None."""
        found = self._known_gradients().owner_of(node)
        return found and found[2]

    def _known_gradients(self):
        if self._gradients is None:
            self._gradients = Gradients(self.original, stack_traces)
        return self._gradients

    def replaced_by(self, node):
        """The nodes of the graph before rewriting that a node stands for.

        Parameters
        ----------
        node : Apply

        Returns
        -------
        list of Apply
            Keys of the second result of :meth:`before`; several for a fused node.
        """
        self._update()
        found, seen, todo = {}, set(), list(node.outputs)
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

    def _merges(self, variables):
        """The equal variables that were merged into one of these."""
        for i, v in enumerate(variables):
            for link in self._links.get(v, {}).values():
                if _reason_name(link.reason) == "MergeOptimizer":
                    yield i, link

    def _forward_way(self, variable):
        """The way back; to the forward graph where a node of it was merged with one of grad's.

        The pull-back of ``exp(x)`` builds ``exp(x)`` again, and either may be the one kept.
        """
        steps, user = self._walk_back(variable)
        if _made_by_grad(user):
            chain = [variable, *(old for _, old in steps)]
            for i, link in self._merges(chain):
                further, other = self._walk_back(link.old)
                if stack_traces(other) and not _made_by_grad(other):
                    return [*steps[:i], (link.reason, link.old), *further], other
        return steps, user

    def _merged(self, variable, user, source):
        """Lines of equal nodes that were merged into this one."""
        lines = {}
        for _, link in self._merges(dict.fromkeys((variable, user))):
            line = source_line(self._walk_back(link.old)[1])
            if line is not None and line != source:
                lines[line] = None
        return tuple(lines)

    def _nearest(self, variable, ask):
        """Answer of ``ask(v)`` for the nearest `v` in the user's graph, what is fed first."""
        if ask not in self._found:
            self._found[ask] = self._spread(ask)
        return self._found[ask].get(variable)

    def _spread(self, ask):
        """For every variable of the user's graph the answer of the nearest that has one."""
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

    def _original_clients(self):
        if "clients" not in self._found:
            clients = self._found["clients"] = {}
            for node, inputs in self.original.items():
                for v in inputs:
                    clients.setdefault(v, []).append(node)
        return self._found["clients"]

    def _backward(self, user, source):
        if user.owner is None:
            return None
        made_by_grad = _made_by_grad(user)
        if stack_traces(user) and not made_by_grad:
            return None
        known = user.owner in self.original and isinstance(user.owner, Apply)
        found = self._known_gradients().owner_of(user.owner) if known else None
        recorded = forward_of(user)
        if found is None:
            # Begun from given gradients, as by `Lop` or in the gradient of a loop.
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
        # (equal nodes of several forward nodes are one in the search above)
        differs = recorded is not None and source_line(recorded) != backward.forward_source
        return _recorded(backward, recorded) if differs else backward

    def _inner(self, node, steps):
        """Provenance of each node of the inner graph of a fused node."""
        fused = fused_graph(node)
        if fused is None or not steps:
            return ()
        links = {output: self._link(output, {output}) for output in node.outputs}
        # Several outputs are replaced one after the other: what an old node read from another
        # old node may by now be read from the new one.
        before = {}
        before.update({o: ((k.old, before), None) for o, k in links.items() if k is not None})
        pairs = {}
        for output, inner_output in zip(node.outputs, fused.outputs, strict=True):
            if links[output] is not None:
                mirror(inner_output, (links[output].old, before), pairs)
        own = {}
        fallback = None
        for inner_node in fused.toposort():
            outer = pairs.get(inner_node)
            if outer is None:
                # A rewrite of scalars changed the inner graph: all that is known is the whole.
                fallback = fallback or self.lookup(steps[0][1])
                own[inner_node] = replace(fallback, inner=(), op=str(inner_node.op))
            else:
                own[inner_node] = self._of_cursor(outer)
        # (a frozen graph of 3.0 may list a node twice)
        return tuple(own[inner_node] for inner_node in fused.toposort())

    def _of_cursor(self, cursor):
        holder, inner_node, variable = cursor
        if holder is None:
            return self.lookup(variable)
        nodes = list(fused_graph(holder).toposort())
        inner = self.lookup(holder.outputs[0]).inner
        return inner[nodes.index(inner_node)] if inner else self.lookup(holder.outputs[0])


def _inner_variables(op):
    """The variables that the body of an operation computes, with what is known of them."""
    graph = getattr(op, "fgraph", None)
    if graph is None or isinstance(op, Elemwise):
        return []
    known = thawed_variables(graph)
    computed = [v for node in graph.toposort() for v in node.outputs]
    inner = [known.get(v, v) for v in computed]
    return [*inner, *(v for c in computed for v in _inner_variables(c.owner.op))]


def _earlier(variable):
    """What an earlier tracker, or a pickle, left on a variable of the user's graph."""
    origin = getattr(variable.tag, ORIGIN, None)
    if isinstance(origin, Origin):
        return origin.tracker.lookup(origin.variable) if origin.variable is not variable else None
    return origin


def _counterpart(variable, link):
    """The variable before the rewrite that `variable` stands for.

    Where a rewrite moves an operation (``exp(x)[0]`` becomes ``exp(x[0])``), this is the
    output of the removed node with the same operation, not what was replaced as a whole.
    """
    node = variable.owner
    if node is None or link.old.owner is None or link.old.owner.op == node.op:
        return link.old
    same = [pruned for pruned in link.pruned if pruned.op == node.op]
    if len(same) == 1 and len(same[0].outputs) == len(node.outputs) and same[0] is not node:
        return same[0].outputs[variable.index]
    return link.old


_CLASS = re.compile(r"<class '(?:\w+\.)*(\w+)'>")


def _reason_name(reason):
    name = reason if isinstance(reason, str) else getattr(reason, "name", None)
    name = name or getattr(reason, "__name__", None)
    # Some rewrites are named after the representation of a class.
    return _CLASS.sub(r"\1", name) if isinstance(name, str) else type(reason).__name__


def _made_by_grad(variable):
    return gradient_frame(stack_traces(variable)) is not None


def _recorded(backward, forward):
    """A :class:`Backward` with the forward node that was recorded when the gradient was built."""
    place = source_place(forward)
    if place is None:
        return backward
    return replace(
        backward, forward=str(forward.op), forward_name=forward.name, forward_source=place
    )


def _gradient_line(variable):
    return source_line(variable) if _made_by_grad(variable) else None


def _given_name(variable):
    return None if isinstance(variable, Constant) else given_name(variable)


def _describe(variable):
    return str(variable.owner.op) if variable.owner is not None else str(variable)


# --------------------------------------------------------------------------------------
# Getting in


class TrackProvenance(GraphRewriter):
    """A rewriter that changes nothing and attaches a new tracker to each graph.

    Register it with a mode; it pickles with it.

    Examples
    --------
    >>> from pytensor.compile.mode import get_mode
    >>> mode = get_mode("CVM").register(TRACK_PROVENANCE)
    """

    def add_requirements(self, fgraph):
        attach(fgraph)

    def apply(self, fgraph):
        leave_origins(fgraph)


#: What ``Mode.register`` takes: after all other rewriting the nodes are tagged.
TRACK_PROVENANCE = (TrackProvenance(), 1e6)


def tracker_of(fgraph):
    """The tracker attached to a graph, None where there is none."""
    return next((f for f in fgraph._features if isinstance(f, ProvenanceTracker)), None)


def frozen_tracker(graph):
    """The tracker of a frozen graph that nothing has rewritten, and the stand-ins that it knows.

    Parameters
    ----------
    graph : FrozenFunctionGraph

    Returns
    -------
    ProvenanceTracker
    dict of Variable to Variable
        As of :func:`thawed_variables`.
    """
    found = getattr(graph, _FROZEN_TRACKER, None)
    if found is None:
        known, tracker = thawed_variables(graph), ProvenanceTracker()
        tracker.original = {
            node: tuple(known.get(v, v) for v in node.inputs) for node in graph.toposort()
        }
        tracker.original_outputs = [known.get(v, v) for v in graph.outputs]
        found = tracker, known
        setattr(graph, _FROZEN_TRACKER, found)
    return found


def attach(fgraph):
    """Attach a new tracker to a graph that has none yet."""
    if tracker_of(fgraph) is None:
        fgraph.attach_feature(ProvenanceTracker())


def leave_origins(fgraph):
    """Tag each computed variable with the way back to the tracker, so that clones find it.

    Constants are left alone: they are shared between graphs.
    """
    tracker = tracker_of(fgraph)
    if tracker is None:
        return
    computed = (output for node in fgraph.apply_nodes for output in node.outputs)
    for variable in (*fgraph.inputs, *computed):
        # What has not been rewritten this time leads to the tracker of an earlier time.
        is_new = variable.owner is not None and variable.owner not in tracker.original
        if is_new or not hasattr(variable.tag, ORIGIN):
            setattr(variable.tag, ORIGIN, Origin(tracker, variable))
