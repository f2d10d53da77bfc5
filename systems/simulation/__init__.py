"""Simulators of clusters and networks over time, with models and baselines as policies.

`event_queue` (events in a total order), `random_streams` (random numbers by purpose) and `event_log` (the events of a
run, from which all metrics are computed) are independent of the domain. `cluster` and `network` are the simulators;
`experiments` compares statements of the papers with results computed here.
"""
