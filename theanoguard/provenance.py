"""Where a node came from: the user's source line, and the chain of rewrites that made it.

A :class:`ProvenanceTracker` is a feature of the ``FunctionGraph``.  While rewriting runs it
only appends to a list; everything else is worked out after the fact, when
:func:`lookup` is asked.
"""

import linecache
import re
import sys
import sysconfig
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytensor
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.features import Feature
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import GraphRewriter
from pytensor.scalar.basic import Composite
from pytensor.tensor.elemwise import CAReduce, Elemwise

from theanoguard._backward import Gradients, gradient_frame
from theanoguard._pytensor import frozen_graph_class, fused_elemwise_class

# The tag under which a variable of a compiled graph carries its way back to its tracker.  Tags
# are copied by every clone of a graph, which features are not.
_TAG = "theanoguard_origin"

# Frames kept per variable inside `track_provenance`; PyTensor's own limit of 8 may be used up
# by the frames of `grad`.
_TRACE_LIMIT = 48


# --------------------------------------------------------------------------------------
# Source lines


@dataclass(frozen=True)
class SourceLine:
    """A line of the user's code.

    Parameters
    ----------
    file : str
        File name as Python knows it.
    line : int
        Line number, from 1.
    function : str
        Name of the function that was running; ``"<module>"`` at top level.
    text : str
        The source text of the line, stripped; empty where it cannot be found.
    cell : int or None
        In a notebook, the number of the cell.

    Examples
    --------
    >>> print(SourceLine("train.py", 7, "loss", "return pt.log(p)"))
    train.py:7 in loss: return pt.log(p)
    >>> print(SourceLine("<ipython-input-3-a1b2>", 2, "<module>", "y = pt.log(x)", cell=3))
    cell 3, line 2: y = pt.log(x)
    """

    file: str
    line: int
    function: str
    text: str
    cell: int | None = None

    def __str__(self):
        where = (
            f"{self.file}:{self.line}"
            if self.cell is None
            else f"cell {self.cell}, line {self.line}"
        )
        if self.function != "<module>":
            where += f" in {self.function}"
        return f"{where}: {self.text}" if self.text else where


def _library_prefixes():
    """Directories whose frames are never the user's line."""
    packages = [Path(pytensor.__file__).parent, Path(__file__).parent]
    prefixes = {str(form) + "/" for p in packages for form in (p, p.resolve())}
    return tuple(prefix.replace("\\", "/") for prefix in prefixes)


_LIBRARY = _library_prefixes()
# functools' dispatch and contextlib stand between PyTensor's own frames.
_STDLIB = tuple({sysconfig.get_path(k).replace("\\", "/") + "/" for k in ("stdlib", "platstdlib")})
_SITE = ("site-packages/", "dist-packages/")


def is_user_file(file):
    """Whether `file` is neither PyTensor's, theanoguard's nor the standard library's.

    Parameters
    ----------
    file : str
        File name of a frame.

    Returns
    -------
    bool

    Examples
    --------
    >>> is_user_file("/home/me/theanoguard/model.py"), is_user_file(pytensor.__file__)
    (True, False)
    """
    file = file.replace("\\", "/")
    if file.startswith(_LIBRARY) or file.startswith("<frozen "):
        return False
    for prefix in _STDLIB:
        if file.startswith(prefix):
            return file[len(prefix) :].startswith(_SITE)
    return True


_OLD_CELL = re.compile(r"<ipython-input-(\d+)-")


def _notebook_cell(file):
    """Number of the notebook cell that `file` stands for, None for an ordinary file."""
    old = _OLD_CELL.match(file)
    if old:
        return int(old.group(1))
    if "ipykernel_" not in file:
        return None
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    numbers = getattr(getattr(shell, "compile", None), "_filename_map", {})
    return numbers.get(file)


def stack_traces(variable):
    """The stack traces that PyTensor left on a variable, each outermost frame first.

    Parameters
    ----------
    variable : Variable

    Returns
    -------
    list of list of (file, line, function, text)
        Empty where PyTensor left none; more than one where a rewrite joined several.
    """
    trace = getattr(variable.tag, "trace", None) or []
    return [trace] if trace and isinstance(trace[0], tuple) else [t for t in trace if t]


