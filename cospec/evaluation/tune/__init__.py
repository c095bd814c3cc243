"""Choosing K, and a rule under a stated loss of accuracy, from few problems."""
