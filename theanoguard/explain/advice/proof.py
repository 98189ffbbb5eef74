"""Show that text in the user's file is a variable of the graph, and what an edit of it computes.

A graph holds variables; a file holds names, which mean something else on other lines, in other
calls and for other objects.  An edit is shown before it is printed:

- the user's expression, evaluated with the names as they were bound when the line ran, must be the
  variable of the graph;
- so it must for every variable that the same expression has built;
- the new expression is evaluated with the same names, and gives what is computed instead;
- numbers that the user has named stay names: with other numbers both are still the same function.

Only functions of PyTensor and NumPy are called.  What a function, a property or an object of the
user's returned is taken from the graph.
"""

import ast
import builtins
import operator
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import ModuleType
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.op import Op
from pytensor.graph.traversal import ancestors

from theanoguard._evaluate.replay import Replay
from theanoguard._graph import applied_to
from theanoguard._provenance.expressions import expression_at
from theanoguard._provenance.source import user_entries
from theanoguard._pytensor.bindings import Path, Ref, trace_of
from theanoguard.explain.advice.trials import AsBuilt
from theanoguard.explain.advice.written import (
    STABLE,
    globals_of,
    name_of_theano,
    only_imported,
)


class NotShown(Exception):
    """It cannot be shown what a text means."""


MAX_USES = 100
"""Largest number of variables that the edited expression may have built."""

_BINARY: dict[type, Callable] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.MatMult: operator.matmul,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_UNARY: dict[type, Callable] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Invert: operator.invert,
}

_PURE = (
    *("pytensor.tensor", "pytensor.scalar", "pytensor.xtensor", "numpy", "scipy.special"),
    *("theanoguard.stable", "theanoguard.shim.theano.tensor", "theano.tensor", "pymc.math"),
)
_IMPURE = (
    "numpy.random",
    "pytensor.tensor.random",
    "theanoguard.shim.theano.tensor.shared_randomstreams",
)
_BUILTINS = (
    "abs",
    "len",
    "max",
    "min",
    "sum",
    "float",
    "int",
    "range",
    "tuple",
    "list",
    "round",
    "bool",
)


def _is_pure(function: Any) -> bool:
    """Return whether calling a function has no effect but its result."""
    if isinstance(getattr(function, "__self__", None), Variable | np.ndarray | np.generic):
        return True
    if any(function is getattr(builtins, name) for name in _BUILTINS):
        return True
    module = getattr(function, "__module__", None) or type(function).__module__
    if isinstance(function, np.ufunc):
        return True
    return str(module).startswith(_PURE) and not str(module).startswith(_IMPURE)


def path_of(node: ast.AST) -> Path | None:
    """Return a name with attributes and constant indices as a path; None for other expressions."""
    if isinstance(node, ast.Name):
        return (node.id,)
    if isinstance(node, ast.Attribute) and (inner := path_of(node.value)) is not None:
        return (*inner, f".{node.attr}")
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        inner = path_of(node.value)
        return None if inner is None else (*inner, (node.slice.value,))
    return None


def text_of(path: Path) -> str:
    """Return a path as code.

    Examples
    --------
    >>> text_of(("d", ("v",), ".rate"))
    "d['v'].rate"
    """
    return "".join(f"[{step[0]!r}]" if isinstance(step, tuple) else step for step in path)


def expression_node(variable: Variable) -> tuple[Any, Any]:
    """Return the entry and the node of the user's expression that built a variable, or None."""
    entries = user_entries(variable)
    found = expression_at(entries[0]) if entries else None
    return (entries[0], found.node) if found is not None else (None, None)


