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
    width = min(shutil.get_terminal_size((WIDTH, 24)).columns, WIDTH)
    print(page(find(arguments.code), width) if arguments.code else index())
    return 0


def index():
    """Return the list of all faults as text."""
    lines = []
    for prefix, title in GROUPS.items():
        lines += ["", title]
        lines += [
            f"  {fault.code}  {fault.key:32}{fault.title}"
            for fault in faults().values()
            if fault.code.startswith(prefix)
        ]
    return "\n".join(lines[1:])
