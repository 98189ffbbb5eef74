"""The log of events: lines of JSON for each trip, under headers that say what it ran on.

A line that starts a section of a log is a header, ``{"schema": "theanoguard.log/1",
"header": id, "environment": {...}, "mode": {...}}``.  Each other line is ``{"time": ...,
"process": ..., "header": id}`` with ``"event"``, as
:meth:`~theanoguard._event.GuardEvent.to_json` gives it, or with ``"explanation"``, as
:meth:`~theanoguard.explain.facts.records.Explanation.to_plain` gives it, or with both.  An
explanation contains its event.  Its line comes later, so that the event is on disk before the
explanation is computed.  The id is a digest of the header, so that one log may hold events of
several runs and modes.

A line also has ``"worker"`` and ``"task"``, the names of
:func:`~theanoguard.log.worker.whereabouts`, where there are such names.
"""

import hashlib
import json
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

from filelock import FileLock

import theanoguard.explain as explaining
from theanoguard._arguments import Count, Within, checked
from theanoguard._environment import environment
from theanoguard._event import Cause, GuardEvent, cause_of
from theanoguard._files import replace_file
from theanoguard._shown import brief, displayed, html_table
from theanoguard.log.worker import whereabouts

if TYPE_CHECKING:
    from theanoguard.explain import Explanation

try:
    import fcntl
except ImportError:  # on Windows
    fcntl = None  # type: ignore[assignment]

logger = logging.getLogger("theanoguard")

SCHEMA = "theanoguard.log/1"  # name and version of the format of a log

MAX_EXPLANATION = 1 << 16  # bytes that the line of an explanation may have

_HEADER_START = b'{"schema": "theanoguard.log/'


