"""Faster ways to solve the programs of allocation than as they stand."""
