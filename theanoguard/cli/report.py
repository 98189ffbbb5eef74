"""``theanoguard report``: the events of a log, filtered, shown and counted."""

import argparse
import json
import re
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from theanoguard._event import Cause, GuardEvent, Place, cause_of, compiled_as, place_of
from theanoguard._files import write_atomically
from theanoguard._provenance import SourceLine
from theanoguard._provenance.places import source_text
from theanoguard._text import fitted, indented, printable, text_width
from theanoguard.explain.text.color import wants_color
from theanoguard.guard.errors import report_text
from theanoguard.log.event_log import Log, LogEntry, header_json, read_logs
from theanoguard.view.inspecting import page

KINDS = ("nan", "inf", "big", "digits")

BINS = 40  # columns of a histogram over calls

LEVELS = " .:-=+*#"
"""Its heights: characters that every terminal has."""

LAST_FOLLOWED = 10
"""How many of the events that are there ``--follow`` shows first, unless ``--last`` says so."""

POLL_SECONDS = 0.5  # how long ``--follow`` waits before it reads the log again


# -- which events


def call_range(text: str) -> tuple[int, int | None]:
    """Parse a range of calls, both ends included.

    None stands for no end.

    `text`: "5", "5..9", "5.." or "..9".

    Raises ``argparse.ArgumentTypeError``: if it is none of these.

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


def lines_of(entries: Iterable[LogEntry]) -> dict[Place, SourceLine]:
    """Return the user's line of each place, where an entry there has been explained.

    The keys are those of :func:`place_of`.
    """
    explained = ((e.event, e.explanation) for e in entries if e.explanation is not None)
    lines = {place_of(event): explanation.cause.source for event, explanation in explained}
    return {place: line for place, line in lines.items() if line is not None}


def explained_of(entries: Iterable[LogEntry]) -> dict[Cause, LogEntry]:
    """Return the first explained entry of each cause, by :func:`cause_of`."""
    found: dict[Cause, LogEntry] = {}
    for entry in entries:
        if entry.explanation is not None:
            found.setdefault(cause_of(entry.event), entry)
    return found


def line_of(entry: LogEntry, lines: Mapping[Place, SourceLine]) -> SourceLine | None:
    """Return the user's line of an entry: its own, or that of its place; None if not known."""
    own = None if entry.explanation is None else entry.explanation.cause.source
    return own or lines.get(place_of(entry.event))


def is_wanted(
    event: GuardEvent,
    line: SourceLine | None = None,
    kinds: Collection[str] | None = None,
    node: str | None = None,
    variable: str | None = None,
    calls: tuple[int, int | None] | None = None,
    source: str | None = None,
) -> bool:
    """Whether an event passes a filter.

    - `line`: the user's line, where it is known.
    - `kinds`: any of "nan", "inf" and "big".
    - `node`: a shell pattern that fits somewhere in the node as it is printed, or in its
      expression.
    - `variable`: a shell pattern that fits the whole name.
    - `calls`: first and last call.
    - `source`: a shell pattern that fits somewhere in ``file:line in function: text``.
    """
    return (
        (not kinds or event.kind in kinds)
        and (
            node is None
            or any(fnmatchcase(x or "", f"*{node}*") for x in (event.node, event.written))
        )
        and (variable is None or fnmatchcase(event.variable or "", variable))
        and (calls is None or calls[0] <= event.call <= (calls[1] or event.call))
        and (source is None or fnmatchcase(str(line or ""), f"*{source}*"))
    )


def is_of(entry: LogEntry, worker: str | None = None, task: str | None = None) -> bool:
    """Whether an entry is of a worker and a task whose names fit two shell patterns.

    None fits any entry, also one without a name.
    """
    return all(
        pattern is None or fnmatchcase(name or "", pattern)
        for name, pattern in ((entry.worker, worker), (entry.task, task))
    )


# -- what belongs together


