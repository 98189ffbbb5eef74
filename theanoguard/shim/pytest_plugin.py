"""``pytest -p theanoguard.shim.pytest_plugin`` runs an unmodified legacy test suite on PyTensor.

Importing this plugin makes ``import theano`` work, before pytest collects anything.  Set-ups that
were written for nose are called with every release of pytest.
"""

import theanoguard.shim.auto  # noqa: F401
from theanoguard.cli.children import set_up_children
from theanoguard.shim import nose_fixtures, numpy_compat, python_compat
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
    """Add the old names of NumPy and Python's library that the options ask for."""
    for option, (compat, _) in COMPAT.items():
        if getattr(options, option.strip("-").replace("-", "_")):
            config.add_cleanup(compat.install())


def pytest_load_initial_conftests(early_config):
    """Add the names before a ``conftest.py`` imports code that needs them."""
    give_old_names(early_config, early_config.known_args_namespace)


def pytest_configure(config):
    """Add the names if a ``conftest.py`` loads this plugin, which is after the hook above."""
    options = config.option
    give_old_names(config, options)
    numpy_names, python_names = options.numpy_compat, options.python_compat
    undo = set_up_children(numpy_names=numpy_names, python_names=python_names, guard=None)
    config.add_cleanup(undo)
    config.pluginmanager.set_blocked("nose")  # pytest's own, which pytest 8.0 turns into errors
    config.pluginmanager.register(nose_fixtures)


def pytest_runtest_makereport(item, call):
    """Add advice to an error in a test."""
    if call.excinfo is not None:
        add_advice(call.excinfo.value)


def pytest_make_collect_report(collector):
    """Add advice to an error that a module raises when pytest imports it."""
    collect = collector.collect

    def advised():
        try:
            return collect()
        except collector.CollectError as error:
            # pytest shows only its text, which is the formatted error of the import.
            if error.__cause__ is not None and (text := advice(error.__cause__)):
                error.args = (f"{error.args[0]}\n{text}",)
            raise
        except Exception as error:
            add_advice(error)
            raise

    collector.collect = advised


def pytest_report_header():
    """Show which package ``import theano`` loads."""
    return "theano: the shim of theanoguard, on PyTensor"
