"""Lists of variables of one type."""

from . import opt as opt
from .basic import *  # noqa: F403
from .type import TypedListType as TypedListType
