"""Directives that write parts of the documentation from the code, so that they cannot go stale."""

import ast
import csv
import inspect
import io
import re
import sys
import tomllib
from pathlib import Path

from docutils import nodes
from numpydoc.docscrape import FunctionDoc
from sphinx.util.docutils import SphinxDirective

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "legacy_projects"))

import compare
import figures
import suites

import theanoguard
from theanoguard._faults import GROUPS, IMPORTS, faults
from theanoguard.guard.plan import REASONS
from theanoguard.stable import identities

DOCS = Path(__file__).parent
PACKAGE = Path(theanoguard.__file__).parent
DESCRIBED = re.compile(r"^\.\. auto\w+:: theanoguard\.(\w+)$", re.MULTILINE)


def described_elsewhere():
    """Return the public names that a page of their own subject describes."""
    pages = (path.read_text(encoding="utf-8") for path in DOCS.glob("*.rst"))
    return {name for page in pages for name in DESCRIBED.findall(page)}


def is_ours(value):
    """Return whether it is this package's, not one of PyTensor's that is handed on."""
    origin = getattr(value, "__module__", None) or getattr(value, "__name__", "")
    return origin.split(".")[0] == "theanoguard"


def summary(name):
    """Return the first paragraph of a public name's docstring."""
    value = getattr(theanoguard, name)
    is_object = not (inspect.isclass(value) or inspect.isroutine(value) or inspect.ismodule(value))
    if is_object:
        return f"A ``{type(value).__name__}``, ready to use."
    text = inspect.getdoc(value)
    # (PyTensor's docstrings have no first paragraph of their own)
    return (text.split("\n\n")[0] if is_ours(value) else text.split("\n")[0]).replace("\n", " ")


def entry(name):
    """Return the lines that describe a public name in full."""
    value = getattr(theanoguard, name)
    if not is_ours(value):
        return []
    if inspect.isclass(value):
        return [f".. autoclass:: theanoguard.{name}", "   :members:", ""]
    if inspect.ismodule(value):
        return [f".. automodule:: theanoguard.{name}", ""]
    kind = "autofunction" if inspect.isroutine(value) else "autodata"
    return [f".. {kind}:: theanoguard.{name}", ""]


def list_table(*rows):
    """Return the lines of a table of two columns, the first row of which is its head."""
    lines = [".. list-table::", "   :header-rows: 1", ""]
    for left, right in rows:
        lines += [f"   * - {left}", f"     - {right}"]
    return [*lines, ""]


def layers():
    """Return the table of layers that the test of the architecture holds, from the top down."""
    test = DOCS.parent / "tests" / "test_architecture.py"
    for statement in ast.parse(test.read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.Assign) and statement.targets[0].id == "LAYERS":
            return ast.literal_eval(statement.value)
    raise LookupError(f"no table LAYERS in {test}")


def first_line(room):
    """Return the first line of a room's docstring; None where there is no such room."""
    path = room.replace(".", "/")
    places = [f"{path}/__init__.py", f"{path}.py"]
    if room == "theanoguard":
        places = ["__init__.py"]
    for place in places:
        if (PACKAGE / place).exists():
            tree = ast.parse((PACKAGE / place).read_text(encoding="utf-8"))
            return ast.get_docstring(tree).splitlines()[0]
    return None


class FromCode(SphinxDirective):
    """Writes what its method `lines` returns."""

    def run(self):
        self.env.note_reread()  # (the code may have changed where the page has not)
        return self.parse_text_to_nodes("\n".join(self.lines()), allow_section_headings=False)


class PublicNames(FromCode):
    """A table of all of ``theanoguard.__all__``."""

    def lines(self):
        return list_table(
            ("name", "what it is"),
            *((f":py:obj:`~theanoguard.{name}`", summary(name)) for name in theanoguard.__all__),
        )


class PublicEntries(FromCode):
    """The public names that no other page describes, in full."""

    def lines(self):
        left = sorted({*theanoguard.__all__} - described_elsewhere())
        return [line for name in left for line in entry(name)]


