"""Theano's ``theano.tensor.io``: arrays from files and, with mpi4py, from other processes."""

from importlib.util import find_spec

import numpy as np
from pytensor.graph.basic import Apply, Constant
from pytensor.graph.op import Op

from theanoguard._pytensor.for_theano import input_shapes

from ..gof.sched import key_to_cmp
from ..gof.type import generic
from .basic import tensor


class LoadFromDisk(Op):
    """Read an array from a file in NumPy's format ``.npy`` when the function runs."""

    __props__ = ("dtype", "broadcastable", "mmap_mode")

    def __init__(self, dtype, broadcastable, mmap_mode=None):
        if mmap_mode not in (None, "c"):
            raise ValueError(
                f"The only supported values for mmap_mode are None and 'c', got {mmap_mode}"
            )
        self.dtype = np.dtype(dtype)
        self.broadcastable = tuple(broadcastable)
        self.mmap_mode = mmap_mode

    def make_node(self, path):
        """Take the name of the file, or a variable of it."""
        if isinstance(path, str):
            path = Constant(generic, path)
        return Apply(self, [path], [tensor(self.dtype, broadcastable=self.broadcastable)])

    def perform(self, node, inputs, outputs):
        """Read the file."""
        (path,) = inputs
        if path.endswith(".npz"):
            raise ValueError(f"Expected a .npy file, got {path} instead")
        result = np.load(path, mmap_mode=self.mmap_mode, allow_pickle=False)
        if result.dtype != self.dtype:
            raise TypeError(f"Expected an array of type {self.dtype}, got {result.dtype} instead")
        outputs[0][0] = result


def load(path, dtype, broadcastable, mmap_mode=None):
    """Return a variable that is read from a ``.npy`` file whenever the function runs."""
    return LoadFromDisk(dtype, broadcastable, mmap_mode)(path)


mpi_enabled = find_spec("mpi4py") is not None


def communicator():
    """Return MPI's communicator of all processes."""
    from mpi4py import MPI

    return MPI.COMM_WORLD


class MPIRecv(Op):
    """Begin to receive an array by MPI; the outputs are the request and the array."""

    __props__ = ("source", "tag", "shape", "dtype")

    def __init__(self, source, tag, shape, dtype):
        self.source = source
        self.tag = tag
        self.shape = shape
        self.dtype = np.dtype(dtype)
        self.broadcastable = (False,) * len(shape)

    def make_node(self):
        """Take no inputs."""
        return Apply(self, [], [generic(), tensor(self.dtype, broadcastable=self.broadcastable)])

    def perform(self, node, inputs, outputs):
        """Ask for the array."""
        data = np.zeros(self.shape, self.dtype)
        outputs[0][0], outputs[1][0] = communicator().Irecv(data, self.source, self.tag), data

    def infer_shape(self, *args):
        """Return the shape that is given."""
        return [None, self.shape]

    def do_constant_folding(self, *args):
        """Refuse: each call receives another array."""
        return False


class MPIRecvWait(Op):
    """Wait for a request of `MPIRecv`; the output is the array."""

    __props__ = ("tag",)
    view_map = {0: [1]}

    def __init__(self, tag):
        self.tag = tag

    def make_node(self, request, data):
        """Take the outputs of `MPIRecv`."""
        return Apply(self, [request, data], [data.type()])

    def perform(self, node, inputs, outputs):
        """Wait."""
        request, outputs[0][0] = inputs
        request.wait()

    def infer_shape(self, *args):
        """Return the shape of the array."""
        return [input_shapes(args)[1]]


class MPISend(Op):
    """Begin to send an array by MPI; the outputs are the request and the array."""

    __props__ = ("dest", "tag")
    view_map = {1: [0]}

    def __init__(self, dest, tag):
        self.dest = dest
        self.tag = tag

    def make_node(self, data):
        """Take the array."""
        return Apply(self, [data], [generic(), data.type()])

    def perform(self, node, inputs, outputs):
        """Send the array."""
        (data,) = inputs
        outputs[0][0], outputs[1][0] = communicator().Isend(data, self.dest, self.tag), data


class MPISendWait(Op):
    """Wait for a request of `MPISend`."""

    __props__ = ("tag",)

    def __init__(self, tag):
        self.tag = tag

    def make_node(self, request, data):
        """Take the outputs of `MPISend`."""
        return Apply(self, [request, data], [generic()])

    def perform(self, node, inputs, outputs):
        """Wait."""
        inputs[0].wait()
        outputs[0][0] = True


def isend(var, dest, tag):
    """Begin to send a variable's value."""
    return MPISend(dest, tag)(var)


def send(var, dest, tag):
    """Send a variable's value, and wait until it is sent."""
    return MPISendWait(tag)(*isend(var, dest, tag))


def irecv(shape, dtype, source, tag):
    """Begin to receive an array."""
    return MPIRecv(source, tag, shape, dtype)()


def recv(shape, dtype, source, tag):
    """Receive an array, and wait for it."""
    return MPIRecvWait(tag)(*irecv(shape, dtype, source, tag))


def mpi_send_wait_key(a):
    """Return a key by which requests come first and waiting for them last."""
    return isinstance(a.op, MPIRecvWait | MPISendWait) - isinstance(a.op, MPIRecv | MPISend)


def mpi_tag_key(a):
    """Return the tag of a node that sends or receives, else 0."""
    return a.op.tag if isinstance(a.op, MPISend | MPIRecv | MPIRecvWait | MPISendWait) else 0


mpi_keys = (mpi_send_wait_key, mpi_tag_key)
mpi_cmps = mpi_send_wait_cmp, mpi_tag_cmp = tuple(map(key_to_cmp, mpi_keys))
