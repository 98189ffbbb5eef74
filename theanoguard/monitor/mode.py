"""``MonitorMode`` calls functions of the user before and after every node.

PyTensor's own mode of this name runs every thunk from a Python loop.  Here the C virtual machine
keeps its loop, its order and its garbage collection.  Only the thunks are replaced, by Python
functions that call ``pre_func``, the compiled code of the node, and ``post_func``.
"""

import copy
import inspect
import sys
import weakref
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.graph.rewriting.db import RewriteDatabaseQuery
from pytensor.printing import debugprint

from theanoguard._arguments import NeedsCall, check_optimizer, checked
from theanoguard._event import Frame, PathStep
from theanoguard._provenance import TRACK_PROVENANCE, SourceLine, lookup, lookup_inner
from theanoguard._provenance.places import source_lines
from theanoguard._pytensor import (
    VM,
    Mode,
    Scan,
    VMLinker,
    config,
    has_inner_function,
    link_inner,
    predefined_optimizers,
    runner_of,
    take_class,
)
from theanoguard._text import encodable, shortened


class Callback:
    """A function of the user, in PyTensor's or in Theano's form, to be bound to nodes.

    - `function`: ``function(fgraph, i, node, fn)`` as in PyTensor, or ``function(i, node, fn)`` as
      in Theano.  With a parameter ``path`` it also receives the inner graphs around the node.
    - Raises ``TypeError``: if it takes neither three nor four arguments.
    """

    def __init__(self, function: Callable) -> None:
        self.function = function
        # Not kept: signatures of some callables do not pickle.
        parameters = self._parameters(function)
        self.wants_path = "path" in parameters
        positional = [
            p
            for p in parameters.values()
            if p.name != "path" and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        ]
        required = [p for p in positional if p.default is p.empty]
        takes_any = any(p.kind is p.VAR_POSITIONAL for p in parameters.values())
        if takes_any or len(required) == 4 or (len(required) < 4 <= len(positional)):
            self.with_fgraph = takes_any or len(required) != 3 or required[0].name == "fgraph"
        elif len(required) <= 3 == len(positional):
            self.with_fgraph = False
        else:
            raise TypeError(
                f"MonitorMode cannot call {function!r} with its {len(positional)} arguments.\n"
                "It must take (fgraph, i, node, fn) or, as in Theano, (i, node, fn)."
            )

    @staticmethod
    def _parameters(function: Callable) -> Mapping[str, inspect.Parameter]:
        try:
            return inspect.signature(function).parameters
        except ValueError:  # a builtin without a signature: PyTensor's form
            return inspect.signature(lambda fgraph, i, node, fn: None).parameters

    def bind(
        self, fgraph: FunctionGraph, i: int, node: Apply, thunk: Callable, body: "Body | None"
    ) -> Callable[[], None]:
        """Return a callable without arguments that calls the function for one node."""
        arguments = (fgraph, i, node, thunk) if self.with_fgraph else (i, node, thunk)
        bound = partial(self.function, *arguments)
        if not self.wants_path:
            return bound
        return lambda: bound(path=() if body is None else body.path)


class Body:
    """An inner graph that is running: its node, the body around it, and its step."""

    def __init__(self, node: Apply, outer: "Body | None") -> None:
        self.node = node
        self.outer = outer
        self.fgraph: FunctionGraph = None  # known once it is linked
        self.step = -1

    @property
    def path(self) -> tuple[Frame, ...]:
        """The nodes and graphs from the function's own graph to here, outermost first."""
        outside = () if self.outer is None else self.outer.path
        step = self.step if isinstance(self.node.op, Scan) else None
        return (*outside, Frame(self.node, self.fgraph, step))


class _CountsSteps(VM):
    """Mixin of a virtual machine that runs the body of a ``Scan``: it counts the steps.

    It derives from ``VM`` so that its layout is that of the machine whose class it becomes.
    """

    body: Body

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.body.step += 1
        return super().__call__(*args, **kwargs)


def _monitored(
    thunk: Any,
    before: Callable[[], None] | None,
    after: Callable[[], None] | None,
    body: Body | None,
) -> Callable:
    """Return the thunk that calls `before`, `thunk` and `after`."""
    if thunk.lazy:

        def run() -> Any:
            if before is not None:
                before()
            needed = thunk()
            if not needed and after is not None:
                after()
            return needed

    else:
        run_node = runner_of(thunk)

        def run() -> Any:
            if before is not None:
                before()
            if body is not None:
                body.step = -1
            run_node()
            if after is not None:
                after()

    made: Any = run
    made.lazy = thunk.lazy
    made.inputs = thunk.inputs
    made.outputs = thunk.outputs
    return made