class Faults(FromCode):
    """The tables of all faults, with a link to the page of each."""

    def lines(self):
        lines = []
        for prefix, group in GROUPS.items():
            rows = (
                (f":doc:`errors/{fault.code}`", f"``{fault.key}``")
                for fault in faults().values()
                if fault.code.startswith(prefix)
            )
            lines += [f".. rubric:: {group}", "", *list_table(("code", "name"), *rows)]
        return lines


def fault_page(fault):
    """Return the page of a fault."""
    title = f"{fault.code} {fault.title}"
    lines = [title, "=" * len(title), "", as_text(fault.cause), "", "A program that raises it:", ""]
    lines += python_block(fault.before)
    lines += [f".. literalinclude:: ../../tests/golden/fault_{fault.code}.txt"]
    lines += ["   :language: none", "", as_text(fault.remedy), "", "The repaired program:", ""]
    return "\n".join([*lines, *python_block(fault.after)])


def python_block(code):
    """Return a program with its imports as the lines of a block."""
    program = f"{IMPORTS}\n{code.strip()}".split("\n")
    return [".. code-block:: python", "", *(f"   {line}".rstrip() for line in program), ""]


def as_text(sentence):
    """Return plain text with the characters escaped that reStructuredText would read."""
    return re.sub(r"([*`_|\\])", r"\\\1", sentence)


def write_fault_pages(app):
    """Write the pages of the faults, which git ignores."""
    folder = DOCS / "errors"
    folder.mkdir(exist_ok=True)
    for fault in faults().values():
        path = folder / f"{fault.code}.rst"
        text = fault_page(fault)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


class PlanRules(FromCode):
    """The reasons why the guard does not read an output."""

    def lines(self):
        return list_table(("reason", "what it means"), *REASONS.items())


SETTINGS = {
    "Errors": "nan_is_error inf_is_error big_is_error big_threshold check_integers judge",
    "Values and calls that are checked": "check_inputs check_indices exempt every precision audit",
    "Reaction": "action restore when tell_fate log max_events history",
    "Compiling": "backend linker optimizer db",
}
"""The arguments of ``GuardMode``, by group."""


class Settings(FromCode):
    """Tables of the settings of ``GuardMode``, from its signature and its docstring."""

    def lines(self):
        mode = theanoguard.GuardMode
        documented = FunctionDoc(mode)["Parameters"]
        effects = {n: " ".join(p.desc) for p in documented for n in p.name.split(", ")}
        parameters = inspect.signature(mode).parameters
        if sorted(effects) != sorted(parameters):
            raise self.error("the docstring and the arguments of GuardMode differ")
        grouped = {name for names in SETTINGS.values() for name in names.split()}
        others = " ".join(name for name in parameters if name not in grouped)
        lines = []
        for group, names in (SETTINGS | ({"Others": others} if others else {})).items():
            rows = [("argument", "default", "effect", "backends")]
            for name in names.split():
                first, *others = re.split(r"(?<=\.)\s+", effects[name])
                only = re.match(r"Only for ([\w ,]+?)(\.|, which|, whose)", first)
                backends, effect = (only[1], others[:2]) if only else ("all", [first, *others[:1]])
                default = parameters[name].default
                default = f"``{default:g}``" if isinstance(default, float) else f"``{default!r}``"
                rows.append((f"``{name}``", default, " ".join(effect), backends))
            lines += [f".. rubric:: {group}", "", *csv_table(rows)]
        return lines


class Rooms(FromCode):
    """The rooms of the package, layer by layer, with what their docstrings begin with."""

    def lines(self):
        rooms = [
            (f"{number}. ``{room}``", line)
            for number, layer in enumerate(layers(), start=1)
            for room in sorted(layer)
            if (line := first_line(room)) is not None
        ]
        return list_table(("layer and room", "what it is"), *rooms)


