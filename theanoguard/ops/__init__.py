"""Operations for your own graphs: ``Print``, ``Assert`` and others; facts about your own ones."""

from theanoguard.operations import register_operation
from theanoguard.ops.asserts import (
    Assert,
    PdbBreakpoint,
    assert_finite,
    assert_in_range,
    assert_op,
    assert_shape,
)
from theanoguard.ops.print import Print

__all__ = [
    "Assert",
    "PdbBreakpoint",
    "Print",
    "assert_finite",
    "assert_in_range",
    "assert_op",
    "assert_shape",
    "register_operation",
]
