"""Dictionaries that do not change."""

from collections import OrderedDict

from pytensor.misc.frozendict import frozendict as frozendict


class FrozenOrderedDict(frozendict):
    """A `frozendict` that keeps its order."""

    dict_cls = OrderedDict
