"""Searches for even placements from above, compiled."""
