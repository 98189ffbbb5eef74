"""Loops: ``scan``, and ``map``, ``reduce``, ``foldl`` and ``foldr`` on top of it."""
