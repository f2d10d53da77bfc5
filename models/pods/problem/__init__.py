"""Data structures of pod placement: cluster state, classes of equal pods and nodes, and integer programs."""
