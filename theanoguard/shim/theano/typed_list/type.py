"""The type of lists."""

from pytensor.typed_list.type import TypedListType as TypedListType
