"""Terms that are equal as functions, in classes; and the most accurate term of each class.

The structure is an e-graph: M. Willsey et al., *egg: fast and extensible equality saturation*, POPL
2021, https://doi.org/10.1145/3434304.  All members of a class have one exact value at each point.
So the best member is the one whose float value, computed from the best members of its operands, is
nearest to it.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
from flint import arb, ctx

from theanoguard._exact.balls import to_balls, to_floats
from theanoguard.stable.identities import FOLDED, Identity, Term
from theanoguard.stable.operations import OPERATIONS

Node: TypeAlias = tuple
"""The name of an operation and the numbers of its operands' classes; or a leaf: ("num", number),
("var", name) or ("axes", axes)."""

LEAVES = ("num", "var", "axes")
NEAR = 900  # a limit is taken from values at a distance of two to this negative power
LOST = 64.0  # the error in bits of a value that is not finite


@dataclass(frozen=True)
class Points:
    """Values of the leaves at some points."""

    #: Of each leaf.  The first axis is that of the points, then come those of the widest leaf.
    values: Mapping[str, np.ndarray]
    lengths: Mapping[int, int]  # the number of elements along an axis, counted from the end
    weights: np.ndarray  # of each point
    #: How far leaves are moved for an exact value, in units of 2**-900.
    moved: Mapping[str, np.ndarray] = field(default_factory=dict)

    @property
    def dtype(self) -> np.dtype:
        """Of the leaves."""
        return next(iter(self.values.values())).dtype

    def joined(self, others: "Points", rows: Sequence[int]) -> "Points":
        """Return the points with some others of the same leaves."""
        values = {n: np.concatenate([v, others.values[n][rows]]) for n, v in self.values.items()}
        return Points(values, self.lengths, np.concatenate([self.weights, np.ones(len(rows))]))

    def widened(self, x: np.ndarray, axes: Sequence[int]) -> np.ndarray:
        """Return an array that is broadcast along the axes of a reduction."""
        shape = list(x.shape)
        for axis in axes:
            shape[axis] = self.lengths[axis]
        return np.broadcast_to(x, shape)

    def applied(self, head: str, operands: Sequence[Any], exact: bool) -> np.ndarray:
        """Return the value of an operation."""
        op = OPERATIONS[head]
        shape = (1,) * next(iter(self.values.values())).ndim
        if head == "len":
            length = np.prod([self.lengths[axis] for axis in operands[0]])
            found = np.full(shape, length, dtype=self.dtype)
            return to_balls(found) if exact else found
        if op.reduces:
            operands = [operands[0], self.widened(operands[1], operands[0])]
        with np.errstate(all="ignore"):
            found = (op.exact if exact else op.floats)(*operands)
        return found if exact else np.asarray(found, dtype=self.dtype)

    def leaf(self, node: Node, exact: bool) -> Any:
        """Return the value of a leaf."""
        kind, what = node
        if kind == "axes":
            return what
        if kind == "var" and exact:
            found = to_balls(self.values[what])
            steps = self.moved.get(what)
            return found if steps is None else found + to_balls(steps) * arb(2) ** -NEAR
        if kind == "var":
            return self.values[what]
        shape = (1,) * next(iter(self.values.values())).ndim
        if exact:
            return np.full(shape, arb(what.numerator) / arb(what.denominator), dtype=object)
        return np.full(shape, float(what), dtype=self.dtype)

    def value(
        self, term: Term, exact: bool, noise: np.random.Generator | None = None
    ) -> np.ndarray:
        """Return the value of a term; with `noise`, each operation rounds to one side at random."""
        if not isinstance(term, tuple):
            node = ("var", term) if isinstance(term, str) else ("num", term)
            return self.leaf(node, exact)
        head, *operands = term
        if OPERATIONS[head].reduces:
            rest = [self.value(x, exact, noise) for x in operands[1:]]
            found = self.applied(head, [operands[0], *rest], exact)
        else:
            found = self.applied(head, [self.value(x, exact, noise) for x in operands], exact)
        if noise is None:
            return found
        steps = noise.choice([-1, 0, 1], found.shape) * np.finfo(found.dtype).eps
        with np.errstate(all="ignore"):
            return (found * (1 + steps)).astype(found.dtype)


@dataclass
class Member:
    """The best member of a class that is known."""

    score: tuple[float, ...]
    size: int
    value: Any
    term: Term
    nodes: frozenset[Node]


class EGraph:
    """Classes of terms that are equal as functions.

    - `varies`: the axes along which each leaf varies.
    - `limit`: the largest number of classes.
    """

    def __init__(self, varies: Mapping[str, frozenset[int]], limit: int = 1500):
        self.limit = limit
        self.nodes: dict[int, dict[Node, None]] = {}  # (an order that does not change)
        self.axes: dict[int, frozenset[int]] = {}
        self.origins: dict[Node, Identity] = {}
        self.rounds = 0
        self._leaf_axes = varies
        self._parent: list[int] = []
        self._known: dict[Node, int] = {}

    def find(self, i: int) -> int:
        """Return the number of the class that a number stands for now."""
        while self._parent[i] != i:
            self._parent[i] = self._parent[self._parent[i]]
            i = self._parent[i]
        return i

    def _now(self, node: Node) -> Node:
        return node if node[0] in LEAVES else (node[0], *map(self.find, node[1:]))

    def add(self, node: Node, identity: Identity | None = None) -> int:
        """Return the class of a node, which is a new one if the node is."""
        node = self._now(node)
        if node in self._known:
            return self.find(self._known[node])
        i = len(self._parent)
        self._parent.append(i)
        self.nodes[i] = {node: None}
        self._known[node] = i
        self.axes[i] = self._axes_of(node)
        if identity is not None:
            self.origins[node] = identity
        return i

    def _axes_of(self, node: Node) -> frozenset[int]:
        head, *rest = node
        if head in LEAVES:
            return self._leaf_axes.get(rest[0], frozenset()) if head == "var" else frozenset()
        if OPERATIONS[head].reduces:
            if head == "len":
                return frozenset()
            inside, axes = self.axes[rest[1]], self.axes_in(rest[0])
            return inside | axes if head in ("softmax", "log_softmax") else inside - axes
        return frozenset().union(*(self.axes[i] for i in rest))

    def axes_in(self, i: int) -> frozenset[int]:
        """Return the axes of a reduction that a class holds."""
        return next(
            (frozenset(n[1]) for n in self.nodes[self.find(i)] if n[0] == "axes"), frozenset()
        )

    def put(
        self,
        term: Term,
        letters: Mapping[str, int] | None = None,
        identity: Identity | None = None,
    ) -> int:
        """Return the class of a term; its letters stand for classes, if those are given."""
        if isinstance(term, str):
            return self.add(("var", term)) if letters is None else letters[term]
        if not isinstance(term, tuple):
            return self.add(("num", term))
        head, *operands = term
        if letters is None and OPERATIONS[head].reduces:
            rest = [self.put(x, letters, identity) for x in operands[1:]]
            return self.add((head, self.add(("axes", operands[0])), *rest), identity)
        return self.add((head, *(self.put(x, letters, identity) for x in operands)), identity)

    def union(self, i: int, j: int) -> bool:
        """Make one class of two; return whether they were two."""
        i, j = self.find(i), self.find(j)
        if i == j:
            return False
        if len(self.nodes[i]) < len(self.nodes[j]):
            i, j = j, i
        self._parent[j] = i
        self.nodes[i] |= self.nodes.pop(j)
        self.axes[i] &= self.axes.pop(j)
        return True

    def rebuild(self) -> None:
        """Make one class of those with equal nodes."""
        while True:
            seen: dict[Node, int] = {}
            equal = []
            for i, nodes in self.nodes.items():
                fresh: dict[Node, None] = {}
                for node in nodes:
                    now = self._now(node)
                    fresh[now] = None
                    if now != node and node in self.origins:
                        self.origins.setdefault(now, self.origins[node])
                    if seen.setdefault(now, i) != i:
                        equal.append((seen[now], i))
                self.nodes[i] = fresh
            self._known = {node: self.find(i) for node, i in seen.items()}
            if not any([self.union(i, j) for i, j in equal]):
                return

    def number(self, i: int) -> Fraction | None:
        """Return the number that a class holds, or None."""
        return next((n[1] for n in self.nodes[self.find(i)] if n[0] == "num"), None)

    def fold(self) -> None:
        """Compute what is made of numbers only."""
        for i in list(self.nodes):
            if i not in self.nodes or self.number(i) is not None:
                continue
            for node in self.nodes[i]:
                if node[0] in FOLDED:
                    numbers = [self.number(j) for j in node[1:]]
                    if None in numbers or (node[0] == "div" and numbers[1] == 0):
                        continue
                    found = Fraction(FOLDED[node[0]](*numbers))
                    if abs(found.numerator) < 10**18 and found.denominator < 10**18:
                        self.union(i, self.add(("num", found)))
                    break

    def _matches(
        self, pattern: Term, i: int, letters: dict[str, int], heads: Mapping[int, dict]
    ) -> Iterator[dict[str, int]]:
        i = self.find(i)
        if isinstance(pattern, str):
            if pattern not in letters:
                yield {**letters, pattern: i}
            elif self.find(letters[pattern]) == i:
                yield letters
        elif not isinstance(pattern, tuple):
            if ("num", pattern) in self.nodes[i]:
                yield letters
        else:
            for node in heads[i].get(pattern[0], ()):
                yield from self._matches_all(pattern[1:], node[1:], letters, heads)

    def _matches_all(
        self,
        patterns: Sequence[Term],
        classes: Sequence[int],
        letters: dict[str, int],
        heads: Mapping[int, dict],
    ) -> Iterator[dict[str, int]]:
        if not patterns:
            yield letters
            return
        for found in self._matches(patterns[0], classes[0], letters, heads):
            yield from self._matches_all(patterns[1:], classes[1:], found, heads)

    def _allows(self, identity: Identity, letters: Mapping[str, int]) -> bool:
        for letter, holds, limit in identity.limits:
            number = self.number(letters[letter])
            if number is not None and not holds(number, limit):
                return False
        if not identity.fixed:
            return True
        axes = self.axes_in(letters["i"])
        return all(not self.axes[self.find(letters[b])] & axes for b in identity.fixed)

    def saturate(self, rules: Iterable["Rule"], rounds: int, seconds: float) -> None:
        """Apply identities until nothing is new, or until a limit is reached."""
        start = time.thread_time()
        rules = list(rules)
        for _ in range(rounds):
            heads: dict[int, dict[str, list[Node]]] = {}
            classes: dict[str, list[int]] = {}
            for i, nodes in self.nodes.items():
                of_class: dict[str, list[Node]] = {}
                for node in nodes:
                    of_class.setdefault(node[0], []).append(node)
                heads[i] = of_class
                for head in of_class:
                    classes.setdefault(head, []).append(i)
            found = []
            for rule in rules:
                for i in classes.get(rule.left[0], ()):
                    for letters in self._matches(rule.left, i, {}, heads):
                        found.append((rule, letters, i))
                if time.thread_time() - start > seconds:
                    break
            before = len(self._parent)
            for rule, letters, i in found:
                if self._allows(rule.identity, letters):
                    self.union(i, self.put(rule.right, letters, rule.identity))
                if len(self._parent) > self.limit:
                    break
            self.rebuild()
            self.fold()
            self.rebuild()
            self.rounds += 1
            full = len(self._parent) > self.limit or time.thread_time() - start > seconds
            if full or len(self._parent) == before:
                return

    # -- values

    def exact_values(self, points: Points) -> dict[int, np.ndarray]:
        """Return the exact value of each class, from the member that has one at most points.

        The members that no identity has made come first.
        """
        found: dict[int, np.ndarray] = {}
        open_at: dict[int, int] = {}
        order = {
            i: sorted(nodes, key=lambda n: (n[0] not in LEAVES, n in self.origins))
            for i, nodes in self.nodes.items()
        }
        progress = True
        while progress:
            progress = False
            for i, nodes in order.items():
                if open_at.get(i) == 0:
                    continue
                for node in nodes:
                    if node[0] == "axes":
                        break
                    if node[0] in LEAVES:
                        value = points.leaf(node, exact=True)
                    else:
                        operands = self._operands(node, found)
                        if operands is None:
                            continue
                        value = points.applied(node[0], operands, exact=True)
                    missing = sum(not x.is_finite() for x in value.ravel())
                    if i not in open_at or missing < open_at[i]:
                        found[i], open_at[i] = value, missing
                        progress = True
                    if missing == 0:
                        break
        return found

    def _operands(self, node: Node, values: Mapping[int, Any]) -> list[Any] | None:
        operands = []
        for k, child in enumerate(node[1:]):
            if k == 0 and OPERATIONS[node[0]].reduces:
                axes = next(n[1] for n in self.nodes[self.find(child)] if n[0] == "axes")
                operands.append(axes)
            elif self.find(child) in values:
                operands.append(values[self.find(child)])
            else:
                return None
        return operands

    def best(self, points: Points, exact: Mapping[int, np.ndarray]) -> dict[int, list[Member]]:
        """Return the members of each class with the smallest errors, the best one first."""
        true = {i: to_floats(v) for i, v in exact.items()}
        best: dict[int, Member] = {}
        others: dict[int, dict[Node, Member]] = {}
        changed = set(self.nodes)
        for _ in range(16):
            fresh: set[int] = set()
            for i, nodes in self.nodes.items():
                if i not in true:
                    continue
                for node in nodes:
                    if node[0] not in LEAVES and not any(self.find(j) in changed for j in node[1:]):
                        continue
                    member = self._member(node, points, best, true[i])
                    if member is None or self._is_wider(member, i):
                        continue
                    others.setdefault(i, {})[node] = member
                    if i not in best or member.score < best[i].score:
                        best[i] = member
                        fresh.add(i)
            if not fresh:
                break
            changed = fresh
        return {i: sorted(m.values(), key=lambda m: m.score) for i, m in others.items()}

    def _is_wider(self, member: Member, i: int) -> bool:
        """Return whether a member varies along axes along which its class does not.

        So does ``sum(a) * b / b``, which is ``sum(a)``.
        """
        lengths = member.value.shape[1:]
        return any(
            length > 1 and k - len(lengths) not in self.axes[i] for k, length in enumerate(lengths)
        )

    def _member(
        self, node: Node, points: Points, best: Mapping[int, Member], true: np.ndarray
    ) -> Member | None:
        head, *rest = node
        if head in LEAVES:
            if head == "axes":
                return None
            value, size, term, nodes = points.leaf(node, exact=False), 1, rest[0], frozenset({node})
        else:
            op = OPERATIONS[head]
            children = [self.find(j) for j in rest]
            axes: list[Any] = []
            if op.reduces:
                axes = [next(n[1] for n in self.nodes[children[0]] if n[0] == "axes")]
                children = children[1:]
                if head != "len" and not set(axes[0]) <= self.axes[children[0]]:
                    return None
            if not all(j in best for j in children):
                return None
            parts = [best[j] for j in children]
            size = op.size + sum(part.size for part in parts)
            if size > 80:
                return None
            value = points.applied(head, [*axes, *(part.value for part in parts)], exact=False)
            term = (head, *axes, *(part.term for part in parts))
            nodes = frozenset({node}).union(*(part.nodes for part in parts))
        bits = errors(value, true)
        worst = bits.reshape(len(bits), -1).max(axis=1) if bits.size else np.zeros(1)
        if len(worst) == 1:
            worst = np.broadcast_to(worst, points.weights.shape)
        near = worst[points.weights > 1].max(initial=0.0)
        far, mean = float(worst.max()), float(worst.mean())
        score = (round(near / 5), round(far / 5), round(mean / 3), size)
        return Member(score, size, value, term, nodes)


def errors(value: np.ndarray, true: np.ndarray) -> np.ndarray:
    """Return the errors of floats, in bits; where nothing is known, 0.

    An error below the smallest normal number counts as none: some backends flush such numbers.
    """
    limits = np.finfo(value.dtype)
    with np.errstate(all="ignore"):
        distance = np.maximum(np.abs(value.astype(float) - true) - float(limits.tiny), 0)
        error = distance / np.maximum(np.abs(true), float(limits.tiny)) / float(limits.epsneg)
        bits = np.where(np.isfinite(error), np.log2(1 + error), LOST).clip(0, LOST)
    same = np.isinf(value) & (np.abs(true) > float(limits.max)) & (np.sign(value) == np.sign(true))
    return np.where(np.isnan(true) | same, 0.0, bits)


@dataclass(frozen=True)
class Rule:
    """One direction of an identity."""

    left: Term
    right: Term
    identity: Identity


def rules_of(identities: Iterable[Identity]) -> Iterator[Rule]:
    """Yield the directions of identities that may be used."""
    for identity in identities:
        left, right = identity.terms
        yield Rule(left, right, identity)
        if identity.both:
            yield Rule(right, left, identity)


def with_bits(bits: int) -> Any:
    """Return the context in which balls have a number of bits."""
    return ctx.workprec(bits)
