"""Compiled heuristics: placement policies, ruin and recreate, and annealing."""
