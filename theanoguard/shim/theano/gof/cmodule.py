"""Compiling and importing C modules."""

from pytensor.configdefaults import config
from pytensor.link.c.cmodule import Compiler as Compiler
from pytensor.link.c.cmodule import DynamicModule as DynamicModule
from pytensor.link.c.cmodule import ExtFunction as ExtFunction
from pytensor.link.c.cmodule import GCC_compiler as GCC_compiler
from pytensor.link.c.cmodule import ModuleCache as ModuleCache
from pytensor.link.c.cmodule import dlimport as dlimport
from pytensor.link.c.cmodule import get_gcc_shared_library_arg as get_gcc_shared_library_arg
from pytensor.link.c.cmodule import get_lib_extension as get_lib_extension
from pytensor.link.c.cmodule import get_module_cache as get_module_cache
from pytensor.link.c.cmodule import get_module_hash as get_module_hash
from pytensor.link.c.cmodule import std_include_dirs as std_include_dirs
from pytensor.link.c.cmodule import std_lib_dirs as std_lib_dirs
from pytensor.link.c.cmodule import std_lib_dirs_and_libs as std_lib_dirs_and_libs
from pytensor.link.c.cmodule import std_libs as std_libs
from pytensor.link.c.exceptions import MissingGXX as MissingGXX


def gcc_version():
    """Return the version of the C++ compiler as text."""
    return config.gcc_version_str
