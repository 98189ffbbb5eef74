"""Checks that may stop a call, before anything that a failed call must not have overwritten.

PyTensor writes the updates of a call that raises nowhere, but what is computed in place has
already changed its shared variable by then.  So whatever overwrites an input of the function is
made to wait for the checks; what a check itself depends on, and so cannot wait, gets a copy to
overwrite.
"""

from collections.abc import Iterable, Mapping

from pytensor.compile.mode import optdb
from pytensor.compile.ops import deep_copy_op
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import GraphRewriter

from theanoguard.ops.print import After


class HoldBack(GraphRewriter):
    """Let nothing overwrite an input of the function before the checks have been made.

    A check is a node whose operation has a true attribute ``holds_back``.
    """

    def apply(self, fgraph: FunctionGraph) -> None:
        checks = [node for node in fgraph.apply_nodes if getattr(node.op, "holds_back", False)]
        if not checks:
            return
        tokens = [node.outputs[0] for node in checks]
        early = before(checks, fgraph.orderings())
        done = set()
        # Found anew each time: what has got a copy may be overwritten further.
        while places := [place for place in overwriting(fgraph) if place not in done]:
            node, i = places[0]
            done.add((node, i))
            value = node.inputs[i]
            if node in early:
                held = deep_copy_op(value)
            elif before([node], {}).issuperset(checks):
                continue
            else:
                held = After()(value, *tokens)
            fgraph.change_node_input(node, i, held, reason="hold_back")


def before(nodes: Iterable[Apply], orderings: Mapping[Apply, Iterable[Apply]]) -> set[Apply]:
    """Return all nodes that have to run before one of some nodes, and these themselves."""
    found, todo = set(), list(nodes)
    while todo:
        node = todo.pop()
        if node not in found:
            found.add(node)
            todo.extend(v.owner for v in node.inputs if v.owner is not None)
            todo.extend(orderings.get(node, ()))
    return found


def overwriting(fgraph: FunctionGraph) -> list[tuple[Apply, int]]:
    """Return pairs of a node and the position of one of its inputs.

    Each overwrites there the memory of an input of the function.
    """
    entered = set(fgraph.inputs)  # these, and what lives in their memory
    found: list[tuple[Apply, int]] = []
    for node in fgraph.toposort():
        for maps in (node.op.view_map, node.op.destroy_map):
            for output, sources in maps.items():
                if any(node.inputs[i] in entered for i in sources):
                    entered.add(node.outputs[output])
        for sources in node.op.destroy_map.values():
            found.extend((node, i) for i in sources if node.inputs[i] in entered)
    return found


# After the last rewrite that works in place, and after the last merge.
optdb.register(
    "theanoguard_hold_back", HoldBack(), "fast_run", "fast_compile", "minimum_compile", position=101
)