def csv_table(rows):
    """Return the lines of a table, the first row of which is its head."""
    lines = [".. csv-table::", "   :header-rows: 1", ""]
    return [*lines, *("   " + ",".join(f'"{quoted(cell)}"' for cell in row) for row in rows), ""]


def quoted(cell):
    return str(cell).replace('"', '""')


RENDERED = {
    "programs": compare.table,
    "compiled": compare.compiled_table,
    "suites": suites.table,
}
"""The tables of legacy programs."""


def rows_of(table):
    """Return the rows of a table of ``docs/measurements``."""
    if "csv" in table:
        return list(csv.reader(io.StringIO(table["csv"].strip())))
    if "json" in table:
        return RENDERED[table["json"]]()
    name = table["figures"]
    return [figures.HEADS[name], *figures.read()[name]["rows"]]


class Measurements(FromCode):
    """The tables of a file of ``docs/measurements``; an error if the kernel has changed since."""

    required_arguments = 1

    def lines(self):
        path = DOCS / "measurements" / f"{self.arguments[0]}.toml"
        tables = tomllib.loads(path.read_text(encoding="utf-8"))["table"]
        return [line for table in tables for line in self.table(table)]

    def table(self, table):
        found, reasons = table, []
        if name := table.get("figures"):
            found = figures.read()[name]
            if problem := figures.outdated(found):
                raise self.error(problem)
            command = f"OMP_NUM_THREADS=1 {figures.COMMANDS[name]}"
            machine = f"{found['processor']}, {found['instructions']}"
            versions = f"PyTensor {found['pytensor']}"
            found = {"machine": machine, "versions": versions, "command": command, **found}
            reasons = [f"Later changes of the kernel: {why}" for why in found["accepted"].values()]
        where = "; ".join(found[key] for key in ("machine", "versions") if key in found)
        lines = [f".. rubric:: {table['title']}", "", table["text"].strip(), ""]
        lines += [*csv_table(rows_of(table)), f"Recorded on {found['date']}.  {where}.", *reasons]
        if "command" in found:
            lines += ["", ".. code-block:: shell", "", f"   {found['command']}"]
        return [*lines, ""]


class Identities(SphinxDirective):
    """The table of all identities, with a field that filters its rows."""

    def run(self):
        self.env.note_reread()
        rows = [".. list-table::", "   :header-rows: 1", "   :class: identities", ""]
        for cells in [("formula", "is", "if", "source"), *map(self.cells, IDENTITIES)]:
            rows += [f"   {'*' if i == 0 else ' '} - {cell}" for i, cell in enumerate(cells)]
        table = self.parse_text_to_nodes("\n".join(rows), allow_section_headings=False)
        return [nodes.raw("", FILTER, format="html"), *table]

    @staticmethod
    def cells(identity):
        """Return the cells of a row."""
        formulas = (f"``{text}``" if text else "" for text in identity[:3])
        return (*formulas, as_text(identity[3]))


IDENTITIES = [(one.left, one.right, one.where, one.source) for one in identities.IDENTITIES]
FILTER = """
<p><label>Show identities with
<input type="search" oninput="for (const row of document.querySelectorAll('.identities tbody tr'))
row.hidden = !row.textContent.includes(this.value)"></label></p>
"""


def level_captions(app, pagename, templatename, context, doctree):
    """Give the captions of the navigation a level, which a heading must have for screen readers."""
    tree = context.get("furo_navigation_tree", "")
    context["furo_navigation_tree"] = tree.replace(
        'role="heading"', 'role="heading" aria-level="2"'
    )


def setup(app):
    app.add_directive("public-names", PublicNames)
    app.add_directive("public-entries", PublicEntries)
    app.add_directive("plan-rules", PlanRules)
    app.add_directive("rooms", Rooms)
    app.add_directive("settings", Settings)
    app.add_directive("faults", Faults)
    app.add_directive("identities", Identities)
    app.add_directive("measurements", Measurements)
    app.connect("builder-inited", write_fault_pages)
    app.connect("html-page-context", level_captions, priority=900)  # after the theme
    return {"parallel_read_safe": True}
