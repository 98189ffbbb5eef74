"""What each step of an explanation hands to the next: a :class:`Case`, then each class below it.

They hold the graphs and values of the call.  The last one, an
:class:`~theanoguard.explain.Explanation`, holds neither.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from theanoguard._evaluate import culprit
from theanoguard._evaluate.culprit import Origin, Scope
from theanoguard._evaluate.replay import Implementation
from theanoguard._event import Trip
from theanoguard._values import Mask
from theanoguard.explain.facts.records import Cause, Meaning


@dataclass(frozen=True)
class Case:
    """A bad value, and what is asked about it."""

    trip: Trip
    #: Whether to run the rest of the call, to see whether the bad value survives.
    tell_fate: bool = False
    impl: Implementation | None = None  # the implementation of the operations that the replay runs

    @cached_property
    def mask(self) -> Mask:
        """Returns the mask of the elements of an array that are bad as the event's are."""
        return culprit.numeric_mask(self.trip.is_bad)

    @property
    def outer(self) -> list[Any]:
        """The bad variable, or the outputs of the outermost node that contains it."""
        trip = self.trip
        return trip.frames[0].node.outputs if trip.frames else [trip.variable]


@dataclass(frozen=True)
class Found:
    """What the evaluation of a case has found."""

    case: Case
    outermost: Scope | None = None  # the replay of the call; None if it could not begin
    first: Origin | None = None  # where the bad value was made; None if the replay did not give one
    note: str = ""  # why not


@dataclass(frozen=True)
class Facts:
    """The causes of a bad value, and where the path to them ends."""

    found: Found
    #: `cause`, `deeper`: as in :class:`~theanoguard.explain.Explanation`, each with a hint if one
    #: can be chosen.
    cause: Cause
    deeper: Cause | None = None
    origin: Origin | None = None  # None if the replay did not find it

    @property
    def trip(self) -> Trip:
        """The trip of the case."""
        return self.found.case.trip

    @property
    def mask(self) -> Mask:
        """The mask of the case."""
        return self.found.case.mask

    @property
    def blamed(self) -> Cause:
        """The cause to repair."""
        deeper = self.deeper
        is_made = deeper is not None and deeper.role == "node" and deeper.hint is not None
        return deeper if deeper is not None and is_made else self.cause


@dataclass(frozen=True)
class Advice:
    """The causes as the user wrote them, with hints that have been tried."""

    facts: Facts
    cause: Cause  # `cause`, `deeper`: as in :class:`~theanoguard.explain.facts.records.Explanation`
    deeper: Cause | None = None
    meaning: Meaning | None = None  # as there

    @classmethod
    def of_none(cls, facts: Facts) -> "Advice":
        """Return the causes without hints."""
        deeper = facts.deeper and replace(facts.deeper, hint=None)
        return cls(facts, replace(facts.cause, hint=None), deeper)