class Reader:
    """Evaluates expressions with the names as they were bound when a variable was built.

    Variables are stood for by others of the same types.

    Parameters
    ----------
    index : Index
    variable : Variable
        Of the graph as built.
    """

    def __init__(self, index: "Index", variable: Variable) -> None:
        self.entry, self.node = expression_node(variable)
        trace = trace_of(variable)
        bindings = getattr(trace, "bindings", None)
        if self.node is None or bindings is None or bindings.code is not self.entry.code:
            raise NotShown("what the names on the line meant is not known")
        self.index, self.variable = index, variable
        self.file, self.code = self.entry[0], self.entry.code
        self.bound: dict[Path, Any] = dict(zip(bindings.paths, bindings.values, strict=True))
        self.known = bindings.known()
        self.modules: dict[str, ModuleType] = {}
        self.stand_ins: dict[Any, Variable] = {}
        self.refs: dict[Variable, Ref] = {}
        self.holes: dict[str, ast.AST] = {}
        self.numbers: dict[str, Any] = {}
        self.changed: dict[str, Any] = {}
        self.seen: list[tuple[ast.AST, Any]] = []

    def value(self, node: ast.AST) -> Any:
        """Return the value of an expression.

        Raises
        ------
        NotShown
        """
        key = ast.dump(node)
        if key in self.holes:
            return self.stand_ins[key]
        try:
            found = self._value(node)
        except NotShown as reason:
            found = self._hole(node, key, reason)
        if isinstance(found, Variable):
            self.seen.append((node, found))
        return found

    def _hole(self, node: ast.AST, key: str, reason: NotShown) -> Variable:
        """Return what stands for the result of the user's own function or property."""
        built = self.index.built_under(node, self) if isinstance(node, ast.expr) else []
        types = list(dict.fromkeys(v.type for v in built))
        if len(types) != 1 or isinstance(node, ast.BinOp | ast.UnaryOp):
            raise reason
        self.holes[key] = node
        self.stand_ins[key] = types[0]()
        return self.stand_ins[key]

    def _value(self, node: ast.AST) -> Any:
        path = path_of(node)
        if path is not None and (ast.unparse(node) in self.changed):
            return self.changed[ast.unparse(node)]
        if path is not None and path in self.known:
            return self._of_record(node, self.known[path])
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            return self._name(node.id)
        if isinstance(node, ast.Attribute):
            value = self.value(node.value)
            if not isinstance(value, Variable | ModuleType | np.ndarray | np.generic):
                raise NotShown(f"{ast.unparse(node)} is not known")
            return self._run(getattr, value, node.attr)
        if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
            return self._run(_BINARY[type(node.op)], self.value(node.left), self.value(node.right))
        if isinstance(node, ast.AugAssign) and type(node.op) in _BINARY:
            return self._run(
                _BINARY[type(node.op)], self.value(node.target), self.value(node.value)
            )
        if isinstance(node, ast.UnaryOp) and type(node.op) in _UNARY:
            return self._run(_UNARY[type(node.op)], self.value(node.operand))
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _BINARY:
            sides = self.value(node.left), self.value(node.comparators[0])
            return self._run(_BINARY[type(node.ops[0])], *sides)
        if isinstance(node, ast.Call):
            return self._call(node)
        if isinstance(node, ast.Subscript):
            return self._run(operator.getitem, self.value(node.value), self.value(node.slice))
        if isinstance(node, ast.Slice):
            parts = (node.lower, node.upper, node.step)
            return slice(*(None if p is None else self.value(p) for p in parts))
        if isinstance(node, ast.Tuple | ast.List):
            made = [self.value(element) for element in node.elts]
            return tuple(made) if isinstance(node, ast.Tuple) else made
        if isinstance(node, ast.NamedExpr):
            return self.value(node.value)
        raise NotShown(f"{ast.unparse(node)} is not known")

    def _of_record(self, node: ast.AST, record: Any) -> Any:
        if isinstance(record, Ref):
            if record.serial not in self.stand_ins:
                own = self.stand_ins[record.serial] = record.type()
                self.refs[own] = record
            return self.stand_ins[record.serial]
        if isinstance(record, int | float | complex | np.generic | np.ndarray | tuple):
            self.numbers[ast.unparse(node)] = record
        if isinstance(record, weakref.ref):
            record = record()
            code, name = self.code, getattr(node, "id", None)
            if record is None:
                raise NotShown("a function is gone")
            is_local = name in code.co_varnames + code.co_cellvars + code.co_freevars
            if is_local and isinstance(record, Op):
                raise NotShown(f"{name} may be another function in another call")
        return record

    def _name(self, name: str) -> Any:
        if name in self.modules:
            return self.modules[name]
        if (name,) in self.bound or name in self.code.co_varnames + self.code.co_cellvars:
            raise NotShown(f"{name} is not known")
        outer = globals_of(self.file)
        if name not in outer and hasattr(builtins, name):
            return getattr(builtins, name)
        if name in outer and name not in self.code.co_freevars and only_imported(name, self.file):
            return outer[name]
        raise NotShown(f"{name} is not known")

    def _call(self, node: ast.Call) -> Any:
        function = self.value(node.func)
        if not callable(function) or not _is_pure(function):
            raise NotShown(f"{ast.unparse(node.func)} is the user's")
        if any(isinstance(a, ast.Starred) for a in node.args) or any(
            k.arg is None for k in node.keywords
        ):
            raise NotShown("it has arguments with a star")
        arguments = [self.value(a) for a in node.args]
        return self._run(
            function, *arguments, **{str(k.arg): self.value(k.value) for k in node.keywords}
        )

    def _run(self, function: Callable, *args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception as error:  # (the text does not fit the values)
            raise NotShown(str(error)) from error


class Index:
    """The variables of a graph as built, by trace and by the user's lines.

    Parameters
    ----------
    value : callable
        Returns the value of a variable in the failing call.
    """

    def __init__(self, built: AsBuilt, value: Callable[[Variable], Any]) -> None:
        self.built = built
        self.value = value

    @cached_property
    def variables(self) -> list[Variable]:
        """All variables of the graph and of the graphs inside."""
        nodes = [
            *self.built.copies.values(),
            *(n for b in self.built.bodies for n in b.graph.apply_nodes),
        ]
        inputs = [v for n in nodes for v in n.inputs if v.owner is None]
        inputs += [v for b in self.built.bodies for v in b.graph.inputs]
        return list(dict.fromkeys([*(v for n in nodes for v in n.outputs), *inputs]))

    @cached_property
    def by_serial(self) -> dict[int, list[Variable]]:
        """The variables by the number of their trace."""
        found: dict[int, list[Variable]] = {}
        for v in self.variables:
            trace = trace_of(v)
            if trace is not None:
                found.setdefault(trace.serial, []).append(v)
        return found

    @cached_property
    def _by_line(self) -> dict[tuple[str, int], list[tuple[Variable, int, Any]]]:
        found: dict[tuple[str, int], list[tuple[Variable, int, Any]]] = {}
        for v in self.variables:
            for depth, entry in enumerate(user_entries(v) if v.owner is not None else ()):
                found.setdefault((entry[0], entry[1]), []).append((v, depth, entry))
        return found

    def _at(self, file: str, node: Any) -> Iterator[tuple[Variable, int, Any]]:
        """Yield the variables that a line of an expression has built or called for."""
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1):
            yield from self._by_line.get((file, line), ())

    def uses(self, file: str, node: Any) -> list[Variable]:
        """Return the variables that an expression itself has built."""
        found = []
        for v, depth, entry in self._at(file, node):
            if depth == 0:
                at = expression_at(entry)
                if at is not None and _is_same_place(at.node, node):
                    found.append(v)
        return found

    def built_under(self, node: Any, reader: Reader) -> list[Variable]:
        """Return the results that a call of the user's made for the variable of a reader."""
        above = set(ancestors([reader.variable]))
        under = []
        for v, depth, entry in self._at(reader.file, node) if hasattr(node, "lineno") else ():
            if v in above and (depth > 0 or isinstance(node, ast.Call)):
                at = expression_at(entry)
                if at is not None and _is_same_place(at.node, node):
                    under.append(v)
        inside = {v for u in under for v in (u.owner.inputs if u.owner is not None else ())}
        return [v for v in under if v not in inside]


