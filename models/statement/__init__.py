"""Models as statements that users can change: labels, expressions, changes, and the solution of the result."""
