"""Sets that keep their order."""

from pytensor.misc.ordered_set import OrderedSet as OrderedSet
