"""What pod placement works on: nodes as they fill up, classes of equal pods and nodes, the programs."""
