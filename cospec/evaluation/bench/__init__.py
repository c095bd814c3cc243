"""Engines side by side on one pair, and how near this one comes to what the models allow (docs/benchmark.md)."""
