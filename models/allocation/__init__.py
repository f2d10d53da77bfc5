"""Fair allocation of GPU time: which job gets which share of which GPU type."""
