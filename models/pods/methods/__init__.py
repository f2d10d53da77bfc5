"""Methods of pod placement; the first lines of each say what it is worth."""
