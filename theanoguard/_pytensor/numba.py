"""How PyTensor compiles operations for Numba; imported only when a graph is compiled for it."""

from theanoguard._releases import required

with required("backend='numba'"):
    from pytensor.link.numba.cache import compile_numba_function_src
    from pytensor.link.numba.dispatch.basic import (
        numba_funcify,
        numba_funcify_and_cache_key,
        numba_funcify_default_op_cache_key,
        numba_njit,
        register_funcify_and_cache_key,
        register_funcify_default_op_cache_key,
    )
