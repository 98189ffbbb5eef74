"""The figures of a guarded function: :class:`GuardSummary`."""

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from theanoguard._releases import MISSING
from theanoguard._shown import displayed


@displayed
@dataclass(frozen=True, repr=False)
class GuardSummary:
    """Which outputs of a guarded function are checked, and the cost of the checks.

    Some figures are None before the first call, and on backends other than C.

    Parameters
    ----------
    backend : str
    inner_graphs : int
        Guarded inner graphs, such as the body of a ``Scan``.  All figures include them.
    outputs : int
        Outputs of all nodes.
    checked : int
        Outputs that are checked.
    inputs : int
        Inputs and shared variables that are checked.
    dropped : dict of str to int
        Number of outputs that are not checked, by rule.
    memory : int or None
        Bytes that the guard keeps, without copies of shared variables.
    copied : int or None
        Bytes of shared variables that the last call copied, to restore them after an error.
    calls : int
        Calls that were checked so far.
    scans, bytes_read : float or None
        Arrays and bytes read per call.
    seconds : float or None
        Expected time of the checks in a call, computed from the figures above and the speed of this
        machine, without the fixed cost of a call.
    signs : str or None
        How the compiled function detects bad values: on Numba, and on C if flags of the compiler
        change the arithmetic.
    in_flight, held : int or None
        On JAX: calls whose flags have not been read, and the bytes kept for them.
    off : tuple of str
        What is off because the installed PyTensor does not have a name.
    """

    backend: str
    inner_graphs: int
    outputs: int
    checked: int
    inputs: int
    dropped: dict
    memory: int | None = None
    copied: int | None = None
    calls: int = 0
    scans: float | None = None
    bytes_read: float | None = None
    seconds: float | None = None
    signs: str | None = None
    in_flight: int | None = None
    held: int | None = None
    off: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [
            f"{self.outputs} outputs of nodes, {self.inner_graphs} inner graphs",
            f"  {self.checked} read",
            *(f"  {count} not read: {rule}" for rule, count in self.dropped.items() if count),
            f"{self.inputs} inputs and shared variables checked",
        ]
        # The figures of the calls are there together or not at all.
        if self.scans is not None and self.bytes_read is not None and self.seconds is not None:
            lines += [
                f"per call, mean of {self.calls}: {self.scans:.4g} arrays read "
                f"({_size(self.bytes_read)})",
                f"expected to take {1e6 * self.seconds:.3g} µs of each call on this machine",
            ]
        if self.memory is not None and self.copied is not None:
            lines.append(f"{_size(self.memory)} kept, {_size(self.copied)} copied in the last call")
        if self.signs is not None:
            lines.append(self.signs)
        if self.in_flight is not None and self.held is not None:
            lines.append(f"{self.in_flight} calls in flight, {_size(self.held)} kept for them")
        lines += self.off
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        """Return the fields by name."""
        return asdict(self)


def _size(n_bytes: float) -> str:
    units = ["bytes", "kB", "MB", "GB", "TB"]
    while n_bytes >= 1000:
        n_bytes /= 1000
        units.pop(0)
    return f"{n_bytes:.3g} {units[0]}"


def summarize(guard: Any, backend: str) -> GuardSummary:
    """Return the :class:`GuardSummary` of the guard of a function.

    `guard`: the reporter of the function's own graph.
    """
    plans = guard.plans()
    nodes = [node_plan for plan in plans for node_plan in plan.nodes.values()]
    rules = Counter(rule for plan in plans for rule in plan.dropped.values())
    looked_at = -(-guard.calls // guard.policy.every)
    counts = guard.counters()
    if counts:
        per_call = {k: counts[k] / max(looked_at, 1) for k in ("scans", "bytes")}
        per_check, per_byte = guard.speed()
        seconds = per_call["scans"] * per_check
        measured = {
            "memory": counts["memory"],
            "copied": counts["copied"],
            "scans": per_call["scans"],
            "bytes_read": per_call["bytes"],
            "seconds": seconds + per_call["bytes"] * per_byte,
        }
    in_flight, held = guard.in_flight()
    return GuardSummary(
        backend=backend,
        inner_graphs=len(plans) - 1,
        outputs=sum(len(node_plan.node.outputs) for node_plan in nodes),
        checked=sum(len(node_plan.checks) for node_plan in nodes),
        inputs=len(guard.plan.inputs),
        dropped=dict(rules),
        calls=looked_at,
        signs=guard.signs() if hasattr(guard, "signs") else None,
        in_flight=in_flight,
        held=held,
        off=tuple(map(str, MISSING)),
        **(measured if counts and looked_at else {}),
    )
