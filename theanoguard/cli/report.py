"""``theanoguard report``: the events of a log, filtered, shown and counted."""

import argparse
import json
import re
import sys
import textwrap
from collections import Counter
from fnmatch import fnmatchcase

from theanoguard._provenance.places import printable, source_text
from theanoguard.explain.color import wants_color
from theanoguard.explain.report import render_text
from theanoguard.log.event_log import header_json, read_logs

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


def place_of(event):
    """Return what events of the same operation have in common."""
    inside = tuple(step.op for step in event.path)
    return event.function, event.role, event.node, event.variable, event.output, inside


def lines_of(entries):
    """Return the user's line of each place, where an entry there has been explained.

    Parameters
    ----------
    entries : iterable of LogEntry

    Returns
    -------
    dict of tuple to SourceLine
        By :func:`place_of`.
    """
    explained = (entry for entry in entries if entry.explanation is not None)
    lines = {place_of(e.event): e.explanation.cause.source for e in explained}
    return {place: line for place, line in lines.items() if line is not None}


def line_of(entry, lines):
    """Return the user's line of an entry: its own, or that of its place; None if not known."""
    own = entry.explanation and entry.explanation.cause.source
    return own or lines.get(place_of(entry.event))


def is_wanted(event, line=None, kinds=None, node=None, variable=None, calls=None, source=None):
    """Whether an event passes a filter.

    Parameters
    ----------
    event : GuardEvent
    line : SourceLine or None
        The user's line, where it is known.
    kinds : collection of str, or None
        Any of "nan", "inf" and "big".
    node : str or None
        A shell pattern that fits somewhere in the node as it is printed.
    variable : str or None
        A shell pattern that fits the whole name.
    calls : tuple of (int, int or None), or None
        First and last call.
    source : str or None
        A shell pattern that fits somewhere in ``file:line in function: text``.

    Returns
    -------
    bool
    """
    return (
        (not kinds or event.kind in kinds)
        and (node is None or fnmatchcase(event.node or "", f"*{node}*"))
        and (variable is None or fnmatchcase(event.variable or "", variable))
        and (calls is None or calls[0] <= event.call <= (calls[1] or event.call))
        and (source is None or fnmatchcase(str(line or ""), f"*{source}*"))
    )


