"""``pytest --guard``: every function that a test run compiles is guarded, compared or linted.

``--guard=check`` checks the PyMC models that the tests build.

Works for PyTensor and for Theano code alike.  A test in which a bad value appears fails and shows
its explanation, even where the test itself catches the error.  Functions for other linkers than
the C backend's, and those with a guard or a monitor of their own, are left as they are.

pytest imports this module wherever theanoguard is installed, and without the option it must not
import PyTensor.
"""

import sys
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from theanoguard.cli.seconds import seconds_argument

if TYPE_CHECKING:
    from theanoguard._compare.every_function import Comparing
    from theanoguard._lint.every_function import LintedSuite
    from theanoguard.guard.every_function import NotingRun
    from theanoguard.pymc.built import BuiltModels

DEFAULT = "nan,inf,big"
REWRITES = "rewrites"
LINT = "lint"
_JUDGE = 'GuardMode(judge="result")'
CHECK = "check"
BASELINE = "lint-baseline.json"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option ``--guard`` and those of lint."""
    group = parser.getgroup("theanoguard")
    group.addoption(
        "--guard",
        nargs="?",
        const=DEFAULT,
        metavar="KINDS",
        help=f"fail a test in which a bad value appears in a function: some of {DEFAULT} "
        f"(default: all); or {REWRITES}: in which a rewrite changes what a function computes; "
        f"or {LINT}: whose functions fail at other inputs of the same range; "
        f"or {CHECK}: whose PyMC models have a fault; write --guard=KINDS",
    )
    group.addoption(
        "--guard-judge",
        choices=["node", "result"],
        default="node",
        help="with --guard=KINDS: fail at each bad value, or only if an output or update is bad "
        "(default: node)",
    )
    group.addoption(
        "--lint-baseline",
        metavar="FILE",
        help=f"the findings of --guard={LINT} that are accepted (default: {BASELINE} in rootdir)",
    )
    group.addoption(
        "--lint-accept",
        action="store_true",
        help=f"accept the findings of --guard={LINT}: add them to the baseline",
    )
    group.addoption(
        "--lint-seconds",
        type=seconds_argument,
        default=1.0,
        metavar="SECONDS",
        help="processor time for the search of each function (default: 1)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Guard what is compiled from now on, if that is asked for."""
    text = config.getoption("--guard")
    if config.getoption("--lint-accept") and (text != LINT or hasattr(config, "workerinput")):
        raise pytest.UsageError(f"--lint-accept needs --guard={LINT}, in one process: without -n")
    if text is None:
        return
    if text == LINT:
        config.pluginmanager.register(_lint_plugin(config), "theanoguard-lint")
        return
    if text == CHECK:
        from theanoguard.pymc.built import BuiltModels

        try:
            built = BuiltModels(stops=False)
        except ValueError as error:
            raise pytest.UsageError(f"--guard={CHECK}: {error}") from error
        config.add_cleanup(built.start())
        config.pluginmanager.register(CheckPlugin(built), "theanoguard-check")
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
    run = NotingRun(**settings, judge=config.getoption("--guard-judge"))
    config.add_cleanup(run.start().stop)
    config.pluginmanager.register(Plugin(run, text), "theanoguard-guard")


def _lint_plugin(config: pytest.Config) -> "LintPlugin":
    from theanoguard._lint.baseline import Baseline
    from theanoguard._lint.every_function import LintedSuite
    from theanoguard._provenance import track_provenance

    path = config.getoption("--lint-baseline") or config.rootpath / BASELINE
    try:
        baseline = Baseline(Path(path))
    except ValueError as error:
        raise pytest.UsageError(str(error)) from error
    suite = LintedSuite(baseline, config.getoption("--lint-seconds"))
    tracking = track_provenance()
    tracking.__enter__()
    config.add_cleanup(lambda: tracking.__exit__(None, None, None))
    config.add_cleanup(suite.start())
    return LintPlugin(suite, config.getoption("--lint-accept"))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Let the traceback of a guard error end at the user's call; ``--full-trace`` shows it all."""
    errors, raised = sys.modules.get("theanoguard.guard.errors"), call.excinfo
    if (
        errors is not None
        and raised is not None
        and isinstance(raised.value, errors.GuardError)
        and not item.config.getoption("fulltrace")
    ):
        shown = errors.users_part(raised.tb)
        raised.value.__traceback__ = shown
        call.excinfo = pytest.ExceptionInfo.from_exception(raised.value)
    return (yield)