def _is_same_place(one: Any, other: Any) -> bool:
    return (
        one is other
        or all(
            getattr(one, name, None) == getattr(other, name, None)
            for name in ("lineno", "col_offset", "end_lineno", "end_col_offset")
        )
        and type(one) is type(other)
    )


def unified(text: Variable, variable: Variable, found: dict[Variable, Variable]) -> bool:
    """Return whether a graph is a variable, but for the leaves, which are put into `found`.

    `found` gets what each variable of the graph is.
    """
    if text in found:
        return _is_equal(found[text], variable)
    is_leaf = text.owner is None and not isinstance(text, Constant)
    if not is_leaf and (isinstance(text, Constant) or isinstance(variable, Constant)):
        same = (
            isinstance(text, Constant)
            and isinstance(variable, Constant)
            and text.type == variable.type
            and text.signature() == variable.signature()
        )
        if same:
            found[text] = variable
        return same
    if is_leaf:
        if not text.type.is_super(variable.type) and not variable.type.is_super(text.type):
            return False
        found[text] = variable
        return True
    if variable.owner is None or text.index != variable.index:
        return False
    if text.owner.op != variable.owner.op or len(text.owner.inputs) != len(variable.owner.inputs):
        return False
    pairs = zip(text.owner.inputs, variable.owner.inputs, strict=True)
    if not all(unified(t, v, found) for t, v in pairs):
        return False
    found[text] = variable
    return True


