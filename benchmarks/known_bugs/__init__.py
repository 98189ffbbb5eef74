"""Numerical bugs of published benchmarks with their repairs, and how theanoguard does on them."""
