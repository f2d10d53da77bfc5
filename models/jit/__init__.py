"""Just-in-time bandwidth: when each transfer is sent, and how fast."""
