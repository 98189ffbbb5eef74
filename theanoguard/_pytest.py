"""``pytest --guard``: every function that a test run compiles is guarded.

Works for PyTensor and for Theano code alike.  A test in which a bad value appears fails and shows
its explanation, even where the test itself catches the error.  Functions for other linkers than
the C backend's, and those with a guard or a monitor of their own, are left as they are.

pytest imports this module wherever theanoguard is installed, and without the option it must not
import PyTensor.
"""

import sys

import pytest

DEFAULT = "nan,inf,big"
REWRITES = "rewrites"


def pytest_addoption(parser):
    """Add the option ``--guard``."""
    parser.getgroup("theanoguard").addoption(
        "--guard",
        nargs="?",
        const=DEFAULT,
        metavar="KINDS",
        help=f"fail a test in which a bad value appears in a function: some of {DEFAULT} "
        f"(default: all); or {REWRITES}: in which a rewrite changes what a function computes; "
        "write --guard=KINDS",
    )


def pytest_configure(config):
    """Guard what is compiled from now on, if that is asked for."""
    text = config.getoption("--guard")
    if text is None:
        return
    if text == REWRITES:
        from theanoguard._compare.every_function import Comparing

        comparing = Comparing()
        config.add_cleanup(comparing.start().stop)
        config.pluginmanager.register(RewritesPlugin(comparing), "theanoguard-rewrites")
        return
    from theanoguard.guard.every_function import NotingRun, kinds

    try:
        settings = kinds(text)
    except ValueError as error:
        # `--guard tests` takes the tests for the kinds.
        raise pytest.UsageError(f"--guard={text}: {error}") from error
    run = NotingRun(**settings)
    config.add_cleanup(run.start().stop)
    config.pluginmanager.register(Plugin(run, text), "theanoguard-guard")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item, call):
    """Let the traceback of a guard error end at the user's call; ``--full-trace`` shows it all."""
    errors, raised = sys.modules.get("theanoguard.guard.errors"), call.excinfo
    is_guards = errors is not None and raised is not None
    is_guards = is_guards and isinstance(raised.value, errors.GuardError)
    if is_guards and not item.config.getoption("fulltrace"):
        shown = errors.users_part(raised.tb)
        raised.value.__traceback__ = shown
        call.excinfo = pytest.ExceptionInfo.from_exception(raised.value)
    return (yield)


class Plugin:
    """The hooks of a guarded test run."""

    def __init__(self, run, text):
        self.run = run
        self.text = text

    def pytest_report_header(self):
        """Say that the run is guarded."""
        return f"guard: {self.text}"

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item):
        """Fail a test in which a bad value appeared, even if it catches the error."""
        trips = self.run.trips
        trips.clear()
        try:
            result = yield
        except Exception as raised:
            if trips.events and not isinstance(raised, AssertionError):
                item.add_report_section("call", "a bad value before it", str(trips.errors()[0]))
            raise
        if trips.events:
            pytest.fail(f"A bad value appeared, and its error was caught.\n{trips.errors()[0]}")
        return result

    def pytest_terminal_summary(self, terminalreporter):
        """Say how many functions were guarded."""
        run = self.run
        left = f", {run.left} left as they are" if run.left else ""
        terminalreporter.write_line(f"guard: {run.guarded} functions guarded{left}")


class RewritesPlugin:
    """The hooks of a test run whose functions are compared with their graphs as written."""

    def __init__(self, comparing):
        self.comparing = comparing

    def pytest_report_header(self):
        """Say that functions are compared."""
        return "guard: rewrites"

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item):
        """Fail a test in which a rewrite changed what a function computes."""
        changes = self.comparing.changes
        changes.clear()
        result = yield
        if changes:
            texts = "\n".join(map(str, changes))
            pytest.fail(f"A rewrite changed what a function computes.\n{texts}", pytrace=False)
        return result

    def pytest_terminal_summary(self, terminalreporter):
        """Say how many calls were compared."""
        terminalreporter.write_line(f"guard: {self.comparing}")
