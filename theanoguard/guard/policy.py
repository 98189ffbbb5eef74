"""The settings of a guard: which values are bad, which are exempt, and what to do about them."""

import difflib
import logging
import operator
import secrets
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal, Protocol, TypeAlias, get_args, runtime_checkable

import numpy as np
from pytensor.compile.ops import TypeCastingOp
from pytensor.graph.basic import Apply
from pytensor.graph.features import Feature
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import HasInnerGraph, Op
from pytensor.tensor.basic import TensorFromScalar

from theanoguard._arguments import did_you_mean, shown
from theanoguard._event import GuardEvent
from theanoguard._provenance import thawed_variables, user_stacklevel
from theanoguard._pytensor import Function, Variable, config, scalar_ops_of
from theanoguard._values import BadKind, arrays_in, is_sparse, kind_of
from theanoguard.operations import Kind
from theanoguard.operations.regions import NUMPY, Arrays, dtype_kind, unmarked

logger = logging.getLogger("theanoguard")

Action: TypeAlias = Literal["raise", "warn", "record", "pdb"]
Judge: TypeAlias = Literal["node", "result"]
When: TypeAlias = Literal["now", "later"]

ACTIONS = get_args(Action)


@runtime_checkable
class Measures(Protocol):
    """The settings of measured calls, and the class of a function that has them."""

    every: int

    @staticmethod
    def function_class(base: type[Function]) -> type[Function]: ...


@dataclass(frozen=True)
class Counts:
    """How many elements of a value are bad, and which is the first."""

    kind: BadKind  # the kind of the first bad element
    index: tuple[int, ...]  # its index; "first" is in C order
    value: Any  # that element
    size: int
    n_nan: int
    n_posinf: int
    n_neginf: int
    n_big: int

    def event(self, **place: Any) -> GuardEvent:
        """Return the event of a value with these elements; `place` has the other fields."""
        return GuardEvent(
            kind=self.kind,
            size=self.size,
            n_nan=self.n_nan,
            n_posinf=self.n_posinf,
            n_neginf=self.n_neginf,
            n_big=self.n_big,
            first_index=self.index,
            first_value=self.value,
            **place,
        )