def same_but_for(
    one: Variable, leaves: Sequence[Variable], other: Variable, others: Sequence[Variable]
) -> bool:
    """Return whether two variables are the same expression of some leaves each."""
    if one in leaves or other in others:
        return (one, other) in zip(leaves, others, strict=False)
    if isinstance(one, Constant) and isinstance(other, Constant):
        return bool(one.signature() == other.signature())
    if one.owner is None or other.owner is None or one.owner.op != other.owner.op:
        return False
    pairs = zip(one.owner.inputs, other.owner.inputs, strict=True)
    same = all(same_but_for(a, leaves, b, others) for a, b in pairs)
    return same and one.index == other.index


def _is_equal_number(one: Any, other: Any) -> bool:
    """Return whether a Python value is the number or the array of a constant."""
    return (
        isinstance(one, int | float | np.generic | np.ndarray)
        and np.shape(one) == np.shape(other)
        and bool(np.all(np.asarray(one) == other))
    )


def _is_equal(one: Variable, other: Variable) -> bool:
    """Return whether two variables of a graph are the same expression."""
    if one is other:
        return True
    if isinstance(one, Constant) and isinstance(other, Constant):
        return bool(one.signature() == other.signature())
    if one.owner is None or other.owner is None or one.owner.op != other.owner.op:
        return False
    pairs = zip(one.owner.inputs, other.owner.inputs, strict=True)
    return one.index == other.index and all(_is_equal(a, b) for a, b in pairs)


