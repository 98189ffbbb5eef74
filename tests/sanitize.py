"""Run tests with the kernel built by gcc's sanitizers: ``python tests/sanitize.py [PYTEST ARGS]``.

Only the kernel is built so, and Python's objects come from ``malloc``, so that what is reported is
about the kernel.  Leaks are not asked for, since Python and NumPy keep memory until the process
ends: ``tests/guard/test_control.py`` measures them.
"""

import os
import subprocess
import sys
from pathlib import Path

FLAGS = [
    *("-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
    *("-fno-omit-frame-pointer", "-g", "-O1"),
]
TESTS = [
    f"tests/guard/test_{name}.py"
    for name in ("kernel", "blocks", "flags", "rollback", "values", "control")
]


def pytest_configure(config):
    """As a plugin of pytest: have the kernel built with the sanitizers."""
    from theanoguard.guard.c import build

    plain = build._compiler_arguments
    build._compiler_arguments = lambda: [*plain(), *FLAGS]


def main(arguments):
    """Return the exit status of pytest."""
    folder = str(Path(__file__).parent)
    library = subprocess.run(
        ["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True
    )
    environment = {
        **os.environ,
        "LD_PRELOAD": library.stdout.strip(),
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "PYTHONMALLOC": "malloc",
        "PYTHONPATH": os.pathsep.join([folder, *filter(None, [os.environ.get("PYTHONPATH")])]),
    }
    chosen = arguments or TESTS
    command = [sys.executable, "-m", "pytest", "-p", "sanitize", "-m", "not slow", *chosen]
    return subprocess.run(command, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
