"""Kubernetes: objects in, placements out (importer, ``flowlex place``, Bindings and Evictions)."""
