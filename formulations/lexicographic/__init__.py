"""Lexicographic optimisation: sorted load vectors over programs, costs in strict order over networks."""
