"""``theanoguard explain``: the page of a fault in the index of errors."""

import shutil

from theanoguard._faults import GROUPS, WIDTH, faults, find, page


def add_arguments(parser):
    """Add the command's arguments."""
    parser.add_argument(
        "code",
        nargs="?",
        metavar="CODE",
        help="code at the end of a report, such as TG101, or its name; without it, list all codes",
    )


def run(arguments):
    """Print the page, or the list of all faults."""
    # (the width that reports have is known to a module that imports PyTensor)
    columns = shutil.get_terminal_size((2 * WIDTH, 24)).columns
    print(page(find(arguments.code), min(columns, WIDTH)) if arguments.code else index(columns))
    return 0


def index(columns):
    """Return the list of all faults as text, without their names where the terminal is narrow."""
    found = faults().values()
    width = max(len(fault.key) for fault in found)
    is_wide = width + max(len(fault.title) for fault in found) + 11 <= columns
    lines = []
    for prefix, title in GROUPS.items():
        lines += ["", title]
        for fault in found:
            if fault.code.startswith(prefix):
                name = f"{fault.key:{width}}  " if is_wide else ""
                lines.append(f"  {fault.code}  {name}{fault.title}")
    return "\n".join(lines[1:])
