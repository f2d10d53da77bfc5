"""Faster ways to solve a scheduling round than the statement pair by pair."""