@dataclass(eq=False)
class Use:
    """A variable that the user's expression has built, and what its text means there.

    Parameters
    ----------
    variable : Variable
        Of the graph as built.
    reader : Reader
    old : Variable
        The user's expression, evaluated.
    meant : dict of Variable to Variable
        What the stand-ins, and what is computed from them, are in the graph.
    """

    variable: Variable
    reader: Reader
    old: Variable
    meant: dict[Variable, Variable]
    names: dict[Variable, list[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, index: Index, variable: Variable) -> "Use":
        """Show that the text is the variable.

        Raises
        ------
        NotShown
        """
        reader = Reader(index, variable)
        if not isinstance(reader.node, ast.expr):
            raise NotShown("a statement has built the variable")
        old = reader.value(reader.node)
        meant: dict[Variable, Variable] = {}
        if not isinstance(old, Variable) or not unified(old, variable, meant):
            raise NotShown("the text on the line is not the variable of the graph")
        for own, ref in reader.refs.items():
            known = index.by_serial.get(ref.serial)
            if own in meant and known and meant[own] not in known:
                raise NotShown(f"{ref.name} was bound to another variable")
        for key in reader.holes:
            own = reader.stand_ins[key]
            if own in meant and meant[own] not in index.built_under(reader.holes[key], reader):
                raise NotShown("a call returned another variable")
        found = cls(variable, reader, old, meant)
        found._name_all()
        return found

    def _name_all(self) -> None:
        """Note how the line writes the variables of the graph: first what stands on the line."""
        for node, own in self.reader.seen:
            variable = self.meant.get(own)
            if variable is None or isinstance(variable, Constant) or node is self.reader.node:
                continue
            text, known = ast.unparse(node), self.names.setdefault(variable, [])
            if isinstance(node, ast.NamedExpr):  # (the name must stay bound)
                known.insert(0, f"({text})")
            elif text not in known:
                known.append(text)
        for path, record in self.reader.known.items():
            found = self.reader.index.by_serial.get(getattr(record, "serial", -1), ())
            if len(found) == 1 and text_of(path) not in self.names.setdefault(found[0], []):
                self.names[found[0]].append(text_of(path))

    def means(self, text: str, variable: Variable) -> bool:
        """Return whether a text on the line is a variable of the graph."""
        try:
            own = self.reader.value(ast.parse(text, mode="eval").body)
            if not isinstance(own, Variable):
                return isinstance(variable, Constant) and _is_equal_number(own, variable.data)
            return unified(own, variable, self.meant | self._leaves_of(own))
        except NotShown:
            return False

    def with_names(self, text: str) -> str:
        """Return a text with the names that the line has for what parts of it compute."""
        read = set(ancestors([self.variable])) - {self.variable}
        named = {
            name: v
            for v, names in self.names.items()
            for name in names
            if name.isidentifier() and v.owner is not None and v in read
        }
        tree = ast.parse(text, mode="eval").body
        written = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
        return ast.unparse(_Named(self, named).visit(tree)) if named.keys() - written else text

    def edited(self, text: ast.expr, modules: Mapping[str, ModuleType]) -> Callable:
        """Return what builds the variable as new text computes it.

        Raises
        ------
        NotShown
            If the text cannot be evaluated, or gives another type.
        """
        self.reader.modules = dict(modules)
        before = set(self.reader.holes)
        new = self.reader.value(text)
        if not isinstance(new, Variable):
            raise NotShown("the new text is no variable")
        old = self.old.type
        if new.type.dtype != old.dtype or new.type.ndim != old.ndim:
            raise NotShown(f"the new text has the type {new.type}")
        if set(self.reader.holes) != before:
            raise NotShown("the new text calls other functions of the user's")
        leaves = self._leaves_of(new)
        return lambda given: _copied(new, {own: given(v) for own, v in leaves.items()})

    def _meaning(self, own: Variable) -> Variable:
        ref = self.reader.refs.get(own)
        known = self.reader.index.by_serial.get(ref.serial, ()) if ref is not None else ()
        if len(known) != 1:
            raise NotShown("a name means no variable of the graph")
        return known[0]

    def operands(self, text: ast.expr) -> list[Variable]:
        """Return the variables of the graph that a text reads."""
        return list(self._leaves_of(self.reader.value(text)).values())

    def _leaves_of(self, new: Variable) -> dict[Variable, Variable]:
        """Return what the leaves of a text's value are in the graph."""
        leaves = (v for v in ancestors([new]) if v.owner is None and not isinstance(v, Constant))
        return {v: self.meant[v] if v in self.meant else self._meaning(v) for v in leaves}


class _Named(ast.NodeTransformer):
    """Puts names in the place of expressions that are the same variables."""

    def __init__(self, use: Use, named: Mapping[str, Variable]):
        self.use, self.named = use, named

    def visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.BinOp | ast.UnaryOp | ast.Call | ast.Subscript):
            text = ast.unparse(node)
            for name, variable in self.named.items():
                if len(name) < len(text) and self.use.means(text, variable):
                    return ast.Name(name, ast.Load())
        return self.generic_visit(node)


def _copied(result: Variable, made: dict[Variable, Variable]) -> Variable:
    """Return a small graph with other leaves."""

    def copy(v: Variable) -> Variable:
        if v in made or v.owner is None:
            return made.get(v, v)
        node: Apply = v.owner
        outputs = applied_to(node, [copy(i) for i in node.inputs])
        made.update(zip(node.outputs, outputs, strict=True))
        return made[v]

    return copy(result)


