"""Linkers that write and compile C."""

from pytensor.link.c.basic import CLinker as CLinker
from pytensor.link.c.basic import CodeBlock as CodeBlock
from pytensor.link.c.basic import DualLinker as DualLinker
from pytensor.link.c.basic import OpWiseCLinker as OpWiseCLinker
from pytensor.link.c.basic import get_module_cache as get_module_cache
from pytensor.link.c.interface import HideC as HideC
