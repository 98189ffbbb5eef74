"""The Stepper as a prompt in the terminal."""

import ast
import builtins
import cmd
import inspect
import textwrap
import traceback
from collections.abc import Callable
from functools import wraps
from typing import Any, ClassVar

import numpy as np
from pytensor.graph.basic import Apply

from theanoguard._arguments import checked
from theanoguard._pytensor import Function
from theanoguard._text import encodable, fitted, shortened, text_width
from theanoguard.explain.text.color import BLUE, BOLD, BOLD_RED, DIM, RESET, wants_color
from theanoguard.monitor.operands import counted, is_bad, operands, source_around
from theanoguard.monitor.stepper import Stepper
from theanoguard.view.model import statistics

#: Elements of a value that are shown without statistics.
FEW = 4
UNKNOWN_LINE = """\
the line is not known
Compile the function under a guard, or inside: with theanoguard.track_provenance():"""
#: Commands that are remembered for `history`.
MAX_COMMANDS = 500


def value_lines(before: str, value: Any) -> list[str]:
    """Return ``before = value`` as lines that fit the terminal, with the range and a mark.

    A line is never broken inside a number.  The rows of an array of several rows have lines of
    their own.
    """
    if value is None:
        return [f"{before} = (not computed yet, or no longer kept)"]
    if not isinstance(value, np.ndarray):
        text = repr(value.item() if isinstance(value, np.generic) else value)
        return fitted(f"{before} = {shortened(text, 200)}{_about(value)}")
    indent = " " * 4
    start, about = f"{before} = {value.dtype} {value.shape}", _about(value)
    settings: dict[str, Any] = {"threshold": 20, "edgeitems": 2, "precision": 6}
    line = f"{start} {np.array2string(value, **settings, max_line_width=text_width())}{about}"
    if "\n" not in line and len(line) <= text_width():
        return [line]
    settings |= {"prefix": indent, "max_line_width": text_width()}
    return [*fitted(start + about), *(indent + np.array2string(value, **settings)).split("\n")]


def _about(value: Any) -> str:
    """Return the range of a value if its elements are not all shown, and a mark."""
    found = statistics(value)
    if found is None:
        return ""
    bad = counted(value)
    mark = f"  <<< {bad}" if bad else ""
    few = np.prod(found.shape) <= FEW
    return mark if few else f"  {found}{mark}"


class _Names:
    """The names that an expression at the prompt may use."""

    def __init__(self, stepper: Stepper) -> None:
        self.stepper = stepper

    def __getitem__(self, name: str) -> Any:
        if name in ("inputs", "outputs"):
            return getattr(self.stepper, name)
        value = self.stepper.value(name)
        if value is None:
            raise NameError(f"{name} has not been computed yet, or is no longer kept")
        return value


