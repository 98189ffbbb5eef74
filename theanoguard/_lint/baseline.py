"""Findings that a project accepts, in a file."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from theanoguard._files import write_atomically
from theanoguard._lint.finding import Finding


@dataclass(frozen=True, order=True)
class Accepted:
    """A finding that is accepted: it holds as long as its line reads the same."""

    file: str  # relative to the folder of the baseline
    text: str  # the line
    rule: str


class Baseline:
    """A file of accepted findings.

    `path`: the file; it need not exist.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.accepted = set(_read(path)) if path.exists() else set()

    def entry(self, finding: Finding) -> Accepted:
        """Return what the file says of a finding."""
        source = finding.source
        if source is None:
            return Accepted("", finding.why, finding.rule)
        file, folder = Path(source.file).resolve(), self.path.parent.resolve()
        known = file.relative_to(folder) if file.is_relative_to(folder) else file
        return Accepted(known.as_posix(), source.text, finding.rule)

    def add(self, entries: Iterable[Accepted]) -> None:
        """Accept findings, and write the file."""
        self.accepted |= set(entries)
        rows = [asdict(entry) for entry in sorted(self.accepted)]
        write_atomically(self.path, f"{json.dumps({'findings': rows}, indent=2)}\n".encode())


def _read(path: Path) -> list[Accepted]:
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))["findings"]
        return [Accepted(**row) for row in rows]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path} is no baseline of lint: {error}\n"
            "Delete it, and write it with: pytest --guard=lint --lint-accept"
        ) from error