def uses_of(index: Index, variable: Variable) -> list[Use]:
    """Return all uses of the expression that built a variable, the variable's own first.

    Raises
    ------
    NotShown
        If one of the variables that the expression has built is not what it says.
    """
    first = Use.of(index, variable)
    found, inside = [first], set(first.meant.values())
    left = []
    others = [v for v in index.uses(first.reader.file, first.reader.node) if v is not variable]
    if len(others) > MAX_USES:
        raise NotShown("the line has built too many variables")
    for v in others:
        try:
            use = Use.of(index, v)
        except NotShown:
            left.append(v)
            continue
        found.append(use)
        inside |= set(use.meant.values())
    if any(v not in inside for v in left):
        raise NotShown("the line has built something else")
    return found


IMPORTS = {
    "np": ("numpy", "import numpy as np"),
    "pt": ("pytensor.tensor", "import pytensor.tensor as pt"),
    "theanoguard": ("theanoguard", f"import {STABLE}"),
}
"""Modules that a printed line may import: by name, the module and the statement."""


@dataclass(frozen=True)
class Shown:
    """An edit of an expression that was shown to be what it says.

    Parameters
    ----------
    uses : list of Use
        All variables that the expression has built.
    text : str
        The new expression.
    imports : tuple of str
        What must be imported above the line.
    builders : dict of Variable to callable
        As :func:`theanoguard.stable.patterns.rebuild` takes them.
    operands : dict of Variable to list of Variable
        What the new expression reads, for each use.
    """

    uses: list[Use]
    text: str
    imports: tuple[str, ...]
    builders: dict[Variable, Callable]
    operands: dict[Variable, list[Variable]]


def shown(uses: list[Use], text: str, kernels: Any) -> Shown:
    """Show what new text in place of an expression computes, for all of its uses.

    Raises
    ------
    NotShown
    """
    new = ast.parse(text, mode="eval").body
    first = uses[0].reader
    if _named(first.node) != _named(new):
        raise NotShown("a name that the line binds would be lost")
    missing = {n.id for n in ast.walk(new) if isinstance(n, ast.Name)} & IMPORTS.keys()
    needed = {name for name in missing if not _is_module(uses[0], name)}
    if any(not _is_free(first, name) for name in needed):
        raise NotShown("a name of a module means something else on this line")
    if needed & {"pt", "theanoguard"} and name_of_theano(first.file, first.entry[3] or ""):
        raise NotShown("Theano does not have such a function")
    modules = {name: sys.modules[IMPORTS[name][0]] for name in needed}
    builders = {use.variable: use.edited(new, modules) for use in uses}
    operands = {use.variable: use.operands(new) for use in uses}
    for use in uses:
        _keeps_numbers(use, new, operands[use.variable], kernels)
    return Shown(uses, text, tuple(IMPORTS[n][1] for n in sorted(needed)), builders, operands)


def _named(tree: ast.AST) -> list[str]:
    """Return the expressions that a tree gives names."""
    return sorted(ast.dump(n) for n in ast.walk(tree) if isinstance(n, ast.NamedExpr))


def _is_module(use: Use, name: str) -> bool:
    try:
        return isinstance(use.reader.value(ast.Name(name, ast.Load())), ModuleType)
    except NotShown:
        return False


def _is_free(reader: Reader, name: str) -> bool:
    """Return whether a name means nothing in the file yet."""
    is_local = name in reader.code.co_varnames + reader.code.co_cellvars + reader.code.co_freevars
    found = globals_of(reader.file).get(name)
    is_other = found is not None and not isinstance(found, ModuleType)
    return (
        not is_local
        and not is_other
        and only_imported(name, reader.file)
        and (name,) not in reader.known
    )


def numbers_of(use: Use, operands: Sequence[Variable]) -> dict[str, Any]:
    """Return the numbers with names that a variable is computed with, from some operands.

    Raises
    ------
    NotShown
        If a number has no name where the variable is written.
    """
    numbers = dict(use.reader.numbers)
    own = set(use.meant.values())
    seen: set[Any] = set()
    todo = [use.variable]
    while todo:
        v = todo.pop()
        if v in seen or v in operands or v.owner is None:
            continue
        seen.add(v)
        todo += v.owner.inputs
        if v in own and v is not use.variable and not _is_leaf(use, v):
            continue
        entry, node = expression_node(v)
        if node is None or node is use.reader.node:
            continue
        reader = Reader(use.reader.index, v)
        reader.value(node)
        for text, number in reader.numbers.items():
            path = path_of(ast.parse(text, mode="eval").body)
            here = use.reader.known.get(path) if path is not None else None
            if reader.code is not use.reader.code or not _is_same(here, number):
                raise NotShown(f"{text} is not a name of this line")
            numbers[text] = number
    return numbers


