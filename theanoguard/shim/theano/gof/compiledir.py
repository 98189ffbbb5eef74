"""Cleaning up the directory of compiled code."""

from pytensor.compile.compiledir import basecompiledir_ls as basecompiledir_ls
from pytensor.compile.compiledir import basecompiledir_purge as basecompiledir_purge
from pytensor.compile.compiledir import cleanup as cleanup
from pytensor.compile.compiledir import compiledir_purge as compiledir_purge
from pytensor.compile.compiledir import print_compiledir_content as print_compiledir_content
