"""Theano's ``theano.tests.disturb_mem``: memory addresses that differ between runs."""

import time


def disturb_mem():
    """Allocate objects in a number that depends on the time, and drop them."""
    objects = [[] for _ in range(time.time_ns() // 1000 % 1000)]
    del objects
