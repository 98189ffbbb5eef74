"""Theano's ``theano.tensor.type_other``."""

from pytensor.tensor.type_other import MakeSlice as MakeSlice
from pytensor.tensor.type_other import NoneConst as NoneConst
from pytensor.tensor.type_other import NoneTypeT as NoneTypeT
from pytensor.tensor.type_other import SliceConstant as SliceConstant
from pytensor.tensor.type_other import SliceType as SliceType
from pytensor.tensor.type_other import as_int_none_variable as as_int_none_variable
from pytensor.tensor.type_other import make_slice as make_slice
from pytensor.tensor.type_other import none_type_t as none_type_t
from pytensor.tensor.type_other import slicetype as slicetype
