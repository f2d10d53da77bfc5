"""What the shipped commands measure and compute; each file of ``commands/`` calls one function here.

A function takes the command's arguments as texts and returns the value that is printed as JSON. `Unfit` ends a
command with a message and an exit code that says which sort of thing is missing.
"""
