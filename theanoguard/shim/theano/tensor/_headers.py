"""The C++ headers of the shim's operations."""

from pathlib import Path

_DIRECTORY = Path(__file__).parent / "c_code"


def headers(*names):
    """Return the text of these headers, in this order, for ``c_support_code``."""
    return "\n".join((_DIRECTORY / name).read_text(encoding="utf-8") for name in names)
