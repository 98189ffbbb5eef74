"""Pickles of graphs and of models: without debris, from Python 2, and beside their arrays.

`dump` writes a zip file that `numpy.load` reads: each array is a member of its own, under the
name of its shared variable.  Files written by Theano are read.
"""

import io
import pickle
import zipfile
from collections import defaultdict
from pickle import DEFAULT_PROTOCOL

import numpy as np

from ..compile.sharedvalue import SharedVariable
from ..configdefaults import config
from ..gof.utils import scratchpad

Pickler = pickle.Pickler


class StripPickler(pickle._Pickler):
    """A pickler that leaves out the traces and the test values of variables.

    In 1.0.5 it left nothing out under Python 3.
    """

    def __init__(self, file, protocol=0, extra_tag_to_remove=None):
        super().__init__(file, protocol)
        self.tag_to_remove = ["trace", "test_value", *(extra_tag_to_remove or [])]

    def reducer_override(self, obj):
        if not isinstance(obj, scratchpad):
            return NotImplemented
        kept = {key: value for key, value in vars(obj).items() if key not in self.tag_to_remove}
        return type(obj), (), kept


class CompatUnpickler(pickle._Unpickler):
    """An unpickler of what Python 2 pickled, whose strings may be bytes here."""

    dispatch = dict(pickle._Unpickler.dispatch)

    def load_reduce(self):
        arguments = self.stack.pop()
        function = self.stack[-1]
        try:
            self.stack[-1] = function(*arguments)
        except Exception as error:
            # "bytes" means that its strings are none already.
            encoding = getattr(self, "encoding", "bytes")
            if encoding == "bytes":
                raise
            encoded = [a.encode(encoding) if isinstance(a, str) else a for a in arguments]
            try:
                self.stack[-1] = function(*encoded)
            except Exception:
                raise error from None

    dispatch[pickle.REDUCE[0]] = load_reduce


class PersistentNdarrayID:
    """Writes arrays into a zip file, once each.

    Called with an object, it returns the name by which the pickle refers to it, ``type.name``, or
    None for an object that belongs into the pickle.
    """

    def __init__(self, zip_file):
        self.zip_file = zip_file
        self.count = 0
        self.seen = {}
        # An id is worth something as long as its object lives.
        self.kept = []

    def _resolve_name(self, obj):
        name = f"array_{self.count}"
        self.count += 1
        return name

    def __call__(self, obj):
        if type(obj) is not np.ndarray:
            return None
        if id(obj) not in self.seen:
            name = self._resolve_name(obj)
            zipadd(lambda file: np.lib.format.write_array(file, obj), self.zip_file, name)
            self.seen[id(obj)] = f"ndarray.{name}"
            self.kept.append(obj)
        return self.seen[id(obj)]


# There are no arrays on a GPU.
PersistentGpuArrayID = PersistentNdarrayID


class PersistentSharedVariableID(PersistentGpuArrayID):
    """Gives the array of a shared variable the variable's name.

    Parameters
    ----------
    zip_file : zipfile.ZipFile
        Where the arrays go.
    allow_unnamed : bool
        Whether a shared variable may be without a name.
    allow_duplicates : bool
        Whether several may have the same; they become ``x``, ``x_2``, ``x_3`` and so on.

    Raises
    ------
    ValueError
        For a variable that may not be.
    """

    def __init__(self, zip_file, allow_unnamed=True, allow_duplicates=True):
        super().__init__(zip_file)
        self.name_counter = defaultdict(int)
        self.ndarray_names = {}
        self.allow_unnamed = allow_unnamed
        self.allow_duplicates = allow_duplicates

    def _resolve_name(self, obj):
        name = self.ndarray_names.get(id(obj))
        if name is None:
            return super()._resolve_name(obj)
        self.name_counter[name] += 1
        count = self.name_counter[name]
        if count > 1 and not self.allow_duplicates:
            raise ValueError(f"multiple shared variables with the name `{name}` found")
        return f"{name}_{count}" if count > 1 else name

    def __call__(self, obj):
        if isinstance(obj, SharedVariable):
            if obj.name == "pkl":
                raise ValueError("can't pickle shared variable with name `pkl`")
            if obj.name:
                self.ndarray_names[id(obj.container.storage[0])] = obj.name
            elif not self.allow_unnamed:
                raise ValueError(f"unnamed shared variable, {obj}")
        return super().__call__(obj)


class PersistentNdarrayLoad:
    """Reads the arrays that a pickle in a zip file refers to."""

    def __init__(self, zip_file):
        self.zip_file = zip_file
        self.cache = {}

    def __call__(self, persid):
        array_type, name = persid.split(".", 1)
        if name not in self.cache:
            with self.zip_file.open(name) as file:
                if array_type == "gpuarray":
                    if not config.experimental.unpickle_gpu_on_cpu:
                        raise ImportError(
                            f"{name} is an array on a GPU, and there is none here.\n"
                            "Set theano.config.experimental.unpickle_gpu_on_cpu = True to get it "
                            "as a NumPy array."
                        )
                    pickle.load(file)  # the name of its context
                self.cache[name] = np.lib.format.read_array(file)
        return self.cache[name]


def dump(obj, file_handler, protocol=DEFAULT_PROTOCOL, persistent_id=PersistentSharedVariableID):
    """Pickle an object into a zip file, beside its arrays.

    Parameters
    ----------
    obj : object
        What to pickle.
    file_handler : file
        Open for writing in binary.
    protocol : int
        Of the pickle.
    persistent_id : callable
        Made with the zip file and called with each object: see `PersistentNdarrayID`.
    """
    with zipfile.ZipFile(file_handler, "w", zipfile.ZIP_DEFLATED, allowZip64=True) as zip_file:

        def write(file):
            pickler = pickle.Pickler(file, protocol=protocol)
            pickler.persistent_id = persistent_id(zip_file)
            pickler.dump(obj)

        zipadd(write, zip_file, "pkl")


def load(f, persistent_load=PersistentNdarrayLoad):
    """Return an object that `dump` has written.

    Parameters
    ----------
    f : file or str
        What it was written to, open for reading in binary.
    persistent_load : callable
        Made with the zip file and called with each name: see `PersistentNdarrayLoad`.
    """
    with zipfile.ZipFile(f, "r") as zip_file:
        unpickler = pickle.Unpickler(io.BytesIO(zip_file.read("pkl")))
        unpickler.persistent_load = persistent_load(zip_file)
        return unpickler.load()


def zipadd(func, zip_file, name):
    """Add to a zip file, under a name, what a function writes to the file it is called with."""
    buffer = io.BytesIO()
    func(buffer)
    zip_file.writestr(name, buffer.getvalue())
