"""What is known of PyTensor's operations, one module for each family.

A module states side by side, for each operation, which bad values it makes, shows and signals,
which elements of its operands decide an element, and how large its results can be.  Everything else
asks :mod:`theanoguard.operations.queries`.
"""

from theanoguard.operations import elementwise, moving, products, reductions
from theanoguard.operations.elementwise import (
    carried_through,
    from_constants,
    scalar_carries,
    scalar_keeps_size,
    scalar_makes,
    scalar_makes_nan,
    scalar_unsignalled,
)
from theanoguard.operations.facts import (
    Kind,
    constant_kinds,
    facts_of,
    holds_nonfinite,
    is_float,
    is_literal,
    scalar_facts,
)
from theanoguard.operations.moving import taking
from theanoguard.operations.queries import (
    carries,
    is_steady,
    keeps_flags,
    keeps_size,
    makes,
    makes_nan_of_inf,
    may_lose,
    may_make,
    moved,
    only_chooses,
    reached,
    regions,
    unsignalled,
)
from theanoguard.operations.regions import Region, extreme_element, first_element, locate
from theanoguard.operations.registering import register_operation
