"""``theanoguard report``: the events of a log, filtered, shown and counted."""

import argparse
import json
import re
from collections import Counter
from fnmatch import fnmatchcase

from theanoguard.explain.report import printable, render_text
from theanoguard.log import header_json, read_logs

KINDS = ("nan", "inf", "big")


# -- which events


def call_range(text):
    """Parse a range of calls, both ends included.

    Parameters
    ----------
    text : str
        "5", "5..9", "5.." or "..9".

    Returns
    -------
    tuple of (int, int or None)
        None stands for no end.

    Raises
    ------
    argparse.ArgumentTypeError
        If it is none of these.

    Examples
    --------
    >>> call_range("5..9"), call_range("5"), call_range("5..")
    ((5, 9), (5, 5), (5, None))
    """
    found = re.fullmatch(r"(\d*)(\.\.(\d*))?", text, re.ASCII)
    if found and (found[1] or found[3]):
        first = int(found[1] or 1)
        last = first if found[2] is None else int(found[3]) if found[3] else None
        if last is None or first <= last:
            return first, last
    raise argparse.ArgumentTypeError(f"{text!r} is not a range of calls: N, N..M, N.. or ..M")


def is_wanted(event, kinds=None, node=None, variable=None, calls=None):
    """Whether an event passes a filter.

    Parameters
    ----------
    event : GuardEvent
    kinds : collection of str, or None
        Any of "nan", "inf" and "big".
    node : str or None
        A shell pattern that fits somewhere in the node as it is printed.
    variable : str or None
        A shell pattern that fits the whole name.
    calls : tuple of (int, int or None), or None
        First and last call.

    Returns
    -------
    bool
    """
    return (
        (not kinds or event.kind in kinds)
        and (node is None or fnmatchcase(event.node or "", f"*{node}*"))
        and (variable is None or fnmatchcase(event.variable or "", variable))
        and (calls is None or calls[0] <= event.call <= (calls[1] or event.call))
    )


# -- the renderings


def render_header(key, header):
    """Return what the events under a header ran on, in a few lines."""
    environment = header["environment"]
    compiler = environment["compiler"]
    rows = {
        "versions": ", ".join(f"{name} {v}" for name, v in environment["versions"].items() if v),
        "platform": f"{environment['platform']}, {environment['device']}",
        "compiler": f"{compiler['version'] or 'none'}; BLAS: {compiler['blas'] or 'none'}",
        "config": _settings(environment["config"]),
        "mode": _settings(header["mode"]),
    }
    lines = [f"Under {key}:", *(f"  {name:<8}  {row}" for name, row in rows.items() if row)]
    return "\n".join(printable(line) for line in lines)


def _settings(settings):
    """Return settings in one line; the empty ones are left out."""
    texts = {name: _plain(value) for name, value in settings.items()}
    return ", ".join(f"{name}={text}" for name, text in texts.items() if text)


def _plain(value):
    if isinstance(value, dict):
        texts = {name: _plain(v) for name, v in value.items()}
        return " ".join(f"{name}:{text}" for name, text in texts.items() if text)
    return "/".join(map(str, value)) if isinstance(value, list) else str(value)


def render_entry(entry):
    """Return one event of a log in a few lines."""
    event = entry.event
    of = f" of {event.function}" if event.function else ""
    counts = {
        "NaN": event.n_nan,
        "+Inf": event.n_posinf,
        "-Inf": event.n_neginf,
        "too big": event.n_big,
    }
    bad = ", ".join(f"{n} {word}" for word, n in counts.items() if n)
    lines = [
        f"{entry.time}  call {event.call}{of}, process {entry.process}, under {entry.header}",
        f"  {render_text(event, None)}",
        f"  {event.node or event.role}: {bad} of {event.size} ({event.dtype}, shape {event.shape})",
        *(f"  inside {step}" for step in event.path),
    ]
    return "\n".join(printable(line) for line in lines)


def count(entries):
    """Count events by kind, node and variable.

    Parameters
    ----------
    entries : iterable of LogEntry

    Returns
    -------
    list of dict
        With the keys ``count``, ``kind``, ``node`` (for a value that came in, its role) and
        ``variable``; the most frequent first.
    """
    events = [entry.event for entry in entries]
    counts = Counter((e.kind, e.node or e.role, e.variable) for e in events)
    names = ("count", "kind", "node", "variable")
    return [dict(zip(names, (n, *key), strict=True)) for key, n in counts.most_common()]


def render_counts(counts):
    """Return the result of :func:`count` as a table."""
    rows = [("count", "kind", "variable", "node")]
    rows += [
        (str(c["count"]), c["kind"], printable(c["variable"] or "-"), printable(c["node"]))
        for c in counts
    ]
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    return "\n".join(
        f"{n:>{widths[0]}}  {kind:<{widths[1]}}  {variable:<{widths[2]}}  {node}"
        for n, kind, variable, node in rows
    )


# -- the command


def add_arguments(parser):
    """Add the arguments of ``theanoguard report`` to its parser."""
    parser.add_argument("log", nargs="+", help="file that GuardMode(log=...) has written")
    parser.add_argument(
        "--kind", choices=KINDS, action="append", help="only events of this kind (repeatable)"
    )
    parser.add_argument(
        "--node",
        metavar="PATTERN",
        help="only nodes with this shell pattern anywhere in them, as 'Log' or 'Composite*exp'",
    )
    parser.add_argument(
        "--variable", metavar="PATTERN", help="only variables whose name fits this shell pattern"
    )
    parser.add_argument(
        "--call", metavar="N..M", type=call_range, help="only these calls: N, N..M, N.. or ..M"
    )
    parser.add_argument(
        "--count", action="store_true", help="count them by kind, node and variable"
    )
    parser.add_argument(
        "--json", action="store_true", help="print JSON: again a log, or with --count a list"
    )


def run(arguments):
    """Run ``theanoguard report``; return its exit status."""
    log = read_logs(arguments.log)
    chosen = (arguments.kind, arguments.node, arguments.variable, arguments.call)
    entries = [entry for entry in log.entries if is_wanted(entry.event, *chosen)]
    used = {entry.header for entry in entries}
    headers = {key: header for key, header in log.headers.items() if key in used}
    if arguments.count:
        counts = count(entries)
        print(json.dumps(counts, indent=2) if arguments.json else render_counts(counts))
    elif arguments.json:
        for key, header in headers.items():
            print(header_json(key, header))
        for entry in entries:
            print(entry.to_json())
    else:
        for block in [
            *(render_header(key, header) for key, header in headers.items()),
            *map(render_entry, entries),
        ]:
            print(f"{block}\n")
        damaged = f"; damaged lines, left out: {log.damaged}" if log.damaged else ""
        print(f"{len(entries)} of {len(log.entries)} events{damaged}.")
    return 0
