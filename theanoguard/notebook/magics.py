"""``%guard``, ``%%guard``, ``%step`` and ``%watch``."""

import ast
from typing import Any

from theanoguard.guard.every_function import ALL_KINDS, guarding, kinds
from theanoguard.guard.history import Recording
from theanoguard.monitor import step_through
from theanoguard.notebook.plotting import WatchPlot
from theanoguard.notebook.stepping import StepView
from theanoguard.training import Watch


class Magics:
    """The magics of a session.

    Parameters
    ----------
    shell : InteractiveShell
    """

    def __init__(self, shell: Any) -> None:
        self.shell = shell
        self._kinds: str | None = None
        self._run_on: Any = None
        self._plots: list[WatchPlot] = []

    def start(self) -> None:
        """Register them."""
        self.shell.register_magic_function(self.guard, "line_cell", "guard")
        self.shell.register_magic_function(self.step, "line", "step")
        self.shell.register_magic_function(self.watch, "line", "watch")

    def stop(self) -> None:
        """Remove them, and switch the guard off."""
        self._off()
        for plot in self._plots:
            plot.stop()
        magics = self.shell.magics_manager.magics
        magics["cell"].pop("guard", None)
        for name in ("guard", "step", "watch"):
            magics["line"].pop(name, None)

    def guard(self, line: str, cell: str | None = None) -> None:
        """Guard every function that is compiled from now on, or in one cell.

        ``%guard on`` checks for NaN, Inf and big values.  ``%guard on nan,inf`` checks only for
        these kinds.  ``%guard off`` switches the guard off, and ``%guard`` shows the state.
        ``%%guard`` and ``%%guard nan,inf,big`` guard the functions that one cell compiles.
        """
        if cell is not None:
            return self._guard_cell(line.strip() or ALL_KINDS, cell)
        word, _, rest = line.strip().partition(" ")
        if word == "on":
            run = self._guarding(rest.strip() or ALL_KINDS)
            self._off()
            self._kinds, self._run_on = rest.strip() or ALL_KINDS, run.start()
        elif word == "off" and not rest.strip():
            self._off()
        elif word:
            raise _usage_error(
                f"%guard {line.strip()}: write `%guard on`, `%guard on nan,inf,big` or "
                "`%guard off`; `%%guard nan,inf,big` guards one cell."
            )
        on = f"on: functions compiled from now on are checked for {self._kinds}"
        print(f"The guard is {on if self._run_on else 'off'}.")

    def _guarding(self, text: str) -> Any:
        try:
            checked: dict[str, Any] = {**kinds(text)}
            return guarding(**checked)
        except ValueError as error:
            raise _usage_error(f"%guard: {error}.") from None

    def _off(self) -> None:
        if self._run_on is not None:
            self._run_on.stop()
            self._kinds = self._run_on = None

    def _guard_cell(self, text: str, cell: str) -> None:
        with self._guarding(text):
            self._run("# %%guard\n" + cell)

    def _run(self, cell: str) -> None:
        """Run a cell as IPython does, but let its error through, so that it is shown once."""
        shell = self.shell
        source = shell.transform_cell(cell)
        file = shell.compile.cache(source, shell.execution_count, raw_code=cell)
        statements = ast.parse(source, filename=file).body
        shown = statements.pop() if statements and isinstance(statements[-1], ast.Expr) else None
        exec(shell.compile(ast.Module(statements, []), file, "exec"), shell.user_ns)
        if shown is not None:
            exec(shell.compile(ast.Interactive([shown]), file, "single"), shell.user_ns)

    def step(self, line: str) -> StepView:
        """Open a call in the stepper: ``%step f(x)``.

        Nothing runs yet.  The buttons and the bar run node by node.
        """
        try:
            tree: ast.Expression | None = ast.parse(line.strip(), "%step", "eval")
        except SyntaxError:
            tree = None
        if tree is None or not isinstance(tree.body, ast.Call):
            raise _usage_error(f"%step {line.strip()}: write the call of a function, such as f(x).")
        call = tree.body
        call.args.insert(0, call.func)
        call.func = ast.copy_location(ast.Name("%step", ast.Load()), call)
        stepper = eval(compile(tree, "%step", "eval"), self.shell.user_ns, {"%step": step_through})
        return StepView(stepper)

    def watch(self, line: str) -> None:
        """Plot the norms of a watch, or of a record of calls, while the training runs."""
        watch = eval(line.strip() or "None", self.shell.user_ns)
        if not isinstance(watch, Watch | Recording):
            raise _usage_error(
                f"%watch {line.strip()}: write the name of a theanoguard.training.Watch, or "
                "recording_of(f)."
            )
        plot = WatchPlot(watch)
        self._plots.append(plot)
        # Now, not at the end of the cell: the cell may also contain the training.
        self.shell.display_pub.publish(plot._repr_mimebundle_())


def _usage_error(message: str) -> Exception:
    from IPython.core.error import UsageError

    error: Exception = UsageError(message)
    return error
