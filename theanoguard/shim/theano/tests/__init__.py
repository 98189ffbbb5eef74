"""Helpers for tests that Theano has beside its own tests."""
