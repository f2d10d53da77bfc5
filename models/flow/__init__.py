"""Flow scheduling: assign tasks to machines under composable goals; `live` re-optimizes after events."""
