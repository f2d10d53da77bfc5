"""Network matrices: recognition, their largest part in a program, and extraction of the network."""
