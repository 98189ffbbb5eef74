"""The part of the made-up backend that would belong to PyTensor: a linker, and its dispatcher."""

from functools import singledispatch

from pytensor.graph.basic import Constant
from pytensor.link.basic import JITLinker


@singledispatch
def converted(op, node):
    """Return a function that computes a node."""

    def perform(*inputs):
        cells = [[None] for _ in node.outputs]
        node.op.perform(node, list(inputs), cells)
        results = [cell[0] for cell in cells]
        return results[0] if len(results) == 1 else results

    return perform


class MadeUpLinker(JITLinker):
    incompatible_rewrites = ("cxx_only", "BlasOpt", "fusion", "inplace")

    def fgraph_convert(self, fgraph, input_storage, storage_map, **kwargs):
        steps = [(node, converted(node.op, node)) for node in fgraph.toposort()]

        def run(*values):
            known = dict(zip(fgraph.inputs, values, strict=True))

            def value(v):
                return v.data if isinstance(v, Constant) else known[v]

            for node, step in steps:
                results = step(*map(value, node.inputs))
                results = [results] if len(node.outputs) == 1 else results
                known.update(zip(node.outputs, results, strict=True))
            return [value(v) for v in fgraph.outputs]

        return run

    def jit_compile(self, fn):
        return fn

    def create_thunk_inputs(self, storage_map):
        return [storage_map[v] for v in self.fgraph.inputs]