class StepPrompt(cmd.Cmd):
    """Commands for a :class:`Stepper`.

    `**streams`: `completekey`, `stdin` and `stdout` of :class:`cmd.Cmd`.
    """

    prompt = "(step) "
    intro = "Stepping through {name}: {n} nodes. Type help for the commands."

    def __init__(self, stepper: Stepper, **streams: Any) -> None:
        super().__init__(**streams)
        self.stepper = stepper
        self.error: Exception | None = None
        self.color = wants_color(self.stdout)
        self.commands: list[str] = []
        self.breaks: list[str] = []
        name = stepper.fn.name or "the function"
        self.intro = self.intro.format(name=name, n=len(stepper.fgraph.apply_nodes))

    # -- what is printed

    def say(self, text: str) -> None:
        """Print a line."""
        print(encodable(text, self.stdout), file=self.stdout)

    def tell(self, before: str, value: Any) -> None:
        """Print a value, in red if it is bad."""
        bad = value is not None and is_bad(value)
        for line in value_lines(before, value):
            self.say(self.paint(BOLD_RED if bad else "", line))

    def paint(self, color: str, text: str) -> str:
        """Return a text in a colour, if this terminal shows colours."""
        return f"{color}{text}{RESET}" if color and self.color else text

    def show(self) -> None:
        """Print the current step and the watched variables."""
        stepper = self.stepper
        first, *place = stepper.where().split("\n")
        self.say(self.paint(BOLD, first))
        for line in place:
            self.say(self.paint(BLUE, line))
        for operand in operands(stepper.fgraph, stepper.step):
            mark = "!" if operand.is_bad else " "
            self.tell(f"{mark} {operand.verb} {operand.name}", operand.value)
        for label, value in stepper.watched.items():
            self.tell(f"  watched {label}", value)

    def move(self, how: Callable, at_end: str | Callable[[], str]) -> None:
        """Move the stepper and show the current step; say `at_end` if it did not move."""
        try:
            moved = how()
        except KeyboardInterrupt:
            self.stepper.stop()
            self.say("interrupted: the call is abandoned, shared variables keep their values")
            self.say("q leaves")
        except Exception as error:  # the node's own: it is shown, and raised on leaving
            self.error = error
            self.show()
            self.say("".join(traceback.format_exception_only(error)).rstrip())
            self.say("the node has failed; q leaves and raises this error")
        else:
            if moved is None:
                self.say(at_end() if callable(at_end) else at_end)
            else:
                self.show()

    def evaluate(self, expression: str) -> Any:
        """Return the value of an expression: names are the graph's, ``inputs`` and ``outputs``."""
        names: Any = _Names(self.stepper)  # (of a mapping, `eval` needs only this much)
        return eval(expression, {"np": np}, names)

    def reached(self) -> list[str]:
        """The conditions of ``break if`` that hold at the current step."""
        found = []
        for condition in self.breaks:
            try:
                if np.any(self.evaluate(condition)):
                    found.append(condition)
            except NameError:  # what it reads has not been computed yet
                continue
            except Exception as error:  # the condition's own: it stops, and is shown
                found.append(f"{condition} ({type(error).__name__}: {error})")
        return found

    def explain(self, command: str) -> None:
        """Say how a command is used."""
        self.say(inspect.getdoc(getattr(self, f"do_{command}")) or "")

    # -- commands

    def do_next(self, argument: str) -> None:
        """n [COUNT]: run the next node, or COUNT nodes, up to a break condition."""
        if argument and not argument.isdigit():
            self.say(f"n: {argument!r} is not a number of nodes")
            return

        def forward() -> Apply | None:
            node = None
            for _ in range(int(argument or 1)):
                node = self.stepper.next()
                if node is None or self._stopped():
                    break
            return node

        self.move(forward, "the call is complete; b goes back, c leaves with the result")

    def do_continue(self, argument: str) -> bool:
        """c: run to the end and leave with the result, or stop at a break condition."""
        if self.stepper.done:
            return True

        def to_the_end() -> Apply | None:
            while self.breaks and (node := self.stepper.next()) is not None:
                if self._stopped():
                    return node
            self.stepper.run()
            return None

        self.move(to_the_end, "done")
        return self.stepper.result is not None or (self.stepper.done and self.error is None)

    def _stopped(self) -> bool:
        for condition in (found := self.reached()):
            self.say(f"break: {condition}")
        return bool(found)

    def do_until(self, argument: str) -> None:
        """u WHAT: run until a node matches.

        u bad          an output of the node holds NaN or Inf
        u op NAME      NAME is part of its operation's name
        u name NAME    the node computes the variable NAME
        u line LINE    the node comes from this line: a number, or FILE:NUMBER
        """
        kind, _, what = argument.partition(" ")
        conditions: dict[str, dict[str, Any]] = {
            "bad": {"bad": True},
            "op": {"op": what},
            "name": {"name": what},
            "line": {"line": int(what) if what.isdigit() else what},
        }
        if kind not in conditions or (kind != "bad" and not what):
            self.explain("until")
            return
        wanted = conditions[kind]
        behind = self.stepper.behind(**wanted)

        def nothing() -> str:
            end = "the call is complete" if self.stepper.done else "c completes the call"
            text = f"no later node matches; {end}"
            if behind:
                return f"{text}, goto {behind[-1]} goes back to the last step that matches"
            return text

        self.move(lambda: self.stepper.until_fits(**wanted), nothing)

    def do_goto(self, argument: str) -> None:
        """goto N: go to step N, forward or back; going back needs values that are kept."""
        if not argument.isdigit() or not int(argument):
            self.explain("goto")
            return

        def nothing() -> str:
            step = self.stepper.step
            return f"there is no step {argument}; this is step {step.number if step else 0}"

        self.move(lambda: self.stepper.goto_nearest(int(argument)), nothing)

    def do_break(self, argument: str) -> None:
        """break [if EXPR | clear]: stop n and c if a condition holds; alone, list the conditions.

        break if y.max() > 100    names are variables of the graph; np is NumPy
        break if np.isnan(outputs[0]).any()
        break clear               forget all conditions
        """
        word, _, expression = argument.partition(" ")
        if word == "if" and expression.strip():
            condition = expression.strip()
            if (wrong := self._wrong(condition)) is None:
                self.breaks.append(condition)
            else:
                self.say(f"break if: {wrong}")
        elif argument == "clear":
            self.breaks.clear()
        elif not argument and self.breaks:
            for condition in self.breaks:
                self.say(f"break if {condition}")
        else:
            self.explain("break")

    def _wrong(self, condition: str) -> str | None:
        """Say what is wrong with a condition before anything runs; None if nothing is wrong."""
        try:
            tree = ast.parse(condition, mode="eval")
        except SyntaxError as error:
            return f"{condition!r} is not an expression: {error.msg}"
        names = [n for n in ast.walk(tree) if isinstance(n, ast.Name)]
        known = {*dir(builtins), "np", "inputs", "outputs"}
        known |= {name.id for name in names if isinstance(name.ctx, ast.Store)}
        try:
            for name in names:
                if name.id not in known:
                    self.stepper.find(name.id)
        except KeyError as error:
            return error.args[0]
        return None

    def do_back(self, argument: str) -> None:
        """b [COUNT]: go back one node, or COUNT nodes, if their values are kept."""
        if argument and not argument.isdigit():
            self.say(f"b: {argument!r} is not a number of nodes")
            return

        def backward() -> Apply | None:
            moved = [self.stepper.back() for _ in range(int(argument or 1))]
            return moved[0]

        self.move(backward, "no step before this one is kept")

    def do_print(self, argument: str) -> None:
        """p [EXPR]: print a variable or an expression; alone, the variables of the node.

        p y               the variable y
        p y - y.max()     names are variables of the graph; np is NumPy
        p outputs[0].sum()
        """
        if not argument:
            self.show()
            return
        try:
            value = self.stepper.value(argument)
        except KeyError as error:
            unknown = error.args[0]
            if argument.isidentifier() and argument not in ("inputs", "outputs"):
                self.say(unknown)
                return
            try:
                value = self.evaluate(argument)
            except Exception as error:  # the expression's own: it is shown
                self.say("".join(traceback.format_exception_only(error)).rstrip())
                return
        self.tell(argument, value)

    def do_watch(self, argument: str) -> None:
        """watch NAME: print the value of a variable after each step."""
        if not argument:
            self.explain("watch")
            return
        try:
            self.stepper.watch(argument)
        except KeyError as error:
            self.say(error.args[0])

    def do_where(self, argument: str) -> None:
        """w: show the current node and the line that it comes from."""
        self.say(self.stepper.where())

    def do_list(self, argument: str) -> None:
        """l: show the source around that line."""
        lines = source_around(self.stepper.fgraph, self.stepper.node)
        if not lines:
            self.say(UNKNOWN_LINE)
        for number, text, is_here in lines:
            line = f"{'->' if is_here else '  '} {number:4}  {text}"
            self.say(self.paint(BOLD if is_here else DIM, line))

    def do_history(self, argument: str) -> None:
        """history: list the commands that you typed."""
        for number, line in enumerate(self.commands, start=1):
            self.say(f"{number:4}  {line}")

    def do_quit(self, argument: str) -> bool:
        """q: leave; an unfinished call is abandoned, and shared variables keep their values."""
        if not self.stepper.done:
            self.stepper.stop()
        return True

    def do_EOF(self, argument: str) -> bool:
        """End of input: the same as q."""
        self.say("")
        return self.do_quit(argument)

    # -- the loop

    short: ClassVar[dict[str, str]] = {
        "n": "next",
        "c": "continue",
        "u": "until",
        "b": "back",
        "p": "print",
        "w": "where",
        "l": "list",
        "q": "quit",
        "h": "help",
    }

    def precmd(self, line: str) -> str:
        """Spell out a short command, and remember it."""
        name, separator, rest = line.strip().partition(" ")
        if line.strip() and line != "EOF":
            self.commands.append(line.strip())
            del self.commands[:-MAX_COMMANDS]
        return self.short.get(name, name) + separator + rest

    def do_help(self, argument: str) -> None:
        """help [COMMAND]: explain the commands, or one command."""
        if argument:
            command = self.short.get(argument, argument)
            if hasattr(self, f"do_{command}"):
                self.explain(command)
            else:
                self.default(argument)
            return
        letters = {long: letter for letter, long in self.short.items()}
        for name in self.get_names():
            command = name.removeprefix("do_")
            if name.startswith("do_") and command != "EOF":
                usage, _, text = getattr(self, name).__doc__.splitlines()[0].partition(": ")
                usage = f"{command} {usage.partition(' ')[2]}"
                start = f"{letters.get(command, ''):2} {usage:26} "
                lines = textwrap.wrap(text, text_width() - len(start))
                self.say(start + f"\n{' ' * len(start)}".join(lines))

    def completenames(self, text: str, *ignored: Any) -> list[str]:
        """Complete commands, leaving out the end of input."""
        return [name for name in super().completenames(text, *ignored) if name != "EOF"]

    def complete_print(self, text: str, *ignored: Any) -> list[str]:
        """Complete names of variables."""
        return [v.name for v in self.stepper.fgraph.variables if (v.name or "").startswith(text)]

    complete_p = complete_watch = complete_print

    def default(self, line: str) -> None:
        """Say that there is no such command."""
        self.say(f"no command {line.split()[0]!r}; help lists the commands")

    def cmdloop(self, intro: Any = None) -> None:
        """Read commands until one of them leaves; Ctrl-C at the prompt does not."""
        while True:
            try:
                return super().cmdloop(intro)
            except KeyboardInterrupt:
                intro = "\nq leaves"


