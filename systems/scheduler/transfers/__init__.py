"""Just-in-time bandwidth over time: a live scheduler of transfers, and replays of its event logs."""
