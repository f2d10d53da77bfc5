"""Pod placement restated from its instance, and its verifier."""
