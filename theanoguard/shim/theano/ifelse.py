"""The lazy conditional."""

from theanoguard._pytensor import IfElse as IfElse
from theanoguard._pytensor import ifelse as ifelse
