"""The commands ``flowlex place`` and ``flowlex bindings``."""