class EventLog:
    """A file of events that several threads and processes may append to.

    Each event is one line.  The guard writes it before the call continues, so it survives a crash
    of the process, but not of the machine.  If the file would become larger than `max_bytes`, it is
    renamed to ``path.1``, ``path.1`` to ``path.2`` and so on, and a new file is started.

    If the log cannot be written, for example because the disk is full, the computation continues,
    and the logger ``theanoguard`` says so once.

    Parameters
    ----------
    path : str or path-like
        A file in a folder that exists.  New events are appended to an existing log.
    max_bytes : int
        Largest size of a file in bytes.  A single long line may exceed it.
    backups : int
        Number of older files to keep.
    mode : mapping or None
        Settings of the compile mode, for the header: plain data.

    Raises
    ------
    ValueError, TypeError
        If `path` cannot be written, or is a file that is not a log.

    Examples
    --------
    >>> from theanoguard.log import EventLog, read_log
    >>> from theanoguard.records import GuardEvent
    >>> import os, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = os.path.join(folder.name, "events.jsonl")
    >>> log = EventLog(path)
    >>> log.add(GuardEvent("nan", "node", "Log(x)", "Log", None, 0, "float64", (3,), 3,
    ...                    1, 0, 0, 0, (2,), float("nan")))
    >>> [entry.event.node for entry in read_log(path).entries]
    ['Log(x)']
    >>> folder.cleanup()
    """

    @checked
    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        max_bytes: Count = 10 << 20,
        backups: Annotated[int, Within(0)] = 3,
        mode: Mapping[str, Any] | None = None,
    ) -> None:
        self.path = os.path.abspath(path)
        self.max_bytes = max_bytes
        self.backups = backups
        self.mode = dict(mode or {})
        self._forget()
        self._check()

    def _forget(self) -> None:
        self._header: bytes | None = None  # its line, made when it is first needed
        self._id: str | None = None
        # identity of a file, ids of headers that it has
        self._seen: tuple[tuple[int, int] | None, frozenset] = (None, frozenset())
        self._failed = False

    def _check(self) -> None:
        """See that the log can be written, at once and not at the first trip."""
        try:
            if os.path.exists(self.path) and not os.path.isfile(self.path):
                raise OSError("it is not a regular file")
            with self._locked(), self._open() as file:
                file.seek(0)
                start = file.read(len(_HEADER_START))
        except OSError as error:
            raise ValueError(
                f"the log {self.path!r} cannot be written: {error.strerror or error}.\n"
                "Give the path of a file in a folder that exists and that you may write to."
            ) from error
        if start and start != _HEADER_START:
            raise ValueError(
                f"{self.path!r} holds something else than a log of events.\n"
                "Give another path, or move the file away."
            )

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.path!r}, max_bytes={self.max_bytes}, "
            f"backups={self.backups})"
        )

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("path", "max_bytes", "backups", "mode")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Without a check: what was pickled elsewhere must load here.
        vars(self).update(state)
        self._forget()

    def describing(self, mode: Mapping[str, Any]) -> "EventLog":
        """Return a log of the same file whose header has these settings of a mode.

        Parameters
        ----------
        mode : mapping
            Plain data.

        Returns
        -------
        EventLog
        """
        new = object.__new__(type(self))
        new.__setstate__({**self.__getstate__(), "mode": dict(mode)})
        return new

    def start(self) -> None:
        """Write the header, unless the file has it, so that a run without an event leaves one."""
        self._write(lambda header: b"")

    def add(self, event: GuardEvent) -> None:
        """Append an event.

        Parameters
        ----------
        event : GuardEvent
        """
        self._write(lambda header: line_of(header, event))

    def explain(self, explanation: "Explanation") -> None:
        """Append the explanation of an event that has been added.

        One that takes more than :data:`MAX_EXPLANATION` bytes loses the way from the inputs, and
        if that is not enough it is left out.

        Parameters
        ----------
        explanation : Explanation
        """
        self._write(lambda header: bounded_line(header, explanation))

    # -- the file

    def _write(self, make_line: Callable[[str], bytes]) -> None:
        try:
            self._append(make_line)
        except OSError as error:
            if not self._failed:
                self._failed = True
                logger.error("theanoguard: the log %s cannot be written: %s", self.path, error)

    def _append(self, make_line: Callable[[str], bytes]) -> None:
        if self._header is None or self._id is None:
            self._header, self._id = header_line(self.mode)
        line = make_line(self._id)
        with self._locked():
            file = self._open()
            try:
                size = os.fstat(file.fileno()).st_size
                text = self._missing(file, size, self._header) + line
                if size and size + len(text) > self.max_bytes:
                    if fcntl is None:  # Windows renames no file that is open
                        file.close()
                    self._rotate()
                    file.close()
                    file = self._open()
                    size = os.fstat(file.fileno()).st_size
                    text = self._missing(file, size, self._header) + line
                if text:
                    written = file.write(text)
                    if written < len(text):
                        raise OSError(f"only {written} of {len(text)} bytes were written")
                    key, seen = self._seen
                    self._seen = (key, seen | {self._id})
            finally:
                file.close()  # and with it the lock

    def _locked(self) -> AbstractContextManager[Any]:
        """Lock the log by a file beside it on Windows, where :meth:`_open` does not."""
        if fcntl is not None:
            return nullcontext()
        folder, name = os.path.split(self.path)
        os.stat(folder)  # which a lock would make
        # No pattern for the files of the log matches the name.
        return FileLock(os.path.join(folder, f".{name}.lock")).acquire(poll_interval=0.002)

    def _open(self) -> BinaryIO:
        """Open the current file to read and append, locked against everybody else.

        It is opened for each line, because another process may have rotated the log.  The lock
        belongs to the descriptor, so it works between threads as well.
        """
        while True:
            file = open(self.path, "a+b", buffering=0)  # noqa: SIM115
            if fcntl is None:
                return file
            try:
                fcntl.flock(file, fcntl.LOCK_EX)
                if os.path.samestat(os.fstat(file.fileno()), os.stat(self.path)):
                    return file
            except FileNotFoundError:
                pass  # it has just been rotated away
            except BaseException:
                file.close()
                raise
            file.close()

    def _missing(self, file: BinaryIO, size: int, header: bytes) -> bytes:
        """Return the text to write before the next line: the end of a broken line, or a header."""
        status = os.fstat(file.fileno())
        key = (status.st_dev, status.st_ino)
        if size == 0 or self._seen[0] != key:
            self._seen = (key, frozenset())
        file.seek(max(size - 1, 0))
        broken = b"\n" if file.read(1) not in (b"", b"\n") else b""
        if self._id in self._seen[1]:
            return broken
        with open(self.path, "rb") as lines:
            if any(line == header for line in lines):
                self._seen = (key, self._seen[1] | {self._id})
                return broken
        return broken + header

    def _rotate(self) -> None:
        if self.backups == 0:
            os.remove(self.path)
            return
        names = [self.path, *(f"{self.path}.{n}" for n in range(1, self.backups + 1))]
        for old, new in reversed(list(zip(names, names[1:], strict=False))):
            if os.path.exists(old):
                replace_file(old, new)


