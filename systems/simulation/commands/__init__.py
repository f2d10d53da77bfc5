"""``flowlex simulate`` and ``flowlex reproduce``, and what their worker processes do."""
