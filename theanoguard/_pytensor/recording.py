"""Records facts that PyTensor does not record while a graph is built.

PyTensor leaves a stack trace on each variable: file, line, function and text of eight frames.
:func:`install` replaces the function that takes it, and, in PyTensor 3.3, the two that freeze and
thaw inner graphs:

- an entry of a trace is equal to PyTensor's, and also knows the instruction that was running, from
  which the column and the expression are found when they are asked for;
- a trace knows the user's frames beyond the eight, how many were taken before it, and, of a node
  that ``grad`` builds, which forward node it asks for its pull-back, or whose gradient it adds up;
- a node that is vectorized, or built again for inputs of other types, keeps its trace;
- the nodes that an operation on labelled arrays is lowered to get its trace and its name;
- a frozen inner graph keeps the names and traces of the variables that it was frozen from;
- an error on an argument of a function gets a note with the name and line of the input;
- an error on a graph gets a note with the line of the variable (:mod:`.graph_errors`);
- a trace knows what the names near the user's line meant when that line ran (:mod:`.bindings`).

This module can be loaded while the package that it belongs to is still being loaded.

Nothing else changes: PyTensor builds and computes what it does without.
"""

import itertools
import linecache
import logging
import sys
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from functools import wraps
from types import CodeType, FrameType, SimpleNamespace
from typing import Any

from pytensor import gradient
from pytensor.compile.executor import Function
from pytensor.compile.ops import TypeCastingOp
from pytensor.graph import fg, utils
from pytensor.graph import replace as graph_replace
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.features import Feature
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.graph.rewriting.basic import EquilibriumGraphRewriter
from pytensor.scalar import basic as scalar

from theanoguard._patching import Patch, apply
from theanoguard._pytensor import graph_errors
from theanoguard._pytensor.bindings import Bindings, Bound, Path, Ref
from theanoguard._pytensor.files import is_own_file, is_untraced, keep_source
from theanoguard._pytensor.labelled import LABELLED, LOWERING
from theanoguard._releases import has, has_local

logger = logging.getLogger("theanoguard")

MAX_CALLERS = 3  # how many of the user's frames a trace holds at least, if there are as many

_MAX_DEPTH = 64  # frames beyond PyTensor's limit that are looked at for them

_MAX_INSIDE = 16
"""How many of PyTensor's frames are inside of the user's line at most; a rewrite has more."""


_GRADIENT_FILE = gradient.__file__
_SCALAR_FILE = scalar.__file__


class Entry(tuple):
    """An entry of a stack trace, ``(file, line, function, text)``, that knows its instruction.

    A copy or a pickle of it is a plain tuple.
    """

    code: CodeType
    lasti: int
    is_gradients: bool
    reads: tuple[Path, ...] | None = None

    def __new__(cls, code: CodeType, lasti: int, line: int, text: str | None) -> "Entry":
        self = super().__new__(cls, (code.co_filename, line, code.co_name, text))
        self.code = code
        self.lasti = lasti
        self.is_gradients = code.co_filename == _GRADIENT_FILE
        return self

    def __reduce__(self) -> tuple:
        return tuple, (tuple(self),)

    def __deepcopy__(self, memo: object) -> "Entry":
        return self


class Forward:
    """The forward variable whose gradient ``grad`` was building.

    Like a variable it has a ``name`` and a ``tag`` with a trace, but it does not keep the graph.

    - `variable`: the first output of the node that ``grad`` was asking for its pull-back, or what
      it was adding gradients up of.
    - `is_summed`: whether it is the latter.
    """

    def __init__(self, variable: Variable, is_summed: bool = False) -> None:
        self.op = variable.owner and variable.owner.op
        self.name = variable.name
        self.tag = SimpleNamespace(trace=getattr(variable.tag, "trace", None))
        self.is_summed = is_summed


