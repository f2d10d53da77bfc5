"""Pod placement: which pod runs on which node and card, and how even is the load."""
