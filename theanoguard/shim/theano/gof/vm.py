"""The virtual machines that run a graph's nodes."""

from pytensor.link.vm import VMLinker

VM_Linker = VMLinker