_FORWARD = "the forward operation of a gradient, without building the gradient again"
_reads_grad = hasattr(gradient, "_populate_grad_dict") and all(
    has_local(gradient._populate_grad_dict, name, _FORWARD) for name in ("node", "var")
)


def _forward_at(frame: FrameType) -> Forward | None:
    """Return the :class:`Forward` that the innermost frame of ``grad`` is about, or None.

    PyTensor records it nowhere.  Without the local variables, `Gradients` finds it by building the
    gradient a second time.
    """
    if not _reads_grad:
        return None
    if frame.f_code.co_name == "access_term_cache":
        node = frame.f_locals.get("node")
        return None if node is None else Forward(node.outputs[0])
    if frame.f_code.co_name == "<lambda>" and frame.f_back is not None:
        variable = frame.f_back.f_locals.get("var")
        return None if variable is None else Forward(variable, is_summed=True)
    return None


class Trace(list):
    """A stack trace, outermost frame first; a copy or a pickle of it is a plain list.

    - `serial`: how many traces were taken before it.
    - `callers`: the user's frames outside of `entries`, outermost first.
    - `bindings`: what the names near the user's line meant.
    """

    def __init__(
        self,
        entries: Iterable[Entry],
        serial: int,
        callers: tuple[Entry, ...],
        forward: Forward | None = None,
        bindings: Bindings | None = None,
    ) -> None:
        super().__init__(entries)
        self.forward = forward
        self.serial = serial
        self.callers = callers
        self.bindings = bindings
        self.ref: Ref | None = None

    def __reduce__(self) -> tuple:
        return list, (list(self),)


class _Recorder:
    """Takes stack traces as :func:`pytensor.graph.utils.simple_extract_stack` does."""

    def __init__(self) -> None:
        self.count = itertools.count()
        self.bindings = Bound()
        # By the identity of the code (its hash reads the whole code) and the instruction; the
        # entry keeps the code alive.
        self.entries: dict[tuple[int, int], Entry] = {}
        self.skips: list[str] = []
        self.skipped: dict[str, bool] = {}
        self.users: dict[str, bool] = {}
        # Codes, and parts of the names of files.
        self.hidden: tuple[tuple[CodeType, ...], tuple[str, ...]] = ((), ())
        self.is_hidden: dict[int, bool] = {}  # by the identity of a code
        self.kept: list[CodeType] = []  # these codes, so that their identities stay theirs

    def hides(self, code: CodeType) -> bool:
        """Whether what calls this code did not write what is built in it."""
        found = self.is_hidden.get(id(code))
        if found is None:
            codes, files = self.hidden
            found = code in codes or any(part in code.co_filename for part in files)
            self.is_hidden[id(code)] = found
            self.kept.append(code)
        return found

    def entry(self, frame: FrameType) -> Entry:
        """Return the entry of a frame."""
        code, lasti = frame.f_code, frame.f_lasti
        key = id(code), lasti
        found = self.entries.get(key)
        if found is None:
            if len(self.entries) > 50_000:
                self.entries.clear()
            line = frame.f_lineno
            text = linecache.getline(code.co_filename, line, frame.f_globals).strip()
            if not text and keep_source(code):
                text = linecache.getline(code.co_filename, line).strip()
            found = self.entries[key] = Entry(code, lasti, line, text or None)
        return found

    def is_skipped(self, file: str, skips: Sequence[str]) -> bool:
        """Whether PyTensor leaves frames of this file away at the inner end."""
        if skips != self.skips:
            self.skips, self.skipped = list(skips), {}
        found = self.skipped.get(file)
        if found is None:
            found = self.skipped[file] = is_untraced(file, tuple(skips))
        return found

    def is_users(self, file: str) -> bool:
        """Whether frames of this file are the user's own."""
        found = self.users.get(file)
        if found is None:
            found = self.users[file] = is_own_file(file)
        return found

    def extract(
        self,
        f: FrameType | None = None,
        limit: int | None = None,
        skips: Sequence[str] | None = None,
    ) -> Trace:
        """Stand in for ``simple_extract_stack``."""
        frame: FrameType | None = sys._getframe(1) if f is None else f
        if limit is None:
            limit = getattr(sys, "tracebacklimit", None)
        is_scalar = False  # (what is made inside of an elementwise operation needs no more)
        depth = 0
        if skips:
            skipped = self.skipped if skips == self.skips else {}
            while frame is not None:
                file = frame.f_code.co_filename
                is_scalar = is_scalar or file == _SCALAR_FILE
                skip = skipped.get(file)
                if not (self.is_skipped(file, skips) if skip is None else skip):
                    break
                frame = frame.f_back
                depth += 1
        trace, known = [], self.entries
        bindings = None
        left = -1 if limit is None else max(limit, 0)
        own = 0
        hides = self.hides if any(self.hidden) else None
        gradients = None  # the innermost frame of `grad`
        while frame is not None and left:
            if hides is not None and hides(frame.f_code):
                frame = None
                break
            found = known.get((id(frame.f_code), frame.f_lasti)) or self.entry(frame)
            trace.append(found)
            if found.is_gradients and gradients is None:
                gradients = frame
            if self.is_users(found[0]):
                own += 1
                if own == 1 and depth < _MAX_INSIDE and not is_scalar and gradients is None:
                    bindings = self.bindings.of(frame, found)
            frame = frame.f_back
            left -= 1
        trace.reverse()
        callers: tuple[Entry, ...] = ()
        forward = None
        if own < MAX_CALLERS and trace and not is_scalar:
            callers = self.callers(frame, MAX_CALLERS - own)
        if gradients is not None and not is_scalar:
            forward = _forward_at(gradients)
        return Trace(trace, next(self.count), callers, forward, bindings)

    def callers(self, frame: FrameType | None, wanted: int) -> tuple[Entry, ...]:
        """Return entries of the user's frames from `frame` outwards, outermost first."""
        users, found = self.users, []
        for _ in range(_MAX_DEPTH):
            if frame is None or (any(self.hidden) and self.hides(frame.f_code)):
                break
            file = frame.f_code.co_filename
            is_users = users.get(file)
            if is_users is None:
                is_users = self.is_users(file)
            if is_users:
                found.append(self.entry(frame))
                if len(found) == wanted:
                    break
            frame = frame.f_back
        return tuple(reversed(found))