def is_of(entry, worker=None, task=None):
    """Whether an entry is of a worker and a task whose names fit two shell patterns.

    Parameters
    ----------
    entry : LogEntry
    worker, task : str or None
        None for any, also for one without a name.

    Returns
    -------
    bool
    """
    return all(
        pattern is None or fnmatchcase(name or "", pattern)
        for name, pattern in ((entry.worker, worker), (entry.task, task))
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


def render_entry(entry, line=None, short=False, color=False):
    """Return one event of a log: its explanation, or what it tells by itself.

    Parameters
    ----------
    entry : LogEntry
    line : SourceLine or None
        The user's line, where the explanation of another entry tells it.
    short : bool
        Whether to leave out the explanation, but for the user's line.
    color : bool
        Whether to use the terminal's colours.

    Returns
    -------
    str
    """
    event = entry.event
    of = f" of {event.function}" if event.function else ""
    worker = f", worker {entry.worker}" if entry.worker else ""
    task = f", task {entry.task}" if entry.task else ""
    head = (
        f"{entry.time}  call {event.call}{of}, process {entry.process}{worker}{task}, "
        f"under {entry.header}"
    )
    if entry.explanation is not None and not short:
        # (escapes everything that it takes from the log, but must keep its own colours)
        report = render_text(event, entry.explanation, color)
        return f"{printable(head)}\n{textwrap.indent(report, '  ')}"
    counts = {
        "NaN": event.n_nan,
        "+Inf": event.n_posinf,
        "-Inf": event.n_neginf,
        "too big": event.n_big,
    }
    bad = ", ".join(f"{n} {word}" for word, n in counts.items() if n)
    lines = [
        head,
        f"  {render_text(event, None)}",
        *([f"  {source_text(line)}"] if line is not None else []),
        f"  {event.node or event.role}: {bad} of {event.size} ({event.dtype}, shape {event.shape})",
        *(f"  inside {step}" for step in event.path),
    ]
    return "\n".join(printable(line) for line in lines)


def count(entries, lines=None):
    """Count events by kind, node and variable.

    Parameters
    ----------
    entries : iterable of LogEntry
    lines : dict of tuple to SourceLine, optional
        What :func:`lines_of` gave; by default it is asked about `entries`.

    Returns
    -------
    list of dict
        With the keys ``count``, ``kind``, ``node`` (for a value that came in, its role),
        ``variable`` and ``source`` (the user's line, where it is known); the most frequent
        first.
    """
    entries = list(entries)
    lines = lines_of(entries) if lines is None else lines
    counts = Counter(
        (
            e.event.kind,
            e.event.node or e.event.role,
            e.event.variable,
            _short_line(line_of(e, lines)),
        )
        for e in entries
    )
    names = ("count", "kind", "node", "variable", "source")
    return [dict(zip(names, (n, *key), strict=True)) for key, n in counts.most_common()]


def _short_line(line):
    return None if line is None else source_text(line).split(":  ")[0]


def render_counts(counts):
    """Return the result of :func:`count` as a table."""
    rows = [("count", "kind", "variable", "source", "node")]
    rows += [
        (str(c["count"]), c["kind"], c["variable"] or "-", c["source"] or "-", c["node"])
        for c in counts
    ]
    rows = [tuple(map(printable, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    widths[-1] = 0
    return "\n".join(
        "  ".join([n.rjust(widths[0]), *map(str.ljust, others, widths[1:])]) for n, *others in rows
    )


# -- the command


def add_arguments(parser):
    """Add the arguments of ``theanoguard report`` to its parser."""
    parser.add_argument(
        "log",
        nargs="+",
        help="file that GuardMode(log=...) has written; several are merged in the order of time",
    )
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
        "--source",
        metavar="PATTERN",
        help="only this line of the code, as 'train.py:12' or 'in loss'; needs an explanation",
    )
    for what in ("worker", "task"):
        parser.add_argument(
            f"--{what}",
            metavar="PATTERN",
            help=f"only events of a {what} whose name fits this shell pattern",
        )
    parser.add_argument(
        "--count", action="store_true", help="count them by kind, node, variable and line"
    )
    parser.add_argument("--short", action="store_true", help="leave out the explanations")
    parser.add_argument(
        "--json", action="store_true", help="print JSON: again a log, or with --count a list"
    )


def run(arguments):
    """Run ``theanoguard report``; return its exit status."""
    log = read_logs(arguments.log)
    chosen = (
        arguments.kind,
        arguments.node,
        arguments.variable,
        arguments.call,
        arguments.source,
    )
    lines = lines_of(log.entries)
    entries = [
        entry
        for entry in log.entries
        if is_of(entry, arguments.worker, arguments.task)
        and is_wanted(entry.event, line_of(entry, lines), *chosen)
    ]
    used = {entry.header for entry in entries}
    headers = {key: header for key, header in log.headers.items() if key in used}
    if arguments.count:
        counts = count(entries, lines)
        print(json.dumps(counts, indent=2) if arguments.json else render_counts(counts))
    elif arguments.json:
        for key, header in headers.items():
            print(header_json(key, header))
        for entry in entries:
            print(entry.to_json())
    else:
        color = wants_color(sys.stdout)
        for key, header in headers.items():
            print(f"{render_header(key, header)}\n")
        for entry in entries:
            print(f"{render_entry(entry, line_of(entry, lines), arguments.short, color)}\n")
        damaged = f"; damaged lines, left out: {log.damaged}" if log.damaged else ""
        print(f"{len(entries)} of {len(log.entries)} events{damaged}.")
    return 0
