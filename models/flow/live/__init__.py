"""The live flow scheduler: events in, the new optimum and what moved out."""