# Where a frozen inner graph keeps what it was frozen from: per node in topological order its
# operation, and (name, tag) of each of its outputs; and (name, tag) of each input.
_FROZEN_FROM = "_theanoguard_frozen_from"


def _kept(variables: Iterable[Variable]) -> list[tuple[str | None, Any]]:
    return [(v.name, copy(v.tag)) for v in variables]


def _recording_freeze(freeze: Any) -> Any:
    def frozen(
        cls: Any, inputs: Any, outputs: Any, toposort: Iterable[Apply], dedup_nodes: Any
    ) -> Any:
        toposort = list(toposort)
        graph = freeze.__func__(cls, inputs, outputs, toposort, dedup_nodes)
        nodes = [(node.op, _kept(node.outputs)) for node in toposort]
        setattr(graph, _FROZEN_FROM, (nodes, _kept(inputs)))
        return graph

    return classmethod(frozen)


def _give_back(variable: Variable, tag: Any) -> None:
    """Give a variable the trace that was recorded, and what else its tag lacks."""
    for name, value in vars(tag).items():
        if name == "trace" or name.startswith("theanoguard") or not hasattr(variable.tag, name):
            setattr(variable.tag, name, value)


def _recording_bind(bind: Callable) -> Callable:
    def bound(self: Any, replace: Any, *, return_memo: bool = False) -> Any:
        outputs, memo = bind(self, replace, return_memo=True)
        nodes, _inputs = getattr(self, _FROZEN_FROM, ((), ()))
        for node, (op, known) in zip(self.toposort(), nodes, strict=False):
            # Equal nodes of several graphs are one frozen node, which holds the operation of the
            # first; an equal one may have been built on another line.
            memo[node].op = op
            for output, (name, tag) in zip(memo[node].outputs, known, strict=True):
                output.name = output.name or name
                _give_back(output, tag)
        return (outputs, memo) if return_memo else outputs

    return bound


