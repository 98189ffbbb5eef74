"""The compiled graph has a node that I did not write.  From which of my lines does it come?

``provenance`` follows every node back through the rewrites that made it.  ``debugprint`` prints the
rewrites and the line beside each node.
"""

import pytensor
import pytensor.tensor as pt

from theanoguard import GuardMode, debugprint, provenance

x = pt.dvector("x")
p = pt.special.softmax(x)
loss = -pt.log(p).sum()
f = pytensor.function([x], loss, mode=GuardMode(), name="f")

print("What was compiled, with the line that each node comes from:")
debugprint(f, print_source=True)

print("\nWhich rewrites made each node, the first one first:")
found = provenance(f)
for node in f.maker.fgraph.toposort():
    origin = found[node]
    reasons = [str(step.reason) for step in reversed(origin.history)]
    print(f"  {origin.op}: {' > '.join(reasons) or 'as written'}")
