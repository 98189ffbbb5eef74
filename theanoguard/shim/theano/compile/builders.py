"""Operations from graphs."""

from pytensor.compile import builders
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.gradient import DisconnectedType
from pytensor.graph.basic import Variable
from pytensor.graph.null_type import NullType
from pytensor.graph.traversal import graph_inputs


def _as_list(outputs):
    return list(outputs) if isinstance(outputs, list | tuple) else [outputs]


def _connected(gradients, like):
    """Return gradients with zeros for those that nothing depends on, as Theano passes them."""
    return [
        out.zeros_like() if isinstance(g.type, DisconnectedType) else g
        for g, out in zip(gradients, like, strict=True)
    ]


class _Override:
    """An override as PyTensor calls it, from one as Theano takes it.

    Parameters
    ----------
    override : OpFromGraph, callable or Variable
    kind : {"lop", "grad", "rop"}
    count : int
        How many results there are; None for the one element of a list of overrides.
    """

    def __init__(self, override, kind, count):
        self.override = override
        self.kind = kind
        self.count = count

    def __call__(self, inputs, outputs, gradients=None):
        inputs, outputs = list(inputs), list(outputs)
        if isinstance(self.override, Variable):
            return [self.override.type() for _ in range(self.count)]
        if self.kind == "rop":
            arguments = [inputs, _connected(outputs, inputs)]
        else:
            gradients = _connected(gradients, outputs)
            arguments = [inputs, gradients] if self.kind == "grad" else [inputs, outputs, gradients]
        if isinstance(self.override, builders.OpFromGraph):
            given = [variable for argument in arguments for variable in argument]
            results = _as_list(self.override(*given))
        else:
            results = self.override(*arguments)
        if self.count is None:
            return _as_list(results)[0]
        return results


def _overrides(overrides, kind, count):
    """Return what PyTensor takes for an argument such as `grad_overrides`."""
    if overrides is None or (isinstance(overrides, str) and overrides == "default"):
        return None
    if isinstance(overrides, list):
        if len(overrides) != count:
            raise ValueError(f"Need to override {count} results, got {len(overrides)}", overrides)
        return [
            override if isinstance(override, Variable) else _overrides_one(override, kind)
            for override in overrides
        ]
    _check(overrides)
    return _Override(overrides, kind, count)


def _overrides_one(override, kind):
    if override is None or (isinstance(override, str) and override == "default"):
        return None
    _check(override)
    return _Override(override, kind, None)


def _check(override):
    if isinstance(override, Variable):
        if not isinstance(override.type, DisconnectedType | NullType):
            raise ValueError(
                "Overriding Variable instance can only have type of DisconnectedType or NullType, "
                f"got {override.type}"
            )
    elif not callable(override):
        raise TypeError(
            "An override should be (single or list of) 'default' | OpFromGraph | callable | "
            f"Variable with NullType or DisconnectedType, got {override}"
        )


class OpFromGraph(builders.OpFromGraph):
    """An operation from a graph; see Theano's ``OpFromGraph``.

    Unlike PyTensor's, it finds the shared variables of the graph, has default gradients where an
    override is "default", and takes overrides of the gradient without the outputs.  Arguments
    about how to compile the inner graph are accepted: it is compiled as the outer one.
    """

    def __init__(
        self,
        inputs,
        outputs,
        inline=False,
        lop_overrides="default",
        grad_overrides="default",
        rop_overrides="default",
        connection_pattern=None,
        name=None,
        **kwargs,
    ):
        if not isinstance(outputs, list):
            raise TypeError(f"outputs must be list, got {type(outputs)}")
        for variable in [*inputs, *outputs]:
            if not isinstance(variable, Variable):
                raise TypeError("inputs and outputs must be Variable instances", variable)
        if "updates" in kwargs or "givens" in kwargs:
            raise TypeError("updates and givens are not allowed here")
        if lop_overrides != "default" and grad_overrides != "default":
            raise ValueError("lop_overrides and grad_overrides are mutually exclusive")
        found = [v for v in graph_inputs(outputs, inputs) if isinstance(v, SharedVariable)]
        self.captured = [v for v in found if v not in inputs]
        self.has_own_pattern = connection_pattern is not None
        count = len(inputs) + len(self.captured)
        grad_kind = "lop" if grad_overrides == "default" else "grad"
        grads = lop_overrides if grad_kind == "lop" else grad_overrides
        super().__init__(
            [*inputs, *self.captured],
            outputs,
            inline=inline,
            pullback=_overrides(grads, grad_kind, count),
            pushforward=_overrides(rop_overrides, "rop", len(outputs)),
            connection_pattern=connection_pattern,
            name=name,
            on_unused_input="ignore",
        )

    @property
    def local_inputs(self):
        return self.inner_inputs

    @property
    def local_outputs(self):
        return self.inner_outputs

    def __call__(self, *inputs, **kwargs):
        """Apply it to its inputs; the shared variables of the graph come by themselves."""
        if len(inputs) == len(self.input_types) - len(self.captured):
            inputs = [*inputs, *self.captured]
        return super().__call__(*inputs, **kwargs)

    def connection_pattern(self, node):
        """Return which outputs depend on which inputs, as far as gradients go."""
        pattern = super().connection_pattern(node)
        if self.has_own_pattern:
            return pattern
        grads = self.pullback_overrides
        if isinstance(grads, _Override):
            grads = [grads.override] * len(pattern)
        for i, grad in enumerate(grads if isinstance(grads, list) else ()):
            if isinstance(grad, Variable) and isinstance(grad.type, DisconnectedType):
                pattern[i] = [False] * len(self.output_types)
        return pattern