def source_line(variable):
    """The innermost line of the user's code in the stack traces of a variable.

    Parameters
    ----------
    variable : Variable

    Returns
    -------
    SourceLine or None
        None where no stack trace is left, or none of its frames is the user's.
    """
    for trace in stack_traces(variable):
        for file, line, function, text in reversed(trace):
            if is_user_file(file):
                text = text or linecache.getline(file, line)
                return SourceLine(file, line, function, text.strip(), _notebook_cell(file))
    return None


# --------------------------------------------------------------------------------------
# What is known of one variable


@dataclass(frozen=True)
class RewriteStep:
    """One rewrite on the way back from a compiled node to the user's node.

    Parameters
    ----------
    reason : str
        Name of the rewrite.
    op : str
        The operation that was there before, or the variable where there was none.
    name : str or None
        Name of the variable that was there before.
    source : SourceLine or None
        The user's line on the stack trace of that variable, where it had one.
    """

    reason: str
    op: str
    name: str | None
    source: SourceLine | None

    def __str__(self):
        return f"{self.reason} <- {self.op}"


@dataclass(frozen=True)
class Backward:
    """What a node made by ``grad`` belongs to.

    Parameters
    ----------
    cost : str or None
        Name of the cost, or its operation where it has no name; None where it is not known.
    forward : str or None
        Operation of the forward node that this node differentiates; None if it only sums up
        the gradient by an input of the graph, or if the forward node could not be found.
    forward_name : str or None
        Name of the forward node's output, or of that input.
    forward_source : SourceLine or None
        The user's line of the forward node or of that input.
    grad_source : SourceLine or None
        The user's line that called ``grad``.
    """

    cost: str | None
    forward: str | None
    forward_name: str | None
    forward_source: SourceLine | None
    grad_source: SourceLine | None


@dataclass(frozen=True)
class Provenance:
    """Where a variable of a compiled graph came from.

    Parameters
    ----------
    source : SourceLine or None
        The user's line that made the node from which this one was rewritten.  For a node made
        by ``grad`` the line that called it.
    own_source : bool
        Whether `source` is the line of that very node or, as PyTensor left no stack trace on
        it, that of its nearest neighbour in the user's graph.
    name : str or None
        Name of the variable, or of the nearest variable of the user's graph that has one.
    own_name : bool
        Whether `name` is the name of this variable or only of the nearest one.
    op : str or None
        The operation of the user's node; None for an input or a constant.
    history : tuple of RewriteStep
        The rewrites, latest first.
    merged : tuple of SourceLine
        Further lines of the user whose equal nodes were merged into this one.
    inner : tuple of Provenance
        For a fused node (``Composite``, and 3.3's ``FusedElemwise``), one for each node of its
        inner graph, in the order of the graph's ``toposort()``.
    backward : Backward or None
        None for a node of the forward graph.
    """

    source: SourceLine | None
    own_source: bool = True
    name: str | None = None
    own_name: bool = False
    op: str | None = None
    history: tuple[RewriteStep, ...] = ()
    merged: tuple[SourceLine, ...] = ()
    inner: tuple["Provenance", ...] = ()
    backward: Backward | None = None


# --------------------------------------------------------------------------------------
# Recording

_IMPORT, _CHANGE, _PRUNE = range(3)


