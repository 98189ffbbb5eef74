"""Rewrites of operations on lists."""

from pytensor.typed_list.rewriting import typed_list_inplace_rewrite

typed_list_inplace_opt = typed_list_inplace_rewrite