def _recording_unfreeze(unfreeze: Callable) -> Callable:
    def unfrozen(self: Any, *, return_memo: bool = False) -> Any:
        graph, memo = unfreeze(self, return_memo=True)
        for variable, (_name, tag) in zip(graph.inputs, _inputs(self), strict=False):
            _give_back(variable, tag)
        return (graph, memo) if return_memo else graph

    return unfrozen


def _inputs(graph: Any) -> Sequence[tuple[str | None, Any]]:
    return getattr(graph, _FROZEN_FROM, ((), ()))[1]


def frozen_tags(graph: Any) -> dict[Variable, tuple[str | None, Any]]:
    """Map the variables of a frozen graph to (name, tag) of those they were frozen from.

    It is empty where nothing was recorded.
    """
    nodes, inputs = getattr(graph, _FROZEN_FROM, ((), ()))
    found = dict(zip(graph.inputs, inputs, strict=False))
    for node, (_op, known) in zip(graph.toposort(), nodes, strict=False):
        found.update(zip(node.outputs, known, strict=True))
    return found


def stand_in(variable: Variable, name: str | None, tag: Any) -> Variable:
    """Return a variable like one of a frozen graph, with the name and tag that it once had."""
    new = variable.type.make_variable(name)
    new.owner, new.index, new.tag = variable.owner, variable.index, tag
    return new


def thawed_variables(graph: Any) -> dict[Variable, Variable]:
    """Map the variables of a frozen graph to stand-ins with the names and tags they once had.

    It is empty for a graph that is not frozen, or that nothing is known of.
    """
    if not hasattr(graph, _FROZEN_FROM):
        return {}
    return {v: stand_in(v, name, tag) for v, (name, tag) in frozen_tags(graph).items()}


def _keep_traces(made: Iterable[Variable], replaced: Iterable[Variable]) -> None:
    """Let outputs of a node have the traces of those that they replace."""
    for new, old in zip(made, replaced, strict=False):
        trace = getattr(old.tag, "trace", None)
        if trace:
            new.tag.trace = trace


def _recording_vectorize(vectorize_node: Callable) -> Callable:
    """Let what a node becomes when it is vectorized keep the trace of the node."""

    @wraps(vectorize_node)  # (its `register` is used)
    def vectorized(op: Op, node: Apply, *batched_inputs: Variable) -> Any:
        made = vectorize_node(op, node, *batched_inputs)
        _keep_traces(made if isinstance(made, list | tuple) else made.outputs, node.outputs)
        return made

    return vectorized


def _recording_clone(clone_with_new_inputs: Callable) -> Callable:
    """Let a node that is made again for inputs of other types keep its trace."""

    @wraps(clone_with_new_inputs)
    def cloned(self: Apply, *args: Any, **kwargs: Any) -> Apply:
        made = clone_with_new_inputs(self, *args, **kwargs)
        _keep_traces(made.outputs, self.outputs)
        return made

    return cloned


class _Lowered(Feature):
    """Gives the nodes that an operation is lowered to the trace and the name of its output.

    `made` maps each of these nodes to that output, if it computes it, or else to None.
    """

    def __init__(self) -> None:
        self.imported: list[Apply] = []
        self.made: dict[Apply, Variable | None] = {}

    def on_import(self, fgraph: FunctionGraph, node: Apply, reason: Any) -> None:
        self.imported.append(node)

    def on_change_input(
        self,
        fgraph: FunctionGraph,
        node: Apply,
        i: int,
        old: Variable,
        new: Variable,
        reason: Any = None,
    ) -> None:
        made, self.imported = self.imported, []
        for output in (output for each in made for output in each.outputs):
            _keep_traces([output], [old])
            setattr(output.tag, LABELLED, True)
        self.made.update(dict.fromkeys(made))
        while new.owner in self.made:
            new.name = new.name or old.name
            if self.made[new.owner] is None:
                self.made[new.owner] = old
            if not isinstance(new.owner.op, TypeCastingOp):
                break
            [new] = new.owner.inputs


