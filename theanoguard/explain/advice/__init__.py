"""Advice: why the operation gives a bad value, and what to write instead."""
