"""Certificates of changed models: the statement made again from the instance, the changes applied, each stage proven.

Nothing here is shared with the models: variables, rows and stages are stated a second time, in exact rationals, by a
function of each kind of instance; changes are read from their document and applied by code of its own.
"""
