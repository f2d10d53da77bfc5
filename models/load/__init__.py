"""Load partition: which node processes which items."""