def _is_leaf(use: Use, variable: Variable) -> bool:
    """Return whether the text of a use has a variable as a name or a call of the user's."""
    return any(use.meant.get(own) is variable for own in use.reader.stand_ins.values())


def _is_same(one: Any, other: Any) -> bool:
    return one is other or (type(one) is type(other) and bool(np.all(one == other)))


def _keeps_numbers(use: Use, new: ast.expr, operands: Sequence[Variable], kernels: Any) -> None:
    """Show that the user's numbers are written by name: with others it is the same function."""
    numbers = numbers_of(use, operands)
    written = {ast.unparse(n) for n in ast.walk(new) if isinstance(n, ast.expr)}
    for key, node in use.reader.holes.items():
        own = use.meant.get(use.reader.stand_ins[key])
        if own is not None and own not in operands:
            _is_one_function(use, node)
    for text in numbers:
        if text not in written and text not in use.reader.numbers:
            raise NotShown(f"{text} is not in the new text")
        if text in use.reader.numbers and not _agrees_with_others(use, new, text, kernels):
            raise NotShown(f"with another number for {text} it is another function")


def _is_one_function(use: Use, node: ast.AST) -> None:
    """Show that a call can only be of one function of the user's."""
    name = getattr(getattr(node, "func", None), "id", None)
    code = use.reader.code
    if name is None or name in code.co_varnames + code.co_cellvars + code.co_freevars:
        raise NotShown("the line calls a function that may be another one")


def _agrees_with_others(use: Use, new: ast.expr, text: str, kernels: Any) -> bool:
    """Return whether the old and the new text agree with other numbers in place of one."""
    reader = use.reader
    number = reader.numbers[text]
    others = _others(number)
    compared = False
    rng = np.random.default_rng(0)
    try:
        for other in others:
            reader.changed = {text: other}
            try:
                old_value, new_value = reader.value(reader.node), reader.value(new)
            except NotShown:
                continue
            leaves = [
                v
                for v in ancestors([old_value, new_value])
                if v.owner is None and not isinstance(v, Constant)
            ]
            if any(v not in use.meant for v in leaves):
                return text in {ast.unparse(n) for n in ast.walk(new) if isinstance(n, ast.expr)}
            given = {v: _sample(v, use, rng) for v in leaves}
            run = Replay(None, given, kernels)
            with np.errstate(all="ignore"):
                one, two = (np.asarray(run.value(v), dtype=float) for v in (old_value, new_value))
                both = np.isfinite(one) & np.isfinite(two) if one.shape == two.shape else None
                if both is None or not np.allclose(one[both], two[both], 1e-4, 1e-6):
                    return False
            compared = compared or bool(np.any(both))
    finally:
        reader.changed = {}
    return compared


def _others(number: Any) -> list[Any]:
    """Return other numbers of the same kind."""
    if isinstance(number, bool | np.bool_):
        return [not number]
    if isinstance(number, int | np.integer):
        return [number + 1, number + 4]
    if isinstance(number, float | np.floating):
        return [type(number)(0.7 * number + 0.3), type(number)(1.9 * number + 0.1)]
    if isinstance(number, np.ndarray) and number.dtype.kind == "f":
        return [(0.7 * number + 0.3).astype(number.dtype)]
    return []


def _sample(own: Variable, use: Use, rng: Any) -> Any:
    """Return a value like that of the failing call, of moderate size."""
    value = np.asarray(use.reader.index.value(use.meant[own]))
    if value.dtype.kind != "f":
        return value
    return np.asarray(rng.uniform(0.2, 1.4, value.shape), value.dtype)
