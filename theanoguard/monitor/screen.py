"""The Stepper as a full screen of the terminal: graph, source and values (extra ``tui``)."""

import asyncio
import sys
from collections.abc import Callable
from typing import Any, ClassVar

from pytensor.graph.basic import Apply
from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.containers import Horizontal, Vertical
from textual.widgets import DataTable, Footer, Header, Static

from theanoguard._provenance.places import cut
from theanoguard.monitor.operands import called, operands, short, source_around
from theanoguard.monitor.stepper import Stepper

BAD = "bold #ff8a80"  # (readable on both backgrounds of a table)


def complete() -> bool:
    """Never stop before the end, and make the updates there."""
    return False


class StepScreen(App):
    """A table of the nodes of a call, beside the source and the values of the current step.

    Parameters
    ----------
    stepper : Stepper

    Attributes
    ----------
    error : Exception or None
        The error of a node.
    """

    CSS = """
    #graph { width: 2fr; }
    #step { width: 3fr; padding: 0 1; }
    #step Static { height: auto; margin-bottom: 1; }
    #where, #source { text-wrap: nowrap; text-overflow: ellipsis; }
    #values { height: auto; max-height: 60%; }
    """
    BINDINGS: ClassVar = [
        ("n", "next", "Next"),
        ("b", "back", "Back"),
        ("u", "bad", "Next bad"),
        ("c", "complete", "To the end"),
        ("q", "leave", "Quit"),
    ]
    ENABLE_COMMAND_PALETTE = False

    def __init__(self, stepper: Stepper) -> None:
        super().__init__()
        self.stepper = stepper
        self.error: Exception | None = None
        self.number: dict[Apply, int] = {}
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
        with Horizontal():
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
        graph.add_columns("Step", "Operation", "Name")
        for node in self.order:
            name = called(self.stepper.fgraph, node.outputs[0])
            graph.add_row("", *(Text(cut(text, 24)) for text in (node.op, name or "")))
        values.add_columns("", "Name", "Type", "NaN and Inf", "Range", "Values")
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
        kept = self.stepper.goto(number) is not None
        self.show("" if kept else "The values of that step are no longer kept.")

    @work(exclusive=True)
    async def move(
        self,
        arrived: Callable[[], bool],
        otherwise: str = "No node is left. c completes the call.",
    ) -> None:
        """Run nodes until one matches.  Another key stops it between two nodes."""
        stepper = self.stepper
        try:
            while stepper.goto(stepper.number + 1) is not None:
                self.mark()
                if arrived():
                    self.show()
                    return
                await asyncio.sleep(0)
            if arrived is complete:
                stepper.run()
        except Exception as error:  # the node's own: it is shown, and raised on leaving
            self.error = error
        self.show(otherwise)

    def mark(self) -> None:
        """Write the number of the current step beside its node."""
        node, number = self.stepper.node, self.stepper.number
        self.number[node] = number
        bad = number in self.stepper.bad_steps
        text = Text(f"{number} !", BAD) if bad else Text(str(number))
        self.query_one("#graph").update_cell_at((self.row[node], 0), text, update_width=True)

    def show(self, note: str = "") -> None:
        """Show the current step."""
        stepper = self.stepper
        where, source, told = (self.query_one(f"#{name}") for name in ("where", "source", "note"))
        values = self.query_one("#values").clear()
        if stepper.node is not None:
            self.query_one("#graph").move_cursor(row=self.row[stepper.node])
        where.update(Text(stepper.where()))
        text = Text()
        for number, line, is_here in source_around(stepper):
            style, arrow = ("bold", ">") if is_here else ("dim", " ")
            text.append(f"{arrow} {number:4}  {line}\n", style)
        source.update(text)
        for operand in operands(stepper):
            name, value = cut(operand.name, 24), cut(short(operand.value), 40)
            cells = (operand.verb, name, operand.type, operand.bad, operand.range, value)
            values.add_row(*(Text(cell, BAD if operand.is_bad else "") for cell in cells))
        if self.error is not None:
            note = f"{type(self.error).__name__}: {self.error}\nThe node has failed. q leaves."
        elif stepper.done:
            note = f"The call is complete: {short(stepper.result)}\nq returns this result."
        told.update(Text(note, BAD if self.error else ""))
