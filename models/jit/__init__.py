"""Just-in-time bandwidth: schedule the times and rates of transfers."""
