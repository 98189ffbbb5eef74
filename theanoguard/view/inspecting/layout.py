"""Where the boxes of a picture stand: layers from the inputs down to the outputs."""

from collections import defaultdict

GAP_X, GAP_Y = 18, 34
_SWEEPS = 4


def layers_of(boxes, edges):
    """Return the boxes of each layer; an edge leads to a later layer.

    Parameters
    ----------
    boxes : list of hashable
        In an order in which they can be computed; an edge against it does not count.
    edges : iterable of (hashable, hashable)

    Returns
    -------
    list of list of hashable
    """
    number = {box: i for i, box in enumerate(boxes)}
    before, after = defaultdict(list), defaultdict(list)
    for a, b in edges:
        if number[a] < number[b]:
            before[b].append(a)
            after[a].append(b)
    depth = {}
    for box in boxes:
        depth[box] = max((depth[a] + 1 for a in before[box]), default=0)
    # What reads nothing stands right above its first reader.
    for box in reversed(boxes):
        if not before[box] and after[box]:
            depth[box] = min(depth[b] for b in after[box]) - 1
    layers = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for box in boxes:
        layers[depth[box]].append(box)
    return layers


def place(sizes, edges):
    """Return where boxes stand, and where the edges between them bend.

    Parameters
    ----------
    sizes : dict of hashable to (float, float)
        Width and height, in an order in which the boxes can be computed.
    edges : collection of (hashable, hashable)

    Returns
    -------
    corners : dict of hashable to (float, float)
        The upper left corner of each box; none is negative.
    bends : dict of (hashable, hashable) to list of (float, float)
        Points between the ends of an edge, from its first box on.
    size : (float, float)
        Of all together.
    """
    layers = layers_of(list(sizes), edges)
    level = {box: i for i, layer in enumerate(layers) for box in layer}
    links, ways = [], {}
    for edge in dict.fromkeys(edges):
        a, b = edge
        if level[a] >= level[b]:
            ways[edge] = []
            continue
        # An edge over several layers keeps a place of its own in each of them.
        way = [("bend", a, b, i) for i in range(level[a] + 1, level[b])]
        for i, bend in enumerate(way, level[a] + 1):
            layers[i].append(bend)
        ways[edge] = way
        links += zip([a, *way], [*way, b], strict=True)
    above, below = defaultdict(list), defaultdict(list)
    for a, b in links:
        below[a].append(b)
        above[b].append(a)
    width = {box: sizes[box][0] if box in sizes else 4 for layer in layers for box in layer}
    x = _across(layers, width, above, below)
    y, top = {}, 0
    for layer in layers:
        height = max((sizes[box][1] for box in layer if box in sizes), default=0)
        for box in layer:
            y[box] = top + (height - sizes[box][1]) / 2 if box in sizes else top
        top += height + GAP_Y
    left = min((x[box] - width[box] / 2 for box in x), default=0)
    right = max((x[box] + width[box] / 2 for box in x), default=0)
    corners = {box: (x[box] - width[box] / 2 - left, y[box]) for box in sizes}
    bends = {edge: [(x[p] - left, y[p]) for p in way] for edge, way in ways.items()}
    return corners, bends, (right - left, max(top - GAP_Y, 0))


def _across(layers, width, above, below):
    """Return the middle of each box: in an order with few crossings, near to its neighbours."""
    x = {}
    for layer in layers:
        _spread(layer, width, {box: x.get(box, 0.0) for box in layer}, x)
    for sweep in range(2 * _SWEEPS):
        down = sweep % 2 == 0
        for layer in layers if down else layers[::-1]:
            wanted = {}
            for box in layer:
                # (in the last sweeps both sides count, so that edges become straight)
                near = above[box] if down else below[box]
                if sweep >= _SWEEPS:
                    near = [*above[box], *below[box]]
                wanted[box] = sum(x[n] for n in near) / len(near) if near else x[box]
            if sweep < _SWEEPS:
                layer.sort(key=wanted.__getitem__)
            _spread(layer, width, wanted, x)
    return x


def _spread(layer, width, wanted, x):
    """Put boxes side by side, each as near as can be to where it is wanted."""
    blocks = []  # of boxes that touch: how many, the mean of where their first one would stand
    offsets, offset = [], 0.0
    for i, box in enumerate(layer):
        if i:
            offset += (width[layer[i - 1]] + width[box]) / 2 + GAP_X
        offsets.append(offset)
        count, mean = 1, wanted[box] - offset
        while blocks and blocks[-1][1] >= mean:
            n, m = blocks.pop()
            count, mean = count + n, (count * mean + n * m) / (count + n)
        blocks.append((count, mean))
    starts = [mean for count, mean in blocks for _ in range(count)]
    for box, start, offset in zip(layer, starts, offsets, strict=True):
        x[box] = start + offset
