"""The virtual machines that run a graph's nodes."""

from pytensor.link.vm import VM as VM
from pytensor.link.vm import Loop as Loop
from pytensor.link.vm import Stack as Stack
from pytensor.link.vm import VMLinker
from pytensor.link.vm import calculate_reallocate_info as calculate_reallocate_info

VM_Linker = VMLinker
