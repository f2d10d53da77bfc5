"""Generators of workloads of clusters over time."""