def open_log(log: EventLog | str | os.PathLike[str] | None) -> EventLog | None:
    """Return the log that the argument `log` of a mode means.

    Raises ``ValueError``, ``TypeError``: as :class:`EventLog`.
    """
    return log if log is None or isinstance(log, EventLog) else EventLog(log)


def header_line(mode: Mapping[str, Any]) -> tuple[bytes, str]:
    """Return the header line of a log, and its id."""
    content = {"environment": environment(), "mode": dict(mode)}
    key = header_id(content)
    return f"{header_json(key, content)}\n".encode(), key


def header_id(content: Mapping[str, Any]) -> str:
    """Return the id of a header with this content: a digest of it."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def header_json(key: str, content: Mapping[str, Any]) -> str:
    """Return a header, with its id and its content, as JSON."""
    return json.dumps({"schema": SCHEMA, "header": key, **content})


def line_of(
    header: str, event: GuardEvent | None = None, explanation: "Explanation | None" = None
) -> bytes:
    """Return the line of what happens now, under the header with this id."""
    time = datetime.now(UTC).isoformat(timespec="milliseconds")
    record = {"time": time, "process": os.getpid(), **whereabouts(), "header": header}
    return f"{_entry_json(record, event, explanation)}\n".encode()


def bounded_line(header: str, explanation: "Explanation") -> bytes:
    """Return the line of an explanation; what is too long loses the way, or is left out."""
    left_out = explanation.left_out + len(explanation.waypoints)
    for shorter in (explanation, replace(explanation, waypoints=(), left_out=left_out)):
        line = line_of(header, explanation=shorter)
        if len(line) <= MAX_EXPLANATION:
            return line
    return b""


def _entry_json(
    record: dict[str, Any], event: GuardEvent | None, explanation: "Explanation | None"
) -> str:
    if event is not None:
        record["event"] = event.to_plain()
    if explanation is not None:
        record["explanation"] = explanation.to_plain()
    return json.dumps(record, allow_nan=False)


@displayed
@dataclass(frozen=True)
class LogEntry:
    """One event of a log.

    Parameters
    ----------
    event : GuardEvent
    time : str
        Time of the event in UTC (ISO 8601).
    process : int
        Id of the process that logged it.
    header : str
        Key of :attr:`Log.headers`, for the environment of the event.
    explanation : Explanation or None
        The explanation, if one was logged.
    worker : str or None
        Name of the worker that logged it: the Dask worker, or the process if it is not the main
        one.
    task : str or None
        Key of the Dask task, or the name given by :func:`theanoguard.log.task`.
    """

    event: GuardEvent
    time: str
    process: int
    header: str
    explanation: "Explanation | None" = None
    worker: str | None = None
    task: str | None = None

    def __str__(self) -> str:
        found = self.explanation
        told = self.event.title if found is None else explaining.render_text(self.event, found)
        return f"{self.time}, process {self.process}\n{told}"

    def to_json(self) -> str:
        """Return the entry as one line of a log, without its end."""
        names = {"worker": self.worker, "task": self.task}
        names = {what: name for what, name in names.items() if name is not None}
        record = {"time": self.time, "process": self.process, **names, "header": self.header}
        return _entry_json(record, self.event, self.explanation)


@brief
@dataclass(repr=False)
class Log:
    """The contents of a log.

    Parameters
    ----------
    headers : dict of str to dict
        By id.  Each has the keys ``environment`` and ``mode``.
    entries : list of LogEntry
        In the order in which they were written.
    damaged : int
        Number of lines that are not JSON, as a crash or a full disk may leave them.
    """

    headers: dict[str, Mapping] = field(default_factory=dict)
    entries: list[LogEntry] = field(default_factory=list)
    damaged: int = 0

    @property
    def events(self) -> list[GuardEvent]:
        """The events alone."""
        return [entry.event for entry in self.entries]

    def __repr__(self) -> str:
        damaged = f", {self.damaged} damaged lines" if self.damaged else ""
        lines = [f"<{type(self).__name__} of {len(self.entries)} events{damaged}>"]
        return "\n".join([*lines, *(f"{e.time} {e.event!r}" for e in self.entries)])

    def _repr_html_(self) -> str:
        damaged = f", {self.damaged} damaged lines" if self.damaged else ""
        title = f"{len(self.entries)} event{'' if len(self.entries) == 1 else 's'}{damaged}"
        rows = [
            (e.time, e.event.title, e.event.source or "", e.event.call, e.event.function or "")
            for e in self.entries
        ]
        heads = ("Time", "Event", "Line", "Call", "Function")
        return html_table(title, heads, rows, "entries has all of them.")


@checked
def read_log(path: str | os.PathLike[str]) -> Log:
    """Read one file of an :class:`EventLog`.

    Parameters
    ----------
    path : str or path-like

    Returns
    -------
    Log

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If it is empty, not a log, or a log of another version.
    """
    log = _read(Path(path))
    log.entries = _joined(log.entries)
    return log


def _read(path: Path) -> Log:
    """Read a log in which explanations are still apart from their events."""
    log = Log()
    with open(path, "rb") as file:
        lines = [line for line in file if line.strip()]
    if not lines:
        raise ValueError(
            f"{str(path)!r} is empty.\nNo function has been compiled with this log so far."
        )
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):  # of JSON, or of the encoding
            log.damaged += 1
            continue
        try:
            _take(record, log)
        except (LookupError, TypeError, ValueError, OverflowError, RecursionError) as error:
            raise ValueError(
                f"{str(path)!r} is no log of events that this version of theanoguard can read.\n"
                f"Line {number}: {_first_line(error)}"
            ) from error
    if not log.headers:
        raise ValueError(
            f"{str(path)!r} is no log of events: it has no header.\n"
            "Name a file that GuardMode(log=...) has written."
        )
    return log


def _take(record: Any, log: Log) -> None:
    if not isinstance(record, dict) or "header" not in record:
        raise ValueError("neither a header nor an event")
    if "event" in record or "explanation" in record:
        explanation = None
        if record.get("explanation") is not None:
            explanation = explaining.Explanation.from_plain(record["explanation"])
        if explanation is None or "event" in record:
            event = GuardEvent.from_plain(record["event"])
        else:
            event = explanation.event
        if event is None:
            raise ValueError("an explanation of no event")
        time, process, header = str(record["time"]), int(record["process"]), str(record["header"])
        names = {what: str(record[what]) for what in ("worker", "task") if what in record}
        log.entries.append(LogEntry(event, time, process, header, explanation, **names))
    elif record.get("schema") == SCHEMA:
        content = {"environment": record["environment"], "mode": record["mode"]}
        if header_id(content) != record["header"]:
            raise ValueError("the header is not as it was written")
        log.headers[record["header"]] = content
    else:
        raise ValueError(f"a log of schema {record.get('schema')!r}, not {SCHEMA!r}")


def _joined(entries: list[LogEntry]) -> list[LogEntry]:
    """Put explanations to the events that they are of, and to later events of the same cause."""
    joined: list[LogEntry] = []
    waiting: dict[tuple, int] = {}
    for entry in entries:
        key = entry.process, entry.worker, entry.task, entry.header, entry.event
        if entry.explanation is None:
            waiting[key] = len(joined)
        elif key in waiting:
            at = waiting.pop(key)
            joined[at] = replace(joined[at], explanation=entry.explanation)
            continue
        joined.append(entry)
    known: dict[Cause, Explanation] = {}
    for entry in joined:
        if entry.explanation is not None:
            known.setdefault(cause_of(entry.event), entry.explanation)
    for entry in joined:
        entry.event.attach(entry.explanation or known.get(cause_of(entry.event)))
    return joined


def _first_line(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"no {error}"
    return str(error).partition("\n")[0]


@checked
def read_logs(paths: Iterable[str | os.PathLike[str]]) -> Log:
    """Read several files as one log, such as rotated files or the logs of several workers.

    Parameters
    ----------
    paths : iterable of str or path-like

    Returns
    -------
    Log
        With the entries in the order of their times.

    Raises
    ------
    OSError, ValueError
        As :func:`read_log`.
    """
    logs = [_read(Path(path)) for path in paths]
    entries = [entry for log in logs for entry in log.entries]
    # (an explanation may stand in another file than its event, and bear the same time)
    entries.sort(key=lambda entry: (entry.time, entry.explanation is not None))
    return Log(
        headers={key: header for log in logs for key, header in log.headers.items()},
        entries=_joined(entries),
        damaged=sum(log.damaged for log in logs),
    )
