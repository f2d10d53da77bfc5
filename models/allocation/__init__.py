"""Fair allocation of GPU time: the share of each GPU type that each job gets."""