@checked
def step_in_terminal(fn: Function, *, full_screen: bool = False) -> Callable:
    """Return a function that is called like `fn` and opens a prompt to step through the call.

    Parameters
    ----------
    fn : Function
        A compiled function.
    full_screen : bool
        Show the nodes, the source and the values on the full screen, instead of a prompt.  This
        needs the package Textual (extra ``tui``).

    Returns
    -------
    callable
        It returns what `fn` returns, or None if you left with ``q``.  An error of a node is raised
        when you leave.

    Raises
    ------
    ImportError
        If `full_screen` is true and Textual is not installed.
    RuntimeError
        When called with `full_screen` and without a terminal.

    Examples
    --------
    A session:

    .. code-block:: text

        >>> theanoguard.monitor.step_in_terminal(f)([1.0, 0.0])    # doctest: +SKIP
        Stepping through the function: 3 nodes. Type help for the commands.
        (step) u bad
        step 2, y, Log, of 3 nodes of the function
          model.py:12: y = pt.log(x)
          read x = float64 (2,) [1. 0.]
        ! wrote y = float64 (2,) [  0. -inf]  <<< 1 Inf
        (step) c
    """
    screen = _screen_class() if full_screen else None

    @wraps(fn.__call__)
    def call(*args: Any, **kwargs: Any) -> Any:
        stepper = Stepper(fn, args, kwargs)
        if screen is None:
            session: Any = StepPrompt(stepper)
            session.cmdloop()
        else:
            session = screen(stepper)
            session.run()
        if session.error is not None:
            raise session.error
        return stepper.result

    return call


def _screen_class() -> type:
    try:
        from theanoguard.monitor.screen import StepScreen
    except ImportError as error:
        raise ImportError(
            "the full screen needs Textual, which is not installed.\n"
            "Install it with: pip install textual, or leave out full_screen to use the prompt."
        ) from error
    return StepScreen
