"""Is a matrix totally unimodular? A checker whose every answer can be verified.

Start at `flowlex.validation.unimodularity.check.check`; one step of the checker is one module here.
"""
