"""``theanoguard explain``: the page of a fault in the index of errors."""

import argparse
import difflib
import shutil
from collections.abc import Collection

from theanoguard._faults import GROUPS, WIDTH, Fault, faults, find, page


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "code",
        nargs="?",
        metavar="CODE",
        help="code at the end of a report, such as TG101, or its name; without it, list all codes",
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the page, or the list of all faults."""
    # (the width that reports have is known to a module that imports PyTensor)
    columns = shutil.get_terminal_size((2 * WIDTH, 24)).columns
    if not arguments.code:
        print(index(faults().values(), columns))
        return 0
    try:
        fault = find(arguments.code)
    except ValueError as error:
        similar = similar_to(arguments.code)
        if not similar:
            raise
        known = index(similar, columns)
        raise ValueError(
            f"{str(error).splitlines()[0]}\nDo you mean one of these?\n{known}"
        ) from None
    print(page(fault, min(columns, WIDTH)))
    return 0


def similar_to(text: str) -> list[Fault]:
    """Return the faults whose names or titles contain a text or are spelled like it.

    Examples
    --------
    >>> [fault.key for fault in similar_to("cholesky")]
    ['cholesky-not-positive-definite']
    """
    text, found = text.lower(), faults()
    spelled = difflib.get_close_matches(text, found, n=3, cutoff=0.7)
    return [
        fault
        for key, fault in found.items()
        if key in spelled or text in key or text in fault.title.lower()
    ]


def index(found: Collection[Fault], columns: int) -> str:
    """Return a list of faults as text, without their names where the terminal is narrow."""
    width = max(len(fault.key) for fault in found)
    is_wide = width + max(len(fault.title) for fault in found) + 11 <= columns
    lines = []
    for prefix, title in GROUPS.items():
        group = [fault for fault in found if fault.code.startswith(prefix)]
        if group:
            lines += ["", title]
        for fault in group:
            name = f"{fault.key:{width}}  " if is_wide else ""
            lines.append(f"  {fault.code}  {name}{fault.title}")
    return "\n".join(lines[1:])
