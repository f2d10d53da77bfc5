"""GPU assignment: which task runs on which GPU."""
