"""Pod placement: assign pods to nodes and cards by priority, with balanced loads."""