@dataclass(frozen=True)
class Policy:
    """The settings of a guard, checked and in one form."""

    #: `nan`, `inf`, `big`: which kinds of element are bad.  An infinite element counts as big too,
    #: as in PyTensor's NanGuardMode.
    nan: bool
    inf: bool
    big: bool
    #: Whether every bad element is an error.  Otherwise an infinite or big one is an error only
    #: where an operation makes it, and where it enters (:mod:`~theanoguard.guard.verdict`).
    anywhere: bool = False
    big_threshold: float = 1e10  # magnitudes above it are big
    check_integers: bool = False  # whether big integers are bad as well
    #: Whether Numba's code checks that indices are inside of their arrays.
    check_indices: bool = True
    #: Whether inputs, shared variables and constants are checked where they enter.
    check_inputs: bool | Literal["trusted"] = True
    #: Whether a call that fails leaves the arrays of shared variables as they were.
    restore: bool = True
    #: Whether a bad value counts where it is made, or only if an output or an update of the call is
    #: bad; ``judge(results)`` says it of a list of them.
    judge: Judge | Callable = "node"
    #: Whether the checks that the plan leaves out are done as well, and have to agree, and each
    #: call is compared with one without a guard.
    audit: bool = False
    every: int = 1  # one call in so many is looked at
    when: When | None = None  # when the flag of a call is read on JAX; None depends on the device
    precision: "Measures | None" = None  # which calls are followed by a measurement of their digits
    history: bool = False  # whether the calls are recorded
    snapshots: int = 0  # how many copies of the shared variables a recording keeps
    action: Action | Callable = "raise"  # one of `ACTIONS`, or a callable that receives the event
    names: tuple[str, ...] = ()  # patterns (as in a shell) of names of variables that are left out
    #: Classes of operations (or of scalar operations inside ``Elemwise``) whose outputs are left
    #: out.
    ops: tuple[type, ...] = ()
    tell_fate: bool = False  # whether the report says if the bad value reaches an output
    token: str | None = None  # mark carried in the tags of variables that are left out one by one

    @property
    def trusted(self) -> bool:
        """Whether a shared variable may be taken to hold what the last call left in it."""
        return self.check_inputs == "trusted"

    @property
    def looked_for(self) -> Kind:
        """Which of NaN and Inf are errors.  Where big values are errors, an Inf is one as well."""
        nan = Kind.NAN if self.nan else Kind.NONE
        return nan | (Kind.INF if self.inf or self.big else Kind.NONE)

    @property
    def by_result(self) -> bool:
        """Whether a bad value counts only if it spoils the results of the call."""
        return self.judge != "node"

    @property
    def calls_back(self) -> bool:
        """Whether a bad value leads to code of the user's, which may call the function again."""
        return callable(self.action) or self.action == "pdb"

    def is_spoiled(self, results: Iterable[Any]) -> bool:
        """Whether the results of a call are bad, as `judge` decides it."""
        if callable(self.judge):
            return bool(self.judge(list(results)))
        return any(map(self.is_bad, results))

    def exempts(self, variable: Variable) -> bool:
        """Whether the user has exempted `variable`."""
        tag = variable.tag
        if not getattr(tag, "nan_guard_mode_check", True):
            return True
        if self.token is not None and self.token in getattr(tag, "theanoguard_exempt", ()):
            return True
        names = {variable.name, *getattr(tag, "theanoguard_names", ())} - {None}
        if any(fnmatchcase(name, pattern) for name in names for pattern in self.names):
            return True
        node = variable.owner
        if node is None or not self.ops:
            return False
        return isinstance(node.op, self.ops) or any(
            isinstance(op, self.ops) for op in scalar_ops_of(node.op, variable.index)
        )

    def kinds(
        self, array: Any, everything: bool = False, arrays: Arrays = NUMPY
    ) -> tuple[Any, Any, Any]:
        """Return the masks of the elements that are NaN, infinite, and big.

        A kind that is not an error has an empty mask, unless `everything` is True.  If big elements
        are errors and infinite ones are not, infinite elements count as big.  The array belongs to
        the library of `arrays`.
        """
        array = arrays.xp.asarray(array)
        nan = inf = big = unmarked(arrays, array)
        kind = dtype_kind(array)
        with np.errstate(all="ignore"):
            if kind in "fc":
                isnan = arrays.xp.isnan(array)
                isinf = arrays.xp.isinf(array) & ~isnan
                nan = isnan if self.nan or everything else nan
                inf = isinf if self.inf or everything else inf
            if self.big and (kind in "fc" or (kind in "iu" and self.check_integers)):
                big = arrays.exceeds(array, self.big_threshold) & ~inf
        return nan, inf, big

    def mask(self, array: Any) -> np.ndarray:
        """Return the boolean mask of the bad elements of `array`."""
        return np.logical_or.reduce(self.kinds(array))

    def is_bad(self, value: Any) -> bool:
        """Whether any number in `value` (array, sparse matrix, list, scalar) is bad."""
        return any(bool(self.mask(array).any()) for array in arrays_in(value))

    def count(self, value: Any, masks: Sequence[np.ndarray] | None = None) -> Counts:
        """Return the `Counts` of a bad value, or of the elements of its arrays in `masks`."""
        arrays = list(arrays_in(value))
        masks = [self.mask(array) for array in arrays] if masks is None else masks
        which = next(i for i, mask in enumerate(masks) if mask.any())
        array, mask = arrays[which], masks[which]
        at = np.unravel_index(int(np.argmax(mask)), array.shape)
        first = array[at]
        index = tuple(int(i) for i in at)
        if is_sparse(value):
            coo = value.tocoo()
            index = (int(coo.row[index[0]]), int(coo.col[index[0]]))
        elif isinstance(value, list):
            index = (which, *index)
        n_nan = n_pos = n_neg = n_big = 0
        for a, counted in zip(arrays, masks, strict=True):
            isnan, isinf, _big = (found & counted for found in self.kinds(a, everything=True))
            negative = isinf & (a.real < 0)
            n_nan += int(isnan.sum())
            n_neg += int(negative.sum())
            n_pos += int(isinf.sum()) - int(negative.sum())
            n_big += int((counted & ~isnan & ~isinf).sum())
        return Counts(
            kind=kind_of(first),
            index=index,
            value=first.item(),
            size=sum(a.size for a in arrays),
            n_nan=n_nan,
            n_posinf=n_pos,
            n_neginf=n_neg,
            n_big=n_big,
        )