class MonitorLinker(VMLinker):
    """A ``VMLinker`` whose thunks call functions of the user.

    - `inner`: whether inner graphs are monitored as well.
    - `body`: for an inner graph: its own record.
    - `**settings`: those of ``VMLinker``.
    """

    def __init__(
        self,
        pre: Callback | None,
        post: Callback | None,
        inner: bool = False,
        body: Body | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        self.pre = pre
        self.post = post
        self.inner = inner
        self.body = body
        self.bodies: dict[Apply, Body] = {}

    def accept(
        self,
        fgraph: FunctionGraph,
        no_recycling: Collection[Variable] | None = None,
        profile: Any = None,
    ) -> "MonitorLinker":
        # The linker of a mode stays free of graphs; each function has a copy.
        own = copy.copy(self)
        own.fgraph = None
        own.bodies = {}
        return super(MonitorLinker, own).accept(fgraph, no_recycling, profile)

    def make_all(self, *args: Any, **kwargs: Any) -> tuple:
        ops = {}
        if self.inner:
            for node in self.fgraph.apply_nodes:
                if has_inner_function(node.op):
                    op = self.link_body(node)
                    if op is not None:
                        ops[node] = op
        originals = {node: node.op for node in ops}
        try:
            # The thunk of a node is made by its op.  The graph is this function's own.
            for node, op in ops.items():
                node.op = op
            return super().make_all(*args, **kwargs)
        finally:
            for node, op in originals.items():
                node.op = op

    def link_body(self, node: Apply) -> Op | None:
        """Return a copy of the node's op with a monitored inner function, or None."""
        body = Body(node, self.body)
        op = link_inner(
            node.op,
            None if self.c_thunks else "py",
            lambda linker: MonitorLinker(
                self.pre,
                self.post,
                self.inner,
                body,
                allow_gc=linker.allow_gc,
                use_cloop=linker.use_cloop,
                c_thunks=linker.c_thunks,
            ),
            lambda mode: mode.register(TRACK_PROVENANCE),
        )
        if op is not None:
            vm = op._fn.vm
            name, bases = f"Monitored{type(vm).__name__}", (_CountsSteps, type(vm))
            take_class(vm, type(name, bases, {"__module__": __name__}), "MonitorMode in loops")
            vm.body = body
            body.fgraph = vm.fgraph
            self.bodies[node] = body
        return op

    def make_vm(self, nodes: list[Apply], thunks: list, *args: Any) -> VM:
        if self.pre is not None or self.post is not None:
            for i, (node, thunk) in enumerate(zip(nodes, thunks, strict=True)):
                before, after = (
                    callback.bind(self.fgraph, i, node, thunk, self.body) if callback else None
                    for callback in (self.pre, self.post)
                )
                thunks[i] = _monitored(thunk, before, after, self.bodies.get(node))
        return super().make_vm(nodes, thunks, *args)


class MonitorMode(Mode):
    """A compile mode that calls your functions before and after each node.

    Parameters
    ----------
    pre_func, post_func : callable or None
        Called before and after a node is computed, with the graph, the index of the node, the
        node, and its thunk: ``(fgraph, i, node, fn)`` as in PyTensor, or ``(i, node, fn)`` as
        in Theano.  ``fn.inputs`` and ``fn.outputs`` are lists of lists with one value each.  A
        function with a parameter ``path`` receives the inner graphs around the node: a tuple of
        records with the attributes ``node``, ``fgraph`` and ``step``, the last one for ``Scan``.
        An exception in your function stops the call, and the call raises it.
    optimizer : str, RewriteDatabaseQuery or GraphRewriter
        As for ``pytensor.compile.mode.Mode``.
    linker : None
        This mode has its own linker.
    db : RewriteDatabase or None
        As for ``Mode``.
    inner : bool
        Whether to visit the nodes in the bodies of ``Scan`` and ``OpFromGraph`` as well.

    Raises
    ------
    TypeError
        For a function with another number of arguments.
    ValueError
        If a linker is given.

    Notes
    -----
    The C virtual machine decides the order of the nodes.  It does not compute nodes that no output
    needs.  The values are the arrays that the compiled node reads and writes.  They may change when
    your function has returned, so copy them if you keep them.  For a lazy node (``ifelse``),
    ``pre_func`` is called each time the node is evaluated, and ``post_func`` after its output.

    Examples
    --------
    >>> from theanoguard.monitor import MonitorMode
    >>> import pytensor, pytensor.tensor as pt
    >>> def show(i, node, fn):
    ...     print(node.op, [float(value) for (value,) in fn.outputs])
    >>> x = pt.dscalar("x")
    >>> mode = MonitorMode(post_func=show).excluding("fusion")
    >>> f = pytensor.function([x], pt.exp(x) + 1, mode=mode)
    >>> y = f(0.0)
    Exp [1.0]
    Add [2.0]
    """

    _optimizer: Any

    @checked
    def __init__(
        self,
        pre_func: Callable | None = None,
        post_func: Callable | None = None,
        optimizer: Any = "default",
        linker: Any = None,
        db: Any = None,
        inner: bool = False,
    ) -> None:
        if linker is not None and not isinstance(linker, MonitorLinker):
            raise ValueError(
                f"MonitorMode has its own linker; {linker!r} cannot be used.\n"
                "Leave the argument `linker` out."
            )
        check_optimizer("MonitorMode", optimizer, predefined_optimizers)
        self._set_up(pre_func, post_func, optimizer, db, inner)

    @NeedsCall
    def function_maker(self) -> Any:
        return super().function_maker

    def _set_up(
        self,
        pre_func: Callable | None,
        post_func: Callable | None,
        optimizer: Any,
        db: Any,
        inner: bool,
    ) -> None:
        pre, post = (f if f is None else Callback(f) for f in (pre_func, post_func))
        super().__init__(MonitorLinker(pre, post, inner, use_cloop=bool(config.cxx)), optimizer, db)
        if isinstance(self._optimizer, RewriteDatabaseQuery):
            self._optimizer = self._optimizer.register(TRACK_PROVENANCE)
        self.pre_func = pre_func
        self.post_func = post_func
        self.inner = inner

    def __repr__(self) -> str:
        """Return the functions in one line: PyTensor's text lists every rewrite."""
        functions = {"pre_func": self.pre_func, "post_func": self.post_func}
        parts = [
            f"{what}={getattr(function, '__qualname__', type(function).__name__)}"
            for what, function in functions.items()
            if function is not None
        ]
        parts += ["inner=True"] if self.inner else []
        return f"<{' '.join([type(self).__name__, ', '.join(parts)]).strip()}>"

    __str__ = __repr__

    def __getstate__(self) -> dict[str, Any]:
        return {
            "pre_func": self.pre_func,
            "post_func": self.post_func,
            "optimizer": self.provided_optimizer,
            "inner": self.inner,
        }

    def __setstate__(self, state: Any) -> None:
        if isinstance(state, dict):  # from a pickle or a copy; ``Mode`` passes a tuple
            self._set_up(**state, db=None)
        else:
            super().__setstate__(state)

    def clone(self, link_kwargs: Any = None, optimizer: Any = "", **kwargs: Any) -> "MonitorMode":
        """Return a mode with the same functions.

        Parameters
        ----------
        link_kwargs : ignored
            The mode has its own linker.
        optimizer : str, RewriteDatabaseQuery or GraphRewriter
            In place of this mode's.
        """
        if isinstance(optimizer, str) and optimizer == "":
            optimizer = self.provided_optimizer
        new = object.__new__(type(self))
        new._set_up(self.pre_func, self.post_func, optimizer, self.optdb, self.inner)
        return new


def overwritten(node: Apply, inputs: list) -> set[int]:
    """Return which inputs of a node that has run no longer hold the values that it read.

    `inputs`: values of ``node.inputs``, after it has run.
    """
    destroyed = {i for places in node.op.destroy_map.values() for i in places}
    arrays = {i: value for i, value in enumerate(inputs) if isinstance(value, np.ndarray)}
    # Another input may share that memory.
    return destroyed | {
        i
        for i, value in arrays.items()
        for k in destroyed & arrays.keys()
        if np.may_share_memory(value, arrays[k])
    }


def excerpt(value: Any, most: int = 120) -> str:
    """Return a value as one line of at most `most` characters.

    Examples
    --------
    >>> excerpt(np.arange(3.0))
    'array([0., 1., 2.])'
    """
    with np.printoptions(threshold=20, edgeitems=2):
        return shortened(" ".join(repr(value).split()), most)


#: Limits of `DetectNan`: lines of a node's graph, levels of its inputs, values, columns.
MOST_LINES, DEPTH, MOST_VALUES, MOST_COLUMNS = 12, 3, 6, 160


class DetectNan:
    """A ``post_func`` that reports nodes whose output holds NaN or Inf.

    Parameters
    ----------
    nan, inf : bool
        Whether to report NaN, and Inf.
    repeat : bool
        Whether to report a node again in later calls and steps.

    Notes
    -----
    If the node has overwritten an input, ``(overwritten)`` is printed instead of its value.
    ``MonitorMode(post_func=detect_nan).excluding("inplace")`` compiles without such nodes.

    Examples
    --------
    >>> from theanoguard.monitor import MonitorMode, detect_nan
    >>> import pytensor, pytensor.tensor as pt
    >>> x = pt.dscalar("x")
    >>> f = pytensor.function([x], pt.log(x), mode=MonitorMode(post_func=detect_nan))
    >>> y = f(-1.0)  # doctest: +ELLIPSIS
    *** NaN detected ***
    Log [id A]
     └─ x [id B]
    Line   : ...
    Inputs : [array(-1.)]
    Outputs: [array(nan)]
    >>> y = f(-1.0)
    """

    @checked
    def __init__(self, nan: bool = True, inf: bool = True, repeat: bool = False) -> None:
        self.nan = nan
        self.inf = inf
        self.repeat = repeat
        self._reported: weakref.WeakSet[Apply] = weakref.WeakSet()

    def __getstate__(self) -> dict[str, bool]:
        return {"nan": self.nan, "inf": self.inf, "repeat": self.repeat}

    def __setstate__(self, state: dict[str, bool]) -> None:
        DetectNan.__init__(self, **state)

    def __call__(self, *args: Any, path: tuple[Frame, ...] = ()) -> None:
        """Check the outputs of a node; takes both forms of MonitorMode's arguments."""
        if len(args) < 3:
            raise TypeError(
                f"detect_nan is called with {len(args)} arguments; a mode calls it for each node.\n"
                "Give it to the mode: MonitorMode(post_func=detect_nan)."
            )
        *fgraph, _i, node, fn = args
        if node in self._reported and not self.repeat:
            return
        kinds = [self._bad(value) for (value,) in fn.outputs]
        found = next(((k, kind) for k, kind in enumerate(kinds) if kind), None)
        if found is None:
            return
        self._reported.add(node)
        output, kind = found
        where = self._line(fgraph, node.outputs[output], path)

        def say(text: str) -> None:
            print(encodable(text, sys.stdout))

        say(f"*** {kind} detected ***")
        say("\n".join(self._graph(node)))
        if path:
            steps = (PathStep(str(frame.node.op), frame.step) for frame in path)
            say(f"Inside : {' > '.join(map(str, steps))}")
        lines = source_lines(where) if where is not None else ["unknown"]
        say("Line   : " + "\n         ".join(lines))
        inputs = [value for (value,) in fn.inputs]
        gone = overwritten(node, inputs)
        outputs = [value for (value,) in fn.outputs]
        say(f"Inputs : {self._values(inputs, gone)}")
        say(f"Outputs: {self._values(outputs)}")
        if gone:
            say('Compile with mode.excluding("inplace") to see the overwritten inputs.')

    @staticmethod
    def _graph(node: Apply) -> list[str]:
        """Return the lines of the node and its nearest inputs, within the limits above."""
        lines = debugprint(node, depth=DEPTH, file="str").splitlines()
        lines = [shortened(line, MOST_COLUMNS) for line in lines]
        if len(lines) > MOST_LINES:
            left_out = len(lines) - MOST_LINES
            more = f"{left_out} more line{'s' if left_out > 1 else ''}"
            lines[MOST_LINES:] = [f"... {more}; debugprint(f) prints the graph"]
        return lines

    @staticmethod
    def _values(values: list, gone: Collection[int] = ()) -> str:
        texts = ["(overwritten)" if i in gone else excerpt(v) for i, v in enumerate(values)]
        more = len(texts) - MOST_VALUES
        texts[MOST_VALUES:] = [f"and {more} more"] if more > 0 else []
        return f"[{', '.join(texts)}]"

    def _bad(self, value: Any) -> str | None:
        """Return "NaN", "Inf" or None."""
        array = np.asarray(getattr(value, "data", value) if hasattr(value, "nnz") else value)
        if array.dtype.kind not in "fc":
            return None
        if self.nan and np.isnan(array).any():
            return "NaN"
        if self.inf and np.isinf(array).any():
            return "Inf"
        return None

    @staticmethod
    def _line(fgraph: list, variable: Variable, path: tuple[Frame, ...]) -> SourceLine | None:
        """The user's line of `variable`; if it is not known, that of the inner graph's node."""
        if path:
            frame = path[-1]
            found = lookup_inner(frame.node.op, frame.fgraph, variable).source
            return found or DetectNan._line([None], frame.node.outputs[0], path[:-1])
        return lookup(fgraph[0] if fgraph else None, variable).source


#: For ``MonitorMode(post_func=detect_nan)``: reports each node with NaN or Inf once.
detect_nan = DetectNan()
