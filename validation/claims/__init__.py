"""Published claims (and some of ours), each re-checked by a function that tries to refute it.

One module per group of claims; `flowlex.validation.claims.registry.CLAIMS` lists them all.
"""
