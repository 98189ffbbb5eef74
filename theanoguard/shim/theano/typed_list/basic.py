"""Operations on lists of variables of one type."""

from pytensor.typed_list.basic import Append as Append
from pytensor.typed_list.basic import Count as Count
from pytensor.typed_list.basic import Extend as Extend
from pytensor.typed_list.basic import GetItem as GetItem
from pytensor.typed_list.basic import Index as Index
from pytensor.typed_list.basic import Insert as Insert
from pytensor.typed_list.basic import Length as Length
from pytensor.typed_list.basic import MakeList as MakeList
from pytensor.typed_list.basic import Remove as Remove
from pytensor.typed_list.basic import Reverse as Reverse
from pytensor.typed_list.basic import TypedListConstant as TypedListConstant
from pytensor.typed_list.basic import TypedListVariable as TypedListVariable
from pytensor.typed_list.basic import append as append
from pytensor.typed_list.basic import count as count
from pytensor.typed_list.basic import extend as extend
from pytensor.typed_list.basic import getitem as getitem
from pytensor.typed_list.basic import index_ as index_
from pytensor.typed_list.basic import insert as insert
from pytensor.typed_list.basic import length as length
from pytensor.typed_list.basic import make_list as make_list
from pytensor.typed_list.basic import remove as remove
from pytensor.typed_list.basic import reverse as reverse
