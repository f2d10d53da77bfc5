"""The live flow scheduler: it takes events and returns the new optimum and the tasks that moved."""
