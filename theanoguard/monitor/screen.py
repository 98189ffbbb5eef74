"""The Stepper as a full screen of the terminal: graph, source and values (extra ``tui``)."""

import asyncio
import sys
import time
from collections.abc import Callable
from typing import Any, ClassVar

from pytensor.graph.basic import Apply
from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import DataTable, Footer, Header, Static

from theanoguard._provenance import SourceLine, lookup
from theanoguard._provenance.places import brief_place
from theanoguard._text import cut, cut_apart
from theanoguard.monitor.operands import CONTEXT, made_by, operands, short, source_around
from theanoguard.monitor.stepper import Stepper

BAD = "bold #ff8a80"  # (readable on both backgrounds of a table)
#: Columns from which the table of nodes is beside the step instead of above it.
WIDE = 120
#: Seconds between two messages of a run over many nodes.
REFRESH = 0.1
HELP = """\
n      run the next node
b      go back one step
u      run to the next node that writes NaN or Inf
c      run to the end, and make the updates
Enter  go to the node of the row, forward or back
Ctrl-C stop a run between two nodes
q      leave; a call that is not complete is abandoned,
       and shared variables keep their values

Arrows, Page Up, Page Down, Home and End move in the
table.  Tab changes to the values.  ! marks a bad step."""


def complete() -> bool:
    """Never stop before the end, and make the updates there."""
    return False