class _Origin:
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
    >>> import pytensor.tensor as pt
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
            chain = [user, *(old for _, old in reversed(steps)), variable]
            source = next((s for v in chain if (s := source_line(v)) is not None), None)
            name, own_name = self._name(variable, chain)
            backward = self._backward(user, source)
            # The frames of `grad` may have pushed the user's out of the stack trace.
            source = source or (backward and backward.grad_source)
            earlier = Provenance(
                source=source or self._nearest(user, source_line),
                own_source=source is not None,
                name=name,
                own_name=own_name,
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

    def _name(self, variable, chain):
        for v in (variable, *chain):
            if v.name is not None:
                return v.name, True
        return self._nearest(chain[0], _given_name), False

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
        if self._gradients is None:
            self._gradients = Gradients(self.original, self.original_outputs, stack_traces)
        found = self._gradients.owner_of(user.owner) if user.owner in self.original else None
        if found is None:
            # Begun from given gradients, as by `Lop`, not from a cost.
            line = source or self._nearest(user, _gradient_line)
            return Backward(None, None, None, None, line) if made_by_grad else None
        cost, seed, forward = found
        return Backward(
            cost=cost.name or _describe(cost),
            forward=str(forward.owner.op) if forward is not None and forward.owner else None,
            forward_name=forward.name if forward is not None else None,
            forward_source=source_line(forward) if forward is not None else None,
            grad_source=source_line(seed),
        )

    def _inner(self, node, steps):
        """Provenance of each node of the inner graph of a fused node."""
        fused = _fused_graph(node)
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
                _mirror(inner_output, (links[output].old, before), pairs)
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
        return tuple(own.values())

    def _of_cursor(self, cursor):
        holder, inner_node, variable = cursor
        if holder is None:
            return self.lookup(variable)
        nodes = list(_composite(holder).fgraph.toposort())
        inner = self.lookup(holder.outputs[0]).inner
        return inner[nodes.index(inner_node)] if inner else self.lookup(holder.outputs[0])


def _earlier(variable):
    """What an earlier tracker, or a pickle, left on a variable of the user's graph."""
    origin = getattr(variable.tag, _TAG, None)
    if isinstance(origin, _Origin):
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


def _gradient_line(variable):
    return source_line(variable) if _made_by_grad(variable) else None


def _given_name(variable):
    return None if isinstance(variable, Constant) else variable.name


def _describe(variable):
    return str(variable.owner.op) if variable.owner is not None else str(variable)


def _composite(node):
    """The Composite that a node computes or reduces with, None for any other node."""
    op = getattr(node.op, "scalar_op", node.op) if node is not None else None
    return op if isinstance(op, Composite) else None


def _fused_graph(node):
    """The inner graph of a node that was fused from several, None for any other node."""
    composite = _composite(node)
    if composite is not None:
        return composite.fgraph
    fused = fused_elemwise_class is not None and node is not None
    return node.op.fgraph if fused and isinstance(node.op, fused_elemwise_class) else None


def _mirror(inner, cursor, pairs):
    """Pair the nodes of a fused node's inner graph with those it was fused from.

    A cursor is (variable, environment): inside an older Composite the environment says what
    its inner inputs stand for.  `pairs` receives ``inner node -> (holder, node, variable)``,
    where `holder` is the node of the older Composite or None.
    """
    todo = [(inner, cursor, None)]
    while todo:
        inner, (variable, env), holder = todo.pop()
        while True:
            if variable in env:
                (variable, env), holder = env[variable]
                continue
            composite = _composite(variable.owner)
            if composite is None or inner.owner is None or isinstance(variable.owner.op, CAReduce):
                break
            if inner.owner.op == variable.owner.op:
                break
            node = variable.owner
            entered = {
                i: ((o, env), holder)
                for i, o in zip(composite.fgraph.inputs, node.inputs, strict=True)
            }
            holder = node if holder is None else holder
            variable, env = composite.fgraph.outputs[variable.index], entered
        if inner.owner is None or variable.owner is None or inner.owner in pairs:
            continue
        op = variable.owner.op
        scalar_op = op.scalar_op if isinstance(op, Elemwise | CAReduce) else None
        if inner.owner.op not in (op, scalar_op):
            continue
        pairs[inner.owner] = (holder, variable.owner if holder else None, variable)
        # What a reduction has gathered so far comes first, and was no variable before.
        gathers = isinstance(op, CAReduce) and inner.owner.op == scalar_op
        inputs = inner.owner.inputs[gathers:]
        for i, o in zip(inputs, variable.owner.inputs, strict=True):
            todo.append((i, (o, env), holder))


# --------------------------------------------------------------------------------------
# Getting in


class TrackProvenance(GraphRewriter):
    """A rewriter that changes nothing and attaches a new tracker to each graph.

    Register it with a mode; it pickles with it.

    Examples
    --------
    >>> mode = pytensor.compile.mode.get_mode("CVM").register(TRACK_PROVENANCE)
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
    for node in fgraph.apply_nodes:
        for output in node.outputs:
            setattr(output.tag, _TAG, _Origin(tracker, output))


def _tracked_rewrite(rewrite):
    def tracked(self, fgraph, *args, **kwargs):
        if tracker_of(fgraph) is not None:
            return rewrite(self, fgraph, *args, **kwargs)
        attach(fgraph)
        result = rewrite(self, fgraph, *args, **kwargs)
        leave_origins(fgraph)
        return result

    return tracked


# Where a frozen inner graph keeps the tags of the variables it was frozen from: per output
# variable of its nodes in topological order, (name, tag).
_FROZEN_TAGS = "_theanoguard_tags"


def _tagged_freeze(freeze):
    def frozen(cls, inputs, outputs, toposort, dedup_nodes):
        toposort = list(toposort)
        graph = freeze.__func__(cls, inputs, outputs, toposort, dedup_nodes)
        tags = [(v.name, copy(v.tag)) for node in toposort for v in node.outputs]
        setattr(graph, _FROZEN_TAGS, tags)
        return graph

    return classmethod(frozen)


def _tagged_bind(bind):
    def bound(self, replace, *, return_memo=False):
        outputs, memo = bind(self, replace, return_memo=True)
        for frozen, (name, tag) in _frozen_tags(self).items():
            thawed = memo[frozen]
            thawed.name = thawed.name or name
            thawed.tag = copy(tag)
        return (outputs, memo) if return_memo else outputs

    return bound


def _frozen_tags(graph):
    """Map the variables of a frozen graph to (name, tag) of those they were frozen from."""
    variables = [v for node in graph.toposort() for v in node.outputs]
    tags = getattr(graph, _FROZEN_TAGS, ())
    return dict(zip(variables, tags, strict=True)) if tags else {}


# (class, method, wrapper): what is replaced while provenance is tracked.
_PATCHES = [(GraphRewriter, "rewrite", _tracked_rewrite)]
if frozen_graph_class is not None:
    _PATCHES += [
        (frozen_graph_class, "_freeze", _tagged_freeze),
        (frozen_graph_class, "bind", _tagged_bind),
    ]
_lock = threading.Lock()
_undo = []
_users = 0


def _patch():
    global _users
    with _lock:
        _users += 1
        if _users > 1:
            return
        for owner, name, wrapper in _PATCHES:
            own = vars(owner).get(name)
            _undo.append((owner, name, own))
            setattr(owner, name, wrapper(own or getattr(owner, name)))


def _unpatch():
    global _users
    with _lock:
        _users -= 1
        while not _users and _undo:
            owner, name, own = _undo.pop()
            if own is None:
                delattr(owner, name)
            else:
                setattr(owner, name, own)


@contextmanager
def track_provenance():
    """Track the provenance of every function that is compiled inside, under any mode.

    A graph that is *built* inside also keeps longer stack traces, so that a gradient through a
    deep graph keeps the user's line, and, in PyTensor 3.3, the lines inside of a ``Scan`` or
    an ``OpFromGraph``, which are otherwise lost as soon as it is built.

    While it is active, in any thread, three methods of PyTensor are replaced
    (``GraphRewriter.rewrite`` and, in 3.3, how inner graphs are frozen and
    thawed); on leaving the outermost one they are put back.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> x = pt.vector("x")
    >>> with track_provenance():
    ...     f = pytensor.function([x], pt.log(x), mode="CVM")
    >>> provenance(f)[f.maker.fgraph.outputs[0]].op
    'Log'
    """
    limit = pytensor.config.traceback__limit
    longer = limit if limit < 0 else max(limit, _TRACE_LIMIT)
    _patch()
    try:
        with pytensor.config.change_flags(traceback__limit=longer):
            yield
    finally:
        _unpatch()


# --------------------------------------------------------------------------------------
# Asking


def lookup(fgraph, variable):
    """Provenance of a variable of a compiled graph.

    Parameters
    ----------
    fgraph : FunctionGraph
        The graph; without a tracker (a copy of a function, an inner graph) the variable's own
        tags are read.
    variable : Variable or Apply
        A variable of the graph, or a node, which stands for its first output.

    Returns
    -------
    Provenance
        Without a record, what PyTensor's own stack trace tells.
    """
    if not isinstance(variable, Variable):
        variable = variable.outputs[0]
    tracker = tracker_of(fgraph) if isinstance(fgraph, FunctionGraph) else None
    if tracker is not None and tracker.knows(variable):
        return tracker.lookup(variable)
    if frozen_graph_class is not None and isinstance(fgraph, frozen_graph_class):
        variable = _thawed(fgraph, variable)
    origin = getattr(variable.tag, _TAG, None)
    if isinstance(origin, _Origin):
        return origin.tracker.lookup(origin.variable)
    if isinstance(origin, Provenance):
        return origin
    # An empty tracker knows only what stands on the variable itself.
    return (tracker or ProvenanceTracker()).lookup(variable)


def _thawed(graph, variable):
    """A stand-in for a variable of a frozen graph, with the name and the tags it once had."""
    if (kept := _frozen_tags(graph).get(variable)) is None:
        return variable
    stand_in = variable.type.make_variable(kept[0])
    stand_in.owner, stand_in.index, stand_in.tag = variable.owner, variable.index, kept[1]
    return stand_in


def lookup_inner(op, fgraph, variable):
    """Provenance of a variable of the linked inner graph of an op.

    In PyTensor 3.3 the graph that is linked is thawed from the op's frozen one, and only the
    latter remembers anything.

    Parameters
    ----------
    op : Op
        An op with an inner graph, ``op.fgraph``.
    fgraph : FunctionGraph
        The graph that was linked for it.
    variable : Variable or Apply
        A variable or node of `fgraph`.

    Returns
    -------
    Provenance
    """
    if not isinstance(variable, Variable):
        variable = variable.outputs[0]
    found = lookup(fgraph, variable)
    if found.source is not None or fgraph is op.fgraph:
        return found
    seen = set()
    todo = list(zip(fgraph.outputs, op.fgraph.outputs, strict=False))
    while todo:
        linked, held = todo.pop()
        if linked is variable:
            return lookup(op.fgraph, held)
        same = linked.owner and held.owner and linked.owner.op == held.owner.op
        if same and linked.owner not in seen:
            seen.add(linked.owner)
            todo += zip(linked.owner.outputs, held.owner.outputs, strict=True)
            todo += zip(linked.owner.inputs, held.owner.inputs, strict=True)
    return found


class ProvenanceMap(Mapping):
    """Provenance of every node and variable of one graph, worked out when asked for.

    Parameters
    ----------
    fgraph : FunctionGraph
    """

    def __init__(self, fgraph):
        self.fgraph = fgraph

    def __getitem__(self, key):
        if key not in self.fgraph.variables and key not in self.fgraph.apply_nodes:
            raise KeyError(f"{key} is not in the compiled graph")
        return lookup(self.fgraph, key)

    def __iter__(self) -> Iterator[Variable | Apply]:
        for node in self.fgraph.toposort():
            yield node
            yield from node.outputs
        yield from (v for v in self.fgraph.variables if v.owner is None)

    def __len__(self):
        return len(self.fgraph.variables) + len(self.fgraph.apply_nodes)


def provenance(fn):
    """Where the nodes of a compiled function come from.

    Parameters
    ----------
    fn : Function or FunctionGraph
        A function compiled inside :func:`track_provenance` or under a guard.  For any other,
        what PyTensor's own stack traces tell.

    Returns
    -------
    ProvenanceMap
        A mapping from each node and each variable of the compiled graph to its
        :class:`Provenance`.

    Raises
    ------
    TypeError
        If `fn` is neither.
    """
    fgraph = fn if isinstance(fn, FunctionGraph) else getattr(fn, "maker", None)
    if fgraph is not None and not isinstance(fgraph, FunctionGraph):
        fgraph = fgraph.fgraph
    if fgraph is None:
        raise TypeError(
            f"provenance() takes a compiled function or a FunctionGraph, not {type(fn).__name__}.\n"
            "Compile it with pytensor.function inside `with theanoguard.track_provenance():`."
        )
    return ProvenanceMap(fgraph)
