"""Compile modes, and the database of rewrites that they choose from."""

from pytensor.compile.mode import FAST_COMPILE as FAST_COMPILE
from pytensor.compile.mode import OPT_FAST_COMPILE as OPT_FAST_COMPILE
from pytensor.compile.mode import OPT_FAST_RUN as OPT_FAST_RUN
from pytensor.compile.mode import OPT_FAST_RUN_STABLE as OPT_FAST_RUN_STABLE
from pytensor.compile.mode import OPT_MERGE as OPT_MERGE
from pytensor.compile.mode import OPT_NONE as OPT_NONE
from pytensor.compile.mode import OPT_O2 as OPT_O2
from pytensor.compile.mode import OPT_O3 as OPT_O3
from pytensor.compile.mode import OPT_STABILIZE as OPT_STABILIZE
from pytensor.compile.mode import OPT_UNSAFE as OPT_UNSAFE
from pytensor.compile.mode import AddDestroyHandler as AddDestroyHandler
from pytensor.compile.mode import AddFeatureOptimizer as AddFeatureOptimizer
from pytensor.compile.mode import Mode as Mode
from pytensor.compile.mode import PrintCurrentFunctionGraph as PrintCurrentFunctionGraph
from pytensor.compile.mode import get_default_mode as get_default_mode
from pytensor.compile.mode import get_mode as get_mode
from pytensor.compile.mode import local_useless as local_useless
from pytensor.compile.mode import optdb as optdb
from pytensor.compile.mode import predefined_linkers as predefined_linkers
from pytensor.compile.mode import predefined_modes as predefined_modes
from pytensor.compile.mode import predefined_optimizers as predefined_optimizers
from pytensor.compile.mode import register_linker as register_linker
from pytensor.compile.mode import register_mode as register_mode
from pytensor.compile.mode import register_optimizer as register_optimizer
from pytensor.configdefaults import config

from theanoguard._pytensor import fast_run_modes

from .. import _patches

# What the flag ``linker`` is now; in PyTensor the name follows it.
FAST_RUN = fast_run_modes().get(config.linker) or Mode("cvm" if config.cxx else "vm", "fast_run")
predefined_modes["FAST_RUN"] = FAST_RUN
_patches.at_undo(predefined_modes.pop, "FAST_RUN")