class Exemptions(Feature):
    """Passes the exemption of a variable on to the variable by which a rewrite replaces it.

    Only a variable that the rewrite has made gets it: another variable of the user's stays checked.
    """

    def on_change_input(
        self,
        fgraph: FunctionGraph,
        node: Apply,
        i: int,
        r: Variable,
        new_r: Variable,
        reason: Any = None,
    ) -> None:
        if new_r.owner is None or len(fgraph.clients[new_r]) > 1:
            return
        self.hand_on(r, new_r)
        # For Numba, PyTensor 3.3 computes scalars without an array around them.  A labelled array
        # is computed as a tensor.
        if isinstance(new_r.owner.op, TensorFromScalar | TypeCastingOp):
            [inside] = new_r.owner.inputs
            if len(fgraph.clients[inside]) == 1:
                self.hand_on(r, inside)

    def hand_on(self, r: Variable, new_r: Variable) -> None:
        """Leave `new_r` out where `r` is."""
        old, new = r.tag, new_r.tag
        if not getattr(old, "nan_guard_mode_check", True):
            new.nan_guard_mode_check = False
        names = frozenset(getattr(old, "theanoguard_names", ()))
        for key, more in (
            ("theanoguard_exempt", getattr(old, "theanoguard_exempt", ())),
            ("theanoguard_names", names | {r.name} if r.name else names),
        ):
            if more:
                setattr(new, key, frozenset(getattr(new, key, ())) | frozenset(more))


INF_IS_ERROR = ("origin", "any")


def make_policy(
    nan_is_error: bool | Literal[0, 1] | None,
    inf_is_error: bool | Literal[0, 1, "origin", "any"] | None,
    big_is_error: bool | Literal[0, 1] | None,
    *,
    big_threshold: float,
    check_integers: bool,
    check_indices: bool,
    check_inputs: bool | Literal["trusted"],
    action: Action | Callable[[GuardEvent], object] | None,
    exempt: Any,
    anywhere: bool = False,
    restore: bool = True,
    judge: Judge | Callable[[list], object] = "node",
    audit: bool = False,
    tell_fate: bool = False,
    every: int = 1,
    when: When | None = None,
    precision: "Measures | None" = None,
    history: bool = False,
    snapshots: int = 0,
) -> Policy:
    """Check the arguments of a mode and return its :class:`Policy`.

    Raises ``ValueError``, ``TypeError``: naming the argument and what is allowed.
    """
    nan, inf, big = _checked_kinds(nan_is_error, inf_is_error, big_is_error)
    big_threshold = _checked_threshold(big_threshold)
    _check_times(every, when)
    if isinstance(check_inputs, str):
        _one_of("check_inputs", check_inputs, (True, False, "trusted"))
    if not callable(judge):
        _one_of("judge", judge, get_args(Judge))
    if action is None:
        action = config.NanGuardMode__action
    if not callable(action) and action not in ACTIONS:
        allowed = ", ".join(repr(name) for name in ACTIONS)
        raise ValueError(
            f"action must be one of {allowed} or a callable that takes the event, not {action!r}"
        )
    if audit and not restore:
        raise ValueError(
            "audit=True computes each call again from the values that restore=False overwrites.\n"
            "Set one of them only."
        )
    names, ops, token = _split_exempt(exempt)
    return Policy(
        nan,
        inf,
        big,
        anywhere=anywhere or inf_is_error == "any",
        big_threshold=big_threshold,
        check_integers=bool(check_integers),
        check_indices=bool(check_indices),
        check_inputs=check_inputs if check_inputs == "trusted" else bool(check_inputs),
        restore=bool(restore),
        judge=judge,
        audit=bool(audit),
        every=every,
        when=when,
        precision=precision,
        history=bool(history) or snapshots > 0,
        snapshots=snapshots,
        action=action,
        names=names,
        ops=ops,
        tell_fate=bool(tell_fate),
        token=token,
    )


