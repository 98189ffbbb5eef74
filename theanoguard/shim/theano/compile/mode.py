"""Compile modes, and the database of rewrites that they choose from."""

from pytensor.compile.mode import Mode, predefined_modes
from pytensor.configdefaults import config

from theanoguard._pytensor.for_theano import fast_run_modes

from .. import _patches

# What the flag ``linker`` is now; in PyTensor the name follows it.
FAST_RUN = fast_run_modes().get(config.linker) or Mode("cvm" if config.cxx else "vm", "fast_run")
predefined_modes["FAST_RUN"] = FAST_RUN
_patches.at_undo(predefined_modes.pop, "FAST_RUN")