@dataclass
class Group:
    """Events of one kind from one operation."""

    entries: list[LogEntry]  # in the order of time

    @property
    def example(self) -> LogEntry:
        """The first entry that has an explanation; the first one if none has."""
        explained = (entry for entry in self.entries if entry.explanation is not None)
        return next(explained, self.entries[0])

    @property
    def calls(self) -> tuple[int, int]:
        """First and last call."""
        calls = [entry.event.call for entry in self.entries]
        return min(calls), max(calls)


def groups_of(entries: Iterable[LogEntry]) -> list[Group]:
    """Return the events grouped by kind and operation, ordered by their first."""
    groups: dict[Cause, Group] = {}
    for entry in entries:
        groups.setdefault(cause_of(entry.event), Group([])).entries.append(entry)
    return list(groups.values())


def histogram(calls: Iterable[int], first: int, last: int) -> str:
    """Return how often calls occur between two calls, as one character for each part.

    Returns: str at most :data:`BINS` characters; only a part without any event is blank.

    Examples
    --------
    >>> histogram([1, 1, 1, 1, 1, 1, 1, 4], 1, 5)
    '#  . '
    """
    bins = min(BINS, last - first + 1)
    counts = Counter((call - first) * bins // (last - first + 1) for call in calls)
    top, highest = len(LEVELS) - 1, max(counts.values())
    return "".join(LEVELS[-(-counts[i] * top // highest)] for i in range(bins))


# -- the renderings


def render_environment(header: Mapping[str, Any], number: int | None = None) -> str:
    """Return the environment of events in a few lines, with its number if there are several."""
    environment = header["environment"]
    compiler = environment["compiler"]
    rows = {
        "versions": ", ".join(f"{name} {v}" for name, v in environment["versions"].items() if v),
        "platform": f"{environment['platform']}, {environment['device']}",
        "compiler": f"{compiler['version'] or 'none'}; BLAS: {compiler['blas'] or 'none'}",
        "config": _settings(environment["config"]),
        "mode": _settings(header["mode"]),
    }
    lines = ["Environment:" if number is None else f"Environment {number}:"]
    for name, row in rows.items():
        lines += textwrap.wrap(
            printable(row),
            text_width(),
            initial_indent=f"  {name:<8}  ",
            subsequent_indent=" " * 12,
            break_long_words=False,
            break_on_hyphens=False,
        )
    return "\n".join(lines)


def _settings(settings: Mapping[str, Any]) -> str:
    """Return settings in one line; the empty ones are left out."""
    texts = {name: _plain(value) for name, value in settings.items()}
    return ", ".join(f"{name}={text}" for name, text in texts.items() if text)


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        texts = {name: _plain(v) for name, v in value.items()}
        return " ".join(f"{name}:{text}" for name, text in texts.items() if text)
    return "/".join(map(str, value)) if isinstance(value, list) else str(value)


@dataclass(frozen=True)
class Renderer:
    """Writes events as text."""

    lines: Mapping[Place, SourceLine]  # what :func:`lines_of` gave
    short: bool = False  # whether to leave out the explanations, except for the user's line
    color: bool = False  # whether to use the terminal's colours
    #: The number of each header, if the events have several.
    numbers: Mapping[str, int] = field(default_factory=dict)
    #: What :func:`explained_of` gave.  The explanation of a cause follows the facts of an event
    #: that has none.
    explained: Mapping[Cause, LogEntry] = field(default_factory=dict)

    def entry(self, entry: LogEntry, explained: LogEntry | None) -> str:
        """Return one event: its explanation, or its facts and an explanation of the same cause."""
        event, line = entry.event, line_of(entry, self.lines)
        of = f" of {event.function}" if event.function else ""
        worker = f", worker {entry.worker}" if entry.worker else ""
        task = f", task {entry.task}" if entry.task else ""
        under = f", environment {self.numbers[entry.header]}" if self.numbers else ""
        head = f"{entry.time}  call {event.call}{of}, process {entry.process}{worker}{task}{under}"
        if entry.explanation is not None and not self.short:
            return "\n".join([*fitted(printable(head)), self._report_of(entry)])
        counts = {
            "NaN": event.n_nan,
            "+Inf": event.n_posinf,
            "-Inf": event.n_neginf,
            "too big": event.n_big,
        }
        bad = ", ".join(f"{n} {word}" for word, n in counts.items() if n)
        lines = [
            head,
            f"  {event.title if entry.explanation is None else entry.explanation.brief}",
            *([f"  {source_text(line)}"] if line is not None else []),
            f"  {event.written or compiled_as(event.node) or event.role}: {bad} of {event.size} "
            f"({event.dtype}, shape {event.shape})",
            *([f"  compiled as {event.node}"] if event.written else []),
            *(f"  inside {step}" for step in event.path),
        ]
        facts = "\n".join(part for line in lines for part in fitted(printable(line)))
        if explained is None or self.short:
            return facts
        first = f"  The report of call {explained.event.call}, which has the same cause:"
        with indented(2):
            report = textwrap.indent(self._report_of(explained), "  ")
        return f"{facts}\n{first}\n{report}"

    def _report_of(self, entry: LogEntry) -> str:
        """Return the report of an explained entry, indented by two columns."""
        # (It escapes everything that it takes from the log, but must keep its own colours.)
        with indented(2):
            text = report_text(entry.event, entry.explanation, color=self.color)
            return textwrap.indent(text, "  ")

    def _group(self, group: Group, number: int, ends: tuple[int, int]) -> str:
        """Return a group of events: how many, in which calls, and one of them in full."""
        event, n = group.example.event, len(group.entries)
        first, last = group.calls
        of = f" of {event.function}" if event.function else ""
        calls = f"call {first}" if first == last else f"calls {first} to {last}"
        processes = {(entry.process, entry.worker) for entry in group.entries}
        several = f", in {len(processes)} processes" if len(processes) > 1 else ""
        head = f"{number}. {n:,} {'event' if n == 1 else 'events'}, {calls}{of}{several}"
        lines = [printable(head)]
        if n > 1:
            bars = histogram((entry.event.call for entry in group.entries), *ends)
            lines.append(f"   call {ends[0]} |{bars}| {ends[1]}")
        with indented(3):
            text = self.entry(group.example, self.explained.get(cause_of(event)))
        lines.append(textwrap.indent(text, "   "))
        return "\n".join(lines)

    def groups(self, entries: Iterable[LogEntry]) -> Iterator[str]:
        """Yield the text of each group of the events."""
        groups = groups_of(entries)
        # The histograms of one function have the same scale.
        ends: dict[str | None, tuple[int, int]] = {}
        for group in groups:
            function, (first, last) = group.example.event.function, group.calls
            low, high = ends.get(function, (first, last))
            ends[function] = min(low, first), max(high, last)
        for number, group in enumerate(groups, 1):
            yield self._group(group, number, ends[group.example.event.function])

    def each(self, entries: Sequence[LogEntry]) -> Iterator[str]:
        """Yield the text of each event, and of each cause one explanation."""
        unexplained = dict(self.explained)
        for entry in entries:
            if entry.explanation is not None:
                unexplained.pop(cause_of(entry.event), None)
        for entry in entries:
            yield self.entry(entry, unexplained.pop(cause_of(entry.event), None))


def count(
    entries: Iterable[LogEntry], lines: Mapping[Place, SourceLine] | None = None
) -> list[dict[str, Any]]:
    """Count events by kind, node and variable.

    `lines`: what :func:`lines_of` gave; by default it is asked about `entries`.

    Returns: list of dict with the keys ``count``, ``kind``, ``node`` (for a value that came in, its
    role), ``variable``, ``written`` (the expression) and ``source`` (the user's line), where they
    are known; the most frequent first.
    """
    entries = list(entries)
    lines = lines_of(entries) if lines is None else lines
    counts = Counter(
        (
            e.event.kind,
            e.event.node or e.event.role,
            e.event.variable,
            e.event.written,
            _short_line(line_of(e, lines)),
        )
        for e in entries
    )
    names = ("count", "kind", "node", "variable", "written", "source")
    return [dict(zip(names, (n, *key), strict=True)) for key, n in counts.most_common()]


def _short_line(line: SourceLine | None) -> str | None:
    return None if line is None else source_text(line).split(":  ")[0]


def render_counts(counts: Iterable[Mapping[str, Any]]) -> str:
    """Return the result of :func:`count` as a table."""
    rows: list[tuple[str, ...]] = [("count", "kind", "variable", "source", "expression or node")]
    rows += [
        (
            str(c["count"]),
            c["kind"],
            c["variable"] or "-",
            c["source"] or "-",
            c["written"] or compiled_as(c["node"]) or "-",
        )
        for c in counts
    ]
    rows = [tuple(map(printable, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    widths[-1] = 0
    return "\n".join(
        "  ".join([n.rjust(widths[0]), *map(str.ljust, others, widths[1:])]) for n, *others in rows
    )


# -- the command


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``theanoguard report`` to its parser."""
    parser.add_argument(
        "log",
        nargs="+",
        help="file that GuardMode(log=...) wrote; several files are merged by time",
    )
    parser.add_argument(
        "--kind", choices=KINDS, action="append", help="only events of this kind (repeatable)"
    )
    parser.add_argument(
        "--node",
        metavar="PATTERN",
        help="only expressions or nodes with a part that matches this shell pattern, such as "
        "'log(*' or 'Composite*exp'",
    )
    parser.add_argument(
        "--variable", metavar="PATTERN", help="only variables whose name matches this shell pattern"
    )
    parser.add_argument(
        "--call", metavar="N..M", type=call_range, help="only these calls: N, N..M, N.. or ..M"
    )
    parser.add_argument(
        "--source",
        metavar="PATTERN",
        help="only events from this line, such as 'train.py:12' or 'in loss'",
    )
    for what in ("worker", "task"):
        parser.add_argument(
            f"--{what}",
            metavar="PATTERN",
            help=f"only events of a {what} whose name matches this shell pattern",
        )
    parser.add_argument(
        "--last", metavar="N", type=_number, help="only the last N of the chosen events"
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--all", action="store_true", help="show every event, not one per cause")
    how.add_argument(
        "--count", action="store_true", help="count the events by kind, node, variable and line"
    )
    how.add_argument(
        "--follow",
        action="store_true",
        help="show the last events, then wait for new ones until Ctrl-C",
    )
    parser.add_argument("--short", action="store_true", help="leave out the explanations")
    form = parser.add_mutually_exclusive_group()
    form.add_argument(
        "--json", action="store_true", help="print JSON: a log, or with --count a list"
    )
    form.add_argument("--html", metavar="FILE", help="write the report as a page for a browser")


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of events: 1 or more")
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    """Run ``theanoguard report``; return its exit status."""
    if arguments.follow and (arguments.json or arguments.html):
        raise ValueError("--follow prints text.\nLeave out --json and --html, or --follow.")
    try:
        log = read_logs(arguments.log)
    except FileNotFoundError as error:
        raise ValueError(
            f"{error.filename!r}: {error.strerror}\n"
            "Name the file that GuardMode(log=...) has written."
        ) from error
    if arguments.follow:
        return _follow(log, arguments)
    lines = lines_of(log.entries)
    entries = _chosen(log, lines, arguments)
    if arguments.last:
        entries = entries[-arguments.last :]
    used = {entry.header for entry in entries}
    headers = {key: header for key, header in log.headers.items() if key in used}
    if arguments.json:
        if arguments.count:
            print(json.dumps(count(entries, lines), indent=2))
            return 0
        for key, header in headers.items():
            print(header_json(key, header))
        for entry in entries:
            print(entry.to_json())
        return 0
    color = bool(arguments.html) or wants_color(sys.stdout)
    texts = _texts(log, headers, entries, lines, arguments, color)
    if arguments.html is None:
        for text in texts:
            print(text)
        return 0
    body = f"<style>{page.STYLE}</style>{page.colored(chr(10).join(texts))}"
    document = page.document(body, f"theanoguard report {' '.join(arguments.log)}")
    write_atomically(Path(arguments.html), document.encode())
    print(f"The report is in {printable(arguments.html)}.")
    return 0


def _chosen(
    log: Log, lines: Mapping[Place, SourceLine], arguments: argparse.Namespace
) -> list[LogEntry]:
    """Return the entries that the arguments ask for."""
    asked = (arguments.kind, arguments.node, arguments.variable, arguments.call, arguments.source)
    return [
        entry
        for entry in log.entries
        if is_of(entry, arguments.worker, arguments.task)
        and is_wanted(entry.event, line_of(entry, lines), *asked)
    ]


def _texts(
    log: Log,
    headers: Mapping[str, Mapping[str, Any]],
    entries: list[LogEntry],
    lines: Mapping[Place, SourceLine],
    arguments: argparse.Namespace,
    color: bool,
) -> Iterator[str]:
    """Yield the parts of the report as text."""
    damaged = f"; damaged lines, left out: {log.damaged}" if log.damaged else ""
    if not log.entries:
        yield f"The log has no events: no check has found a bad value{damaged}."
        return
    if not entries:
        yield f"0 of {len(log.entries)} events{damaged}."
        yield "`theanoguard report LOG --count` lists the kinds, names, lines and nodes of all."
        return
    if arguments.count:
        yield render_counts(count(entries, lines))
        return
    numbers = {key: i for i, key in enumerate(headers, 1)} if len(headers) > 1 else {}
    renderer = Renderer(lines, arguments.short, color, numbers, explained_of(log.entries))
    for text in (renderer.each if arguments.all else renderer.groups)(entries):
        yield f"{text}\n"
    for key, header in headers.items():
        yield f"{render_environment(header, numbers.get(key))}\n"
    yield f"{len(entries)} of {len(log.entries)} events{damaged}."


def _follow(log: Log, arguments: argparse.Namespace) -> int:
    """Print the last events of a log, and those that come, until Ctrl-C; return the status."""
    color = wants_color(sys.stdout)
    most: int | None = arguments.last or LAST_FOLLOWED
    shown: dict[tuple, bool] = {}
    told: set[Cause] = set()  # causes that have been explained
    try:
        while True:
            lines = lines_of(log.entries)
            new = []
            for entry in _chosen(log, lines, arguments):
                event = entry.event
                key = entry.time, entry.process, entry.worker, event.kind, event.call, event.node
                # An explanation is written after its event: the entry is shown again, in full.
                is_full = entry.explanation is not None and not arguments.short
                if key not in shown or is_full > shown[key]:
                    shown[key] = is_full
                    new.append(entry)
            new = new[-most:] if most else new
            explained = explained_of(log.entries)
            explained = {cause: entry for cause, entry in explained.items() if cause not in told}
            renderer = Renderer(lines, arguments.short, color, explained=explained)
            for text in renderer.each(new):
                print(f"{text}\n", flush=True)
            told.update(cause_of(entry.event) for entry in new)
            most = None
            time.sleep(POLL_SECONDS)
            log = _read_again(arguments.log, log)
    except KeyboardInterrupt:
        return 0


def _read_again(paths: list[str], log: Log) -> Log:
    try:
        return read_logs(paths)
    except (FileNotFoundError, PermissionError):  # it is being rotated
        return log
