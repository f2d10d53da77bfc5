"""Bounds on admission and balance: dual multipliers and node patterns (feasible sets of pods on a node)."""
