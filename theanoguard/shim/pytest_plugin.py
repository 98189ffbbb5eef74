"""``pytest -p theanoguard.shim.pytest_plugin``: a legacy test suite, unmodified, on PyTensor.

Importing this package makes ``import theano`` work, before pytest collects anything.
"""

from theanoguard import numpy_compat, python_compat

COMPAT = {
    "--numpy-compat": (numpy_compat, "give NumPy its old names, such as np.int"),
    "--python-compat": (
        python_compat,
        "give Python's library names of 3.7, such as collections.Iterable",
    ),
}


def pytest_addoption(parser):
    """Add the options ``--numpy-compat`` and ``--python-compat``, as ``theanoguard run`` has."""
    group = parser.getgroup("theanoguard")
    for option, (_, text) in COMPAT.items():
        group.addoption(option, action="store_true", help=text)


def pytest_configure(config):
    """Give NumPy and Python's library their old names, where that is asked for."""
    for option, (compat, _) in COMPAT.items():
        if config.getoption(option):
            config.add_cleanup(compat.install())


def pytest_report_header():
    """Say what ``import theano`` gives."""
    return "theano: the shim of theanoguard, on PyTensor"
