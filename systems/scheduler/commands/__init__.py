"""The commands of this system."""
