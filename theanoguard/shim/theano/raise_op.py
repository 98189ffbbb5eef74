"""An operation that raises."""

from pytensor.graph.basic import Apply

from .gof.op import Op


class Raise(Op):
    """Raises an exception when it is computed."""

    __props__ = ("msg", "exc")

    def __init__(self, msg="", exc=NotImplementedError):
        self.msg = msg
        self.exc = exc

    def __str__(self):
        return f"Raise{{{self.exc}({self.msg})}}"

    def make_node(self, x):
        return Apply(self, [x], [x.type()])

    def perform(self, node, inputs, out_storage):
        raise self.exc(self.msg)
