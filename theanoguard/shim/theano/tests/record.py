"""Theano's ``theano.tests.record``: whether a second run computes what the first has computed."""

from pathlib import Path

from .. import config
from ..compile import Mode
from ..gof import WrapLinkerMany
from ..gof.vm import VM_Linker
from ..printing import hex_digest


class MismatchError(Exception):
    """A run does something else than the recorded one."""


class Record:
    """Lines that are written to a file or, with `replay`, compared with those in it."""

    def __init__(self, file_object=None, file_path=None, replay=False):
        if file_object is None and file_path is None:
            raise AssertionError("Record needs a file_object or a file_path.")
        if file_object is None:
            file_object = Path(file_path).open("r" if replay else "w")  # noqa: SIM115
        self.f = file_object
        self.replay = replay

    def handle_line(self, line):
        """Write or compare one line, which ends with a line break."""
        assert line.endswith("\n")
        assert "\n" not in line[:-1]
        if not self.replay:
            self.f.write(line)
            return
        recorded = self.f.readline()
        if recorded != line:
            raise MismatchError(
                "Replay detected mismatch.\n"
                f" I wanted to write:\n{_shortened(line)}\n"
                f"when previous job wrote:\n{_shortened(recorded)}"
            )


def _shortened(line):
    return line if len(line) <= 100 else f"{line[:100]}..."


class RecordMode(Mode):
    """Record digests of all inputs and outputs of the nodes of a function, which needs a name.

    Parameters
    ----------
    record : Record, optional
        What is written or compared; else the arguments of a `Record`.
    """

    def __init__(self, record=None, **kwargs):
        assert record is None or not kwargs
        self.set_record(Record(**kwargs) if record is None else record)
        linker = WrapLinkerMany([VM_Linker(use_cloop=bool(config.cxx))], [self._run])
        super().__init__(linker, optimizer="fast_run")

    def set_record(self, record):
        """Use another record."""
        self.record = record
        self.known_fgraphs = set()

    def _run(self, i, node, thunk):
        fgraph = node.fgraph
        if fgraph.name is None:
            raise ValueError(
                "Un-named functions are not allowed with RecordMode, because they make it "
                "impossible to tell if the same function is running during the playback."
            )
        if fgraph not in self.known_fgraphs:
            assert not any(known.name == fgraph.name for known in self.known_fgraphs)
            self.known_fgraphs.add(fgraph)
            nodes = len(fgraph.apply_nodes)
            self.record.handle_line(f"Function {fgraph.name} has {nodes} apply nodes.\n")
        self.record.handle_line(f"Function name: {fgraph.name}\n")
        self.record.handle_line(f"Node {i}:{node}\n")
        self.record.handle_line(f"Inputs: {_digests(thunk.inputs)}\n")
        thunk()
        self.record.handle_line(f"Outputs: {_digests(thunk.outputs)}\n")


def _digests(cells):
    return " ".join(hex_digest(cell[0]) for cell in cells)
