"""Theano's ``theano.tests.breakpoint``."""

from pytensor.breakpoint import PdbBreakpoint as PdbBreakpoint