class StepScreen(App):
    """A table of the nodes of a call, beside the source and the values of the current step.

    `error`: the error of a node.
    """

    CSS = """
    #graph { width: 2fr; height: 1fr; min-height: 5; }
    #step { width: 3fr; height: 1fr; padding: 0 1; }
    #where, #source, #note { height: auto; }
    #where { text-style: bold; }
    #where, #source { text-wrap: nowrap; text-overflow: ellipsis; }
    #values { height: auto; max-height: 1fr; margin: 1 0; }
    #all { height: 1fr; }
    .-narrow #all { layout: vertical; }
    .-narrow #graph, .-narrow #step { width: 100%; }
    .-narrow #step { height: auto; max-height: 70%; border-top: solid $secondary; }
    .-narrow #values { margin: 0; max-height: 8; }
    .-narrow DataTable { scrollbar-size-horizontal: 0; }
    #note { padding: 0 1; max-height: 6; }
    """
    HORIZONTAL_BREAKPOINTS: ClassVar = [(0, "-narrow"), (WIDE, "-wide")]
    BINDINGS: ClassVar = [
        ("n", "next", "Next"),
        ("b", "back", "Back"),
        ("u", "bad", "Next bad"),
        ("c", "complete", "To the end"),
        Binding("question_mark,h", "help", "Help", key_display="?"),
        ("q", "leave", "Quit"),
        Binding("ctrl+c", "interrupt", show=False, priority=True),
        Binding("ctrl+q", "leave", show=False, priority=True),
    ]
    ENABLE_COMMAND_PALETTE = False

    def __init__(self, stepper: Stepper) -> None:
        super().__init__()
        self.stepper = stepper
        self.error: Exception | None = None
        self.number: dict[Apply, int] = {}
        self.unmarked: list[int] = []
        self.order = stepper.order()
        self.row = {node: row for row, node in enumerate(self.order)}
        self.title = stepper.fn.name or "the function"
        self.sub_title = f"{len(self.order)} nodes"

    def run(self, **settings: Any) -> Any:
        """Show the screen until the user leaves."""
        if not (sys.__stdin__ and sys.__stdin__.isatty()):
            raise RuntimeError(
                "the full screen needs a terminal, but the standard input is not a terminal.\n"
                "Leave out full_screen, or use theanoguard.step_through in a program."
            )
        return super().run(**settings)

    def compose(self) -> ComposeResult:
        """Return the parts of the screen."""
        yield Header(icon="")
        with Horizontal(id="all"):
            yield DataTable(id="graph", cursor_type="row")
            with Vertical(id="step"):
                yield Static(id="where")
                yield Static(id="source")
                yield DataTable(id="values", cursor_type="none")
        yield Static(id="note")
        yield Footer()

    def on_mount(self) -> None:
        """Fill the tables."""
        graph, values = self.query_one("#graph"), self.query_one("#values")
        graph.add_column("Step", width=6)
        graph.add_columns("Expression", "Line", "Operation")
        names = [made_by(self.stepper.fgraph, node) for node in self.order]
        for node, name in zip(self.order, cut_apart(names, 32), strict=True):
            source = self.source_of(node)
            line = "" if source is None else brief_place(source)
            graph.add_row("", *map(Text, (name, cut(line, 20), cut(node.op, 40))))
        values.add_columns("", "Name", "NaN and Inf", "Range", "Type", "Values")
        graph.focus()
        self.show()

    # -- keys

    def action_next(self) -> None:
        """Run the next node."""
        self.move(lambda: True)

    def action_bad(self) -> None:
        """Run until an output holds NaN or Inf."""
        self.move(lambda: self.stepper.number in self.stepper.bad_steps, "No later step is bad.")

    def action_complete(self) -> None:
        """Run to the end, and make the updates."""
        self.move(complete)

    def action_back(self) -> None:
        """Go back to the step before."""
        self.go_to(self.stepper.number - 1)

    def action_help(self) -> None:
        """Show what the keys do."""
        self.push_screen(Keys())

    def action_interrupt(self) -> None:
        """Stop between two nodes."""
        running = [worker for worker in self.workers if worker.is_running]
        self.workers.cancel_all()
        self.show("Stopped. q leaves." if running else "q leaves.")

    def action_leave(self) -> None:
        """Leave, and abandon a call that is not complete."""
        if not self.stepper.done:
            self.stepper.stop()
        self.exit()

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Go to the node of a row."""
        node = self.order[event.cursor_row]
        if node in self.number:
            self.go_to(self.number[node])
        else:
            self.move(lambda: self.stepper.node is node, "This call does not need that node.")

    # -- moving and showing

    def go_to(self, number: int) -> None:
        """Go to a step that has run."""
        self.workers.cancel_all()
        kept = self.stepper.goto_nearest(number) is not None
        self.show("" if kept else "The values of that step are no longer kept.")

    @work(exclusive=True)
    async def move(
        self,
        arrived: Callable[[], bool],
        otherwise: str = "No node is left. c completes the call.",
    ) -> None:
        """Run nodes until one matches.  Another key stops it between two nodes."""
        stepper = self.stepper
        shown = time.monotonic()
        try:
            while stepper.goto_nearest(stepper.number + 1) is not None:
                self.number[stepper.node] = stepper.number
                self.unmarked.append(stepper.number)
                if arrived():
                    self.show()
                    return
                if time.monotonic() - shown > REFRESH:
                    self.mark()
                    self.say(f"Step {stepper.number} of {len(self.order)}. Ctrl-C stops.")
                    await asyncio.sleep(0)
                    shown = time.monotonic()
            if arrived is complete:
                stepper.run()
        except Exception as error:  # the node's own: it is shown, and raised on leaving
            self.error = error
        self.show(otherwise)

    def mark(self) -> None:
        """Write the numbers of the steps that have run beside their nodes."""
        graph, bad = self.query_one("#graph"), set(self.stepper.bad_steps)
        nodes = {number: node for node, number in self.number.items()}
        for number in self.unmarked:
            text = Text(f"{number} !", BAD) if number in bad else Text(str(number))
            graph.update_cell_at((self.row[nodes[number]], 0), text)
        self.unmarked.clear()

    def source_of(self, node: Apply) -> SourceLine | None:
        """Return the user's line of a node."""
        return lookup(self.stepper.fgraph, node).source

    def say(self, text: str, style: str = "") -> None:
        """Show a message above the keys."""
        self.query_one("#note").update(Text(text, style))

    def show(self, note: str = "") -> None:
        """Show the current step."""
        self.mark()
        stepper = self.stepper
        values = self.query_one("#values").clear()
        self.query_one("#where").update(Text(self.where()))
        self.query_one("#source").update(self.source())
        shown = operands(stepper.fgraph, stepper.step)
        for operand, name in zip(shown, cut_apart([o.name for o in shown], 24), strict=True):
            value = cut(short(operand.value), 40)
            cells = (operand.verb, name, operand.bad, operand.range, operand.type, value)
            values.add_row(*(Text(cell, BAD if operand.is_bad else "") for cell in cells))
        if self.error is not None:
            note = f"{type(self.error).__name__}: {self.error}\nThe node has failed. q leaves."
        elif stepper.done:
            note = f"The call is complete: {cut(short(stepper.result))}\nq returns this result."
        self.say(note, BAD if self.error else "")
        if stepper.node is not None:  # (once the table is as high as the step leaves it)
            graph, row = self.query_one("#graph"), self.row[stepper.node]
            graph.move_cursor(row=row)
            self.call_after_refresh(graph.move_cursor, row=row)

    def where(self) -> str:
        """Return the number of the current step, its expression and its operation."""
        node = self.stepper.node
        if node is None:
            return f"before the first of {len(self.order)} nodes"
        name = made_by(self.stepper.fgraph, node)
        return f"step {self.stepper.number}, {cut_apart([name], 50)[0]}, {cut(node.op)}"

    def source(self) -> Text:
        """Return the source around the current step, with its expression underlined."""
        text = Text()
        narrow = self.size.width < WIDE
        for number, line, is_here in source_around(
            self.stepper.fgraph, self.stepper.node, 1 if narrow else CONTEXT
        ):
            shown = Text(
                f"{'>' if is_here else ' '} {number:4}  {line}\n", "" if is_here else "dim"
            )
            source = self.source_of(self.stepper.node) if is_here else None
            if source is not None and source.marked is not None:
                start = len(shown) - 1 - len(line.lstrip())
                shown.stylize("bold underline", *(start + column for column in source.marked))
            text.append_text(shown)
        text.rstrip()
        return text


class Keys(ModalScreen):
    """What the keys do."""

    CSS = """
    Keys { align: center middle; }
    Keys Static { width: 62; height: auto; padding: 1 2; background: $panel; }
    """
    BINDINGS: ClassVar = [("escape,question_mark,h,q,enter,ctrl+c", "dismiss")]

    def compose(self) -> ComposeResult:
        """Return the text."""
        yield Static(Text(HELP))