class Plugin:
    """The hooks of a guarded test run."""

    def __init__(self, run: "NotingRun", text: str) -> None:
        self.run = run
        self.text = text
        self.advised = False

    def pytest_report_header(self) -> str:
        """Say that the run is guarded."""
        return f"guard: {self.text}"

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        """Fail a test in which a bad value appeared, even if it catches the error."""
        trips = self.run.trips
        trips.clear()
        try:
            result = yield
        except Exception as raised:
            self.advised |= _JUDGE in str(trips.errors())
            if trips.events and not isinstance(raised, AssertionError):
                item.add_report_section("call", "a bad value before it", str(trips.errors()[0]))
            raise
        if trips.events:
            self.advised |= _JUDGE in str(trips.errors())
            pytest.fail(f"A bad value appeared, and its error was caught.\n{trips.errors()[0]}")
        return result

    def pytest_terminal_summary(self, terminalreporter: "pytest.TerminalReporter") -> None:
        """Say how many functions were guarded."""
        run = self.run
        left = f", {run.left} left as they are" if run.left else ""
        terminalreporter.write_line(f"guard: {run.guarded} functions guarded{left}")
        if self.advised:
            terminalreporter.write_line(f"guard: for pytest, {_JUDGE} is --guard-judge=result")


class RewritesPlugin:
    """The hooks of a test run whose functions are compared with their graphs as written."""

    def __init__(self, comparing: "Comparing") -> None:
        self.comparing = comparing

    def pytest_report_header(self) -> str:
        """Say that functions are compared."""
        return "guard: rewrites"

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        """Fail a test in which a rewrite changed what a function computes."""
        changes = self.comparing.changes
        changes.clear()
        result = yield
        if changes:
            texts = "\n".join(map(str, changes))
            pytest.fail(f"A rewrite changed what a function computes.\n{texts}", pytrace=False)
        return result

    def pytest_terminal_summary(self, terminalreporter: "pytest.TerminalReporter") -> None:
        """Say how many calls were compared."""
        terminalreporter.write_line(f"guard: {self.comparing}")


class LintPlugin:
    """The hooks of a test run whose functions are searched for inputs at which they fail."""

    def __init__(self, suite: "LintedSuite", accepts: bool) -> None:
        self.suite = suite
        self.accepts = accepts

    def pytest_report_header(self) -> str:
        """Say that functions are linted, and what is accepted."""
        baseline = self.suite.baseline
        return f"guard: lint, {len(baseline.accepted)} findings accepted in {baseline.path}"

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        """Fail the first test that calls a function with a finding which is not accepted."""
        result = yield
        found = self.suite.search()
        if found and not self.accepts:
            text = "\n".join(map(str, found))
            pytest.fail(_NEW.format(text, found[0].rule), pytrace=False)
        return result

    def pytest_terminal_summary(self, terminalreporter: "pytest.TerminalReporter") -> None:
        """Say what was found, and accept it if that is asked for."""
        terminalreporter.write_line(f"guard: {self.suite}")
        if self.accepts:
            self.suite.baseline.add(self.suite.new)
            terminalreporter.write_line(f"guard: written to {self.suite.baseline.path}")


class CheckPlugin:
    """The hooks of a test run whose PyMC models are checked."""

    def __init__(self, built: "BuiltModels") -> None:
        self.built = built
        self.checked = 0

    def pytest_report_header(self) -> str:
        """Say that models are checked."""
        return "guard: check"

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        """Fail a test that has built a model with a fault, or whose fixtures have."""
        from theanoguard.pymc import check

        result = yield
        checks = [check(model) for model in self.built.taken()]
        self.checked += len(checks)
        if texts := [str(one) for one in checks if not one.ok]:
            pytest.fail("A PyMC model has a fault.\n" + "\n\n".join(texts), pytrace=False)
        return result

    def pytest_runtest_logfinish(self) -> None:
        """Forget the models of a test that failed by itself, and the copies that a check made."""
        self.built.taken()

    def pytest_terminal_summary(self, terminalreporter: "pytest.TerminalReporter") -> None:
        """Say how many models were checked."""
        terminalreporter.write_line(f"guard: {self.checked} models checked")


_NEW = """A function of this test fails at other inputs, between those of its calls.
{}
To accept a finding: pytest --guard=lint --lint-accept, or a comment on its line, such as
# theanoguard: ignore[{}]"""
