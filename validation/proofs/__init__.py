"""The one proof: a problem in exact integers, multipliers of its named rows, and the checker that adds them up.

Nothing here comes from a model. A problem is given as arrays; a proof as leaves of a tree, each with multipliers.
"""
