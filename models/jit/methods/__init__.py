"""Faster ways to plan transfers than the statement slot by slot."""
