"""Pooling under the names that it had until Theano 0.9; 1.0.5 has them no more."""

from .pool import AveragePoolGrad as AveragePoolGrad
from .pool import MaxPoolGrad as DownsampleFactorMaxGrad  # noqa: F401
from .pool import Pool as DownsampleFactorMax  # noqa: F401
from .pool import max_pool_2d_same_size as max_pool_2d_same_size
from .pool import pool_2d as max_pool_2d  # noqa: F401
