"""GPU assignment: assign tasks to GPUs in rounds."""
