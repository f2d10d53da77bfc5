"""The shipped collectors and processors; ``commands/dispatch`` runs the function of the command's name.

A function takes the command's arguments as strings and returns the value to print as JSON. `Unfit` ends a command with
a message and an exit code for what is missing.
"""
