"""Public traces and live nodes, read as instances and event logs."""
