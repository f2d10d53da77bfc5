"""Bounds on the balance from below: patterns of what a node can hold."""
