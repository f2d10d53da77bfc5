"""Simulators of clusters and networks over time, with models and baselines as policies.

`event_queue` (events in a total order), `random_streams` (random numbers by purpose) and `event_log` (the events of a
run, from which every figure is computed) know no domain. `cluster` and `network` are the simulators; `experiments` hold
what the papers state, beside how to compute it here.
"""