def _recording_lowering(apply: Callable) -> Callable:
    @wraps(apply)
    def applied(self: Any, fgraph: FunctionGraph, *args: Any, **kwargs: Any) -> Any:
        if getattr(self, "name", None) != LOWERING:
            return apply(self, fgraph, *args, **kwargs)
        lowered = _Lowered()
        fgraph.attach_feature(lowered)
        try:
            result = apply(self, fgraph, *args, **kwargs)
        finally:
            fgraph.remove_feature(lowered)
        for feature in fgraph._features if lowered.made else ():
            if hasattr(feature, "on_lowered"):
                feature.on_lowered(fgraph, lowered.made)
        return result

    return applied


NOTES_ON_INPUTS: list[Callable[[BaseException, Any, Any], str]] = []
"""What describes an argument that an input of a function does not take: from the error, the
variable and the argument."""


def _naming_input(add_note: Callable[..., None]) -> Callable[..., None]:
    """Let an error on an argument of a function begin with a note on its input."""

    @wraps(add_note)
    def added(self: Any, error: BaseException, container: Any, argument: Any) -> None:
        add_note(self, error, container, argument)
        try:
            variable = self.maker.inputs[self.input_storage.index(container)].variable
            notes = [note(error, variable, argument) for note in NOTES_ON_INPUTS]
        except Exception:
            logger.exception("theanoguard: the error could not be explained; please report this")
            return
        error.__notes__ = [*notes, *getattr(error, "__notes__", ())]

    return added


_recorder = _Recorder()


def hide_callers(codes: Iterable[CodeType], files: Iterable[str]) -> None:
    """Let no trace hold who called these functions: they build what others have written.

    `files`: parts of names of files, all of whose functions are meant.
    """
    _recorder.hidden = tuple(codes), tuple(files)
    _recorder.is_hidden.clear()
    _recorder.kept.clear()


_COLUMNS = "columns and expressions in reports"
_IN_LOOPS = "lines and names inside loops"
#: What is replaced, and what a report does not have without it.
_REPLACED = [
    (utils, "simple_extract_stack", lambda original: _recorder.extract, _COLUMNS),
    (graph_replace, "_vectorize_node", _recording_vectorize, "lines of vectorized operations"),
    (Apply, "clone_with_new_inputs", _recording_clone, "lines of operations built again"),
    (EquilibriumGraphRewriter, "apply", _recording_lowering, "lines of labelled arrays"),
    (
        Function,
        "_add_note_to_invalid_argument_exception",
        _naming_input,
        "names of inputs in errors on arguments",
    ),
]
_frozen = getattr(fg, "FrozenFunctionGraph", None)
if _frozen is None or hasattr(_frozen, "_freeze"):  # (3.0 freezes the graphs of Composite alone)
    _REPLACED += [
        (_frozen, "_freeze", _recording_freeze, _IN_LOOPS),
        (_frozen, "bind", _recording_bind, _IN_LOOPS),
        (_frozen, "unfreeze", _recording_unfreeze, _IN_LOOPS),
    ]
HOOKS = [
    Patch(owner, name, wrap) for owner, name, wrap, lost in _REPLACED if has(owner, name, lost)
]

_installed: list[Callable[[], None]] = []


def install() -> None:
    """Begin to record, if that has not begun."""
    if not _installed:
        _installed.append(apply([*HOOKS, *graph_errors.HOOKS]))


def remove() -> None:
    """End to record, and put back what :func:`install` has replaced."""
    while _installed:
        _installed.pop()()