def _checked_kinds(
    nan_is_error: bool | Literal[0, 1] | None,
    inf_is_error: bool | Literal[0, 1, "origin", "any"] | None,
    big_is_error: bool | Literal[0, 1] | None,
) -> list[bool]:
    """Return whether NaN, Inf and big values are errors; for None, as PyTensor is configured."""
    if isinstance(inf_is_error, str) and inf_is_error in INF_IS_ERROR:
        inf_is_error = True
    flags = {
        "nan_is_error": (nan_is_error, config.NanGuardMode__nan_is_error),
        "inf_is_error": (inf_is_error, config.NanGuardMode__inf_is_error),
        "big_is_error": (big_is_error, config.NanGuardMode__big_is_error),
    }
    values = []
    for name, (given, default) in flags.items():
        value = default if given is None else given
        if not isinstance(value, bool | np.bool_ | int):
            words = ", 'origin', 'any'" if name == "inf_is_error" else ""
            raise TypeError(f"{name} must be True, False{words} or None, not {value!r}")
        values.append(bool(value))
    if not any(values):
        raise ValueError(
            "nothing to check: nan_is_error, inf_is_error and big_is_error are all False.\n"
            "Set at least one of them to True, or compile without the guard."
        )
    return values


def _checked_threshold(big: float) -> float:
    try:
        limit = operator.index(big) if not isinstance(big, float | np.floating) else float(big)
    except TypeError:
        raise TypeError(f"big_threshold must be a positive number, not {big!r}") from None
    if not limit > 0 or np.isinf(limit):
        raise ValueError(f"big_threshold must be positive and finite, not {big!r}")
    return float(limit)


def _check_times(every: int, when: When | None) -> None:
    if not isinstance(every, int) or every < 1:
        raise ValueError(f"every must be a positive number of calls, not {every!r}")
    if when is not None:
        _one_of("when", when, get_args(When))


def _one_of(name: str, value: Any, allowed: tuple) -> None:
    if value not in allowed:
        listed = ", ".join(map(repr, allowed[:-1])) + f" or {allowed[-1]!r}"
        raise ValueError(f"{name} must be {listed}, not {value!r}")


def _split_exempt(exempt: Any) -> tuple[tuple[str, ...], tuple[type, ...], str | None]:
    if isinstance(exempt, str | type | Variable) or not isinstance(exempt, Iterable):
        exempt = (exempt,)
    names, ops, token = [], [], None
    for item in exempt:
        if isinstance(item, str):
            names.append(item)
        elif isinstance(item, type):
            ops.append(item)
        elif isinstance(item, Variable):
            token = token or secrets.token_hex(16)
            marks = getattr(item.tag, "theanoguard_exempt", ())
            item.tag.theanoguard_exempt = frozenset({*marks, token})
        else:
            classes = " or ".join(dict.fromkeys(type(op).__name__ for op in _operations(item)))
            raise TypeError(
                "exempt takes variables, patterns of names, and classes of operations, "
                f"not {shown(item)}{classes and f'; pass the class {classes}'}"
            )
    return tuple(names), tuple(ops), token


def _operations(op: Any) -> list[Op]:
    """Return the operations that a user may mean by one: the scalar ones of an ``Elemwise``."""
    return [*scalar_ops_of(op)] or [op] * isinstance(op, Op)


def warn_of_unmatched(patterns: Iterable[str], fgraph: FunctionGraph) -> None:
    """Warn of each pattern of names in ``exempt`` that no variable of a user's graph has.

    `fgraph`: FunctionGraph before it is rewritten.  Graphs inside of its operations count.
    """
    names: set[str] = set()
    classes: dict[str, type] = {}
    graphs: list[Any] = [fgraph]
    for graph in graphs:
        as_built = thawed_variables(graph)
        names |= {name for v in graph.variables if (name := as_built.get(v, v).name)}
        for node in graph.apply_nodes:
            if isinstance(node.op, HasInnerGraph):
                graphs.append(node.op.fgraph)
            classes |= {type(op).__name__: type(op) for op in (node.op, *scalar_ops_of(node.op))}
    for pattern in patterns:
        if any(fnmatchcase(name, pattern) for name in names):
            continue
        near = did_you_mean(pattern, names)
        text = f"GuardMode(exempt={pattern!r}) excludes nothing: no variable has such a name{near}"
        meant = difflib.get_close_matches(pattern.lower(), map(str.lower, classes), n=1)
        for name in (name for name in classes if name.lower() in meant):
            module = classes[name].__module__
            text += (
                "\nA string is compared with the names of variables.  To exclude an operation, "
                f"pass its class {name}:\nfrom {module} import {name}"
            )
        warnings.warn(text, stacklevel=user_stacklevel())
