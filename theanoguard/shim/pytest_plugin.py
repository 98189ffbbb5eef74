"""``pytest -p theanoguard.shim.pytest_plugin``: a legacy test suite, unmodified, on PyTensor.

Importing this plugin makes ``import theano`` work, before pytest collects anything.
"""

import theanoguard.shim.auto  # noqa: F401
from theanoguard.shim import numpy_compat, python_compat
from theanoguard.shim.advice import add_advice, advice

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


def give_old_names(config, options):
    """Give NumPy and Python's library their old names, where that is asked for."""
    for option, (compat, _) in COMPAT.items():
        if getattr(options, option.strip("-").replace("-", "_")):
            config.add_cleanup(compat.install())


def pytest_load_initial_conftests(early_config):
    """Give the names before any ``conftest.py`` imports the code that wants them."""
    give_old_names(early_config, early_config.known_args_namespace)


def pytest_configure(config):
    """Give the names where it is a ``conftest.py`` that asks for this plugin."""
    give_old_names(config, config.option)


def pytest_runtest_makereport(item, call):
    """Say what to do about an error of old code."""
    if call.excinfo is not None:
        add_advice(call.excinfo.value)


def pytest_make_collect_report(collector):
    """Say what to do about an import that fails."""
    collect = collector.collect

    def advised():
        try:
            return collect()
        except collector.CollectError as error:
            # Its text is that of the import's error, as a traceback of it reads.
            if error.__cause__ is not None and (text := advice(error.__cause__)):
                error.args = (f"{error.args[0]}\n{text}",)
            raise
        except Exception as error:
            add_advice(error)
            raise

    collector.collect = advised


def pytest_report_header():
    """Say what ``import theano`` gives."""
    return "theano: the shim of theanoguard, on PyTensor"
