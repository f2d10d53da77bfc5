"""The shipped collectors and processors; ``commands/dispatch`` runs the function of the command's name.

A function takes the command's arguments as texts and returns the value that is printed as JSON. `Unfit` ends a
command with a message and an exit code that says what is missing.
"""
